//! Numbers with their units. Needs no Linux.

#![forbid(unsafe_code)]

pub mod units;
