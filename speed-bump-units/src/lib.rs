//! Numbers with units, and text that is safe to print. Needs no Linux.

#![forbid(unsafe_code)]

pub mod printable;
pub mod units;
