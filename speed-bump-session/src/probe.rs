//! Probe sites: choosing them, and attaching to them.

pub mod attach;
pub mod caller_ranges;
pub(crate) mod code;
pub mod cost;
pub mod file;
pub mod in_place;
pub mod plan;
pub mod resolve;
pub mod site;
