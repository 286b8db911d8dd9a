//! Probe sites: choosing them and attaching to them.
