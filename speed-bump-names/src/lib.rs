//! Names of functions: which kind of function has one, its demangled forms, and how to print it safely.
//! Needs no Linux.

#![forbid(unsafe_code)]

pub mod demangle;
mod kind;
pub mod printable;

pub use kind::TargetKind;

/// The longest name of a function, a file or a symbol that is kept, in bytes. Paths have no more (`PATH_MAX`,
/// include/uapi/linux/limits.h).
pub const NAME_BYTES: usize = 4_096;
