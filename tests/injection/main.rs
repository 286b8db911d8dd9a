//! Bringing the helper in: into which processes, at which moments, and what happens to them.

mod hostile_injection;
mod inject_c_libraries;
mod inject_calls;
mod inject_interrupted;
mod inject_killed;
mod inject_native_code;
mod inject_places;
mod inject_python;
mod inject_refusals;
mod inject_small_stacks;
mod inject_stopped;
mod loader;
mod program;
mod support;
