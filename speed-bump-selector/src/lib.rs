//! Decides which target selects a Python function: without the standard library, without memory of its own,
//! without a panic, in the process that the function runs in.
//!
//! The loader compiles the Python lines of a targets file to a sequence of bytes (`targets::selector` there),
//! which travels in the control block; [`layout`] describes it. [`Selector::new`] checks it.
//! [`Selector::in_module`] is called once for a file, and its result for every function of the file. The
//! answers equal those of the loader's own `Targets::python_in(file).select(qualname).winner`; a property
//! test checks that.
//!
//! Patterns are not automata. A glob without alternatives matches greedily, in the time of its length times
//! that of the text, with a program as long as the pattern. Most patterns are not even tried, because the
//! text lacks pairs of bytes that they need ([`Fingerprint`]). `docs/internals/helper.md` has the
//! measurement.
//!
//! Every access is checked again. So memory that changes after [`Selector::new`] (the loader maps it too)
//! causes wrong answers at worst.
//!
//! Texts are `&str`. Python's own strings may not be UTF-8: file names have bytes escaped as surrogates. The
//! caller replaces each such character by U+FFFD, as the loader does.

#![no_std]
#![warn(clippy::indexing_slicing, clippy::string_slice)]

#[cfg(test)]
extern crate std;

mod error;
mod file;
mod fingerprint;
pub mod layout;
mod matcher;
mod module;
mod program;
mod selector;

pub use self::{
    error::SelectorError,
    fingerprint::Fingerprint,
    module::{Candidate, ModuleSelector},
    selector::Selector,
};

/// The folder of this crate's `lib.rs`, for the build script that compiles the helper's shared object of it.
#[cfg(feature = "sources")]
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
