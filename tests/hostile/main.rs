//! Targets that attack their viewer: by names, files and memory.

mod hostile_crowds;
mod hostile_files;
mod hostile_memory;
mod hostile_names;
mod hostile_sampling;
mod hostile_waits;
mod many_patterns;
