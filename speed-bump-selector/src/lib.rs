//! Which target selects a Python function, answered without the standard library, without memory of its own
//! and without a panic, in the process that the function runs in.
//!
//! The loader compiles the Python lines of a targets file to one blob of bytes (`targets::selector` there),
//! which travels in the control block; [`layout`] describes it. [`Selector::new`] checks it, and then
//! [`Selector::in_module`] is asked once for a file, and what it gives for every function of the file. The
//! answers are those of the loader's own `Targets::python_in(file).select(qualname).winner`; a property test
//! holds the two together.
//!
//! Patterns are not automata. A glob without alternatives matches greedily, in the time of its length times
//! that of the text, from a program as long as the pattern; and most patterns are not even tried, because a
//! text lacks pairs of bytes that they need ([`Fingerprint`]). `docs/internals/helper.md` has the
//! measurement.
//!
//! Every access is checked again when it is made. So memory that changes after [`Selector::new`] (the loader
//! has it mapped too) makes for wrong answers at worst.
//!
//! Texts are `&str`. What Python holds may be no UTF-8: file names with bytes escaped as surrogates. Whoever
//! asks replaces each such character by U+FFFD, as the loader does.

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

pub use self::{error::SelectorError, fingerprint::Fingerprint, module::ModuleSelector, selector::Selector};

/// The folder of this crate's `lib.rs`, for the build script that compiles the helper's shared object of it.
#[cfg(feature = "sources")]
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
