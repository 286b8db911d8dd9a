//! Names of functions: their kinds, their demangled forms, and how to print them safely. Needs no Linux.

#![forbid(unsafe_code)]

pub mod demangle;
mod kind;
pub mod printable;

pub use kind::TargetKind;

/// The longest name of a function, a file or a symbol that we keep, in bytes. Paths are not longer
/// (`PATH_MAX`, include/uapi/linux/limits.h).
pub const NAME_BYTES: usize = 4_096;
