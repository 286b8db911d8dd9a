//! System calls that need care: `bpf(2)` programs and links, uprobe perf events, `ptrace(2)`, `fork(2)`,
//! futexes, mappings, and files in other processes' roots.
//!
//! All functions take and return owned file descriptors. No function knows about targets or sessions.

pub mod answers;
pub mod below;
pub mod bpf;
pub mod breakpoint;
pub mod clock;
pub mod clock_samples;
pub mod descriptor;
pub mod fork;
pub mod kernel_types;
pub mod mapped_words;
pub mod memory_file;
pub mod own_handler;
pub mod page_frames;
pub mod perf_event;
pub mod priority;
pub mod pseudo_files;
pub mod ptrace;
pub mod record;
pub mod remote_descriptor;
pub mod shared_futex;
pub mod signals;
pub mod stray_trap;
pub mod unread_map;
pub mod vm_read;
pub mod watch;
pub mod watchdog;
