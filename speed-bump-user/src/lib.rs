//! The loader of speed-bump-ebpf, as a library: parse targets, resolve them to probe sites of a running
//! process, attach, delay, count, and leave without a trace.
//!
//! A target travels one way: [`targets`] parses a line, [`process`], [`elf`] and [`python`] know what the
//! process runs, [`probe`] chooses sites and attaches, [`engine`] delays, [`stats`] counts. No step calls
//! back. [`prepare`] goes this way up to the attach, and [`session`] the rest of it.

pub mod agent;
pub mod calibrate;
#[cfg(feature = "cli")]
pub mod cli;
pub mod control;
pub mod doctor;
pub mod engine;
pub mod experiment;
pub mod exporter;
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

pub use speed_bump_experiment::report;
pub use speed_bump_linux::{bounds, capability, elf, failure, kernel, process, sys};
use speed_bump_linux::{causes, whole_file};
pub use speed_bump_names::{demangle, printable};
pub use speed_bump_units::units;
