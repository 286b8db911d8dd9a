//! Statistics of a session: its counts as JSON, as a table, and live.

pub(crate) mod bounded;
pub(crate) mod callers;
pub(crate) mod implausible;
pub mod inexact;
pub mod json;
pub mod json_lines;
pub mod median;
pub mod output;
pub mod report;
pub mod table;
pub mod times;
