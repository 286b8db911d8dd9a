//! CPython: how we find the functions of a process.
//!
//! [`interpreter`] recognises CPython among the mapped files. [`entry_source`] decides how CPython's calls
//! become visible. [`perf_map`] and `trampoline` name functions by the return address on the evaluator's
//! stack. `source` names functions by file, name and line. [`helper`] shares memory with a helper, which
//! names functions itself. Nothing here attaches.

pub mod entry_source;
pub mod helper;
pub mod interpreter;
pub(crate) mod main_file;
pub mod perf_map;
pub(crate) mod root;
pub(crate) mod source;
pub(crate) mod trampoline;
pub mod version;

#[cfg(test)]
pub(crate) mod pythons;
