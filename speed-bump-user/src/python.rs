//! CPython: what a process exposes of its Python functions without our help.
//!
//! [`interpreter`] recognises CPython among the mapped files, [`entry_source`] says how its calls can be
//! seen, [`perf_map`] and [`trampoline`] name functions by the return address on the evaluator's stack,
//! [`source`] names them by file, name and line. Nothing here attaches or writes to a process.

pub mod entry_source;
pub mod interpreter;
pub mod perf_map;
pub mod root;
pub mod source;
pub mod trampoline;
pub mod version;

#[cfg(test)]
mod pythons;
