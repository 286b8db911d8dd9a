//! Putting the helper into a process.

pub mod image;
