//! Statistics of a session: what was counted, as JSON, as a table, and live.

pub mod json;
pub mod report;
pub mod table;
