//! The targets file: lines, patterns, and which target selects a function.
pub mod pattern;
