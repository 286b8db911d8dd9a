//! Probe sites: choosing them and attaching to them.

pub mod site;
