//! The loader of speed-bump-ebpf, as a library: parse targets, resolve them to probe sites of a running
//! process, attach, delay, count, and leave without a trace.
//!
//! A target travels one way: [`targets`] parses a line, [`process`], [`elf`] and [`python`] know what the
//! process runs, [`probe`] chooses sites and attaches, [`engine`] delays, [`stats`] counts. No step calls
//! back. [`prepare`] goes this way up to the attach, and [`session`] the rest of it.

pub mod agent;
#[cfg(feature = "cli")]
pub mod cli;
pub mod doctor;
pub mod experiment;
pub mod exporter;

pub use speed_bump_experiment::report;
use speed_bump_linux::causes;
pub use speed_bump_linux::{bounds, capability, elf, failure, kernel, process, sys};
pub use speed_bump_names::{demangle, printable};
pub use speed_bump_session::{
    calibrate, control, engine, inject, launch, policy, prepare, presence, probe, python, sampling, session,
    stats, targets,
};
pub use speed_bump_units::units;
