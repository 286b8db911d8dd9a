//! Sessions of speed-bump-ebpf: parse targets, resolve them to probe sites in a running process, attach,
//! delay, count, and detach without leaving anything behind.
//!
//! Each target passes through these modules in order. [`targets`] parses a line. [`process`], [`elf`] and
//! [`python`] know what the process runs. [`probe`] chooses sites and attaches. [`engine`] delays. [`stats`]
//! counts. A module never calls a module that comes earlier in this list. [`prepare`] does all steps before
//! the attach, and [`session`] does the others.

pub mod calibrate;
pub mod control;
pub mod engine;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod inject;
pub mod launch;
pub mod policy;
pub mod prepare;
pub mod presence;
pub mod probe;
pub mod python;
pub mod sampling;
pub mod session;
pub mod stats;
pub mod targets;

/// The commit from which this crate was built, or `unknown`.
pub const COMMIT: &str = env!("SPEED_BUMP_COMMIT");

use speed_bump_experiment::report;
use speed_bump_linux::{bounds, capability, causes, elf, failure, kernel, process, sys, whole_file};
use speed_bump_names::{demangle, printable};
use speed_bump_units::units;
