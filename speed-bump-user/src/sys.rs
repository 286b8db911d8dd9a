//! Raw system calls for which no library has a safe wrapper: `bpf(2)` programs and links, and uprobe perf events.
//!
//! Everything here takes and returns owned file descriptors; nothing knows of targets or sessions.

pub mod bpf;
pub mod perf_event;
pub mod record;
pub mod watch;
