//! Probe sites: choosing them and attaching to them.

pub mod attach;
pub mod file;
pub mod site;
