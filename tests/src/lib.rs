//! What end-to-end tests of several areas share. What the demo and the benches share with them is
//! `speed_bump_testing`.
//!
//! An area is a folder beside this one, and one test program: each file in it is a module. To link a program
//! for each file would take minutes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "fails the test")]

pub mod calls;
pub mod helper;
pub mod processes;
