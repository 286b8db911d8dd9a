//! Finds out whether a thread of the tool hangs in a read.
//!
//! Memory and files of a process may never answer: a file system of FUSE or NFS whose server hangs, or memory
//! that a page-fault handler should fill (userfaultfd). A thread that reads there waits in the kernel, where
//! no flag reaches it; only the exit of the tool ends it. So `Reading` polls which system calls the threads
//! are in. A thread that stays in the same reading call from poll to poll, and does not run in between, may
//! hang.

use std::{collections::HashMap, fs, path::Path};

/// System calls that access memory and files of other processes, and wait for nothing else.
const READS: [libc::c_long; 12] = [
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
];

/// Where a thread is: its `syscall` and its `schedstat` in /proc, the second of which changes as it runs.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    call: String,
    ran: String,
}

/// The threads that were in reading calls at the last poll, with the number of polls.
#[derive(Debug, Default)]
pub(super) struct Reading {
    threads: HashMap<String, (Place, u32)>,
}

impl Reading {
    /// Polls all threads. Returns for how many polls in a row, including this one, the longest waiting thread
    /// was in the same call.
    pub(super) fn poll(&mut self) -> u32 {
        let mut now = HashMap::new();
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let Some(place) = Place::read(&entry.path()) else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let before = self.threads.get(&name).filter(|(before, _)| *before == place);
            let polls = before.map_or(1, |(_, polls)| polls + 1);
            now.insert(name, (place, polls));
        }
        self.threads = now;
        self.threads.values().map(|(_, polls)| *polls).max().unwrap_or(0)
    }
}

impl Place {
    /// Reads where a thread is; `None` if it is not in a reading call.
    fn read(thread: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(thread.join(name)).ok();
        let call = read("syscall").filter(|call| is_read(call))?;
        Some(Self { call, ran: read("schedstat").unwrap_or_default() })
    }
}

/// Whether a `syscall` (proc_pid_syscall(5)) reads from a file or from another process.
fn is_read(call: &str) -> bool {
    let mut fields = call.split_ascii_whitespace();
    let Some(number) = fields.next().and_then(|number| number.parse::<libc::c_long>().ok()) else {
        return false;
    };
    // The tool also waits in `read` for output of its own commands, and for signals.
    number == libc::SYS_read && fields.next().is_some_and(is_file) || READS.contains(&number)
}

/// Whether a descriptor of the tool, as in `syscall`, is a file with a path, outside of /dev.
fn is_file(descriptor: &str) -> bool {
    let number = descriptor.strip_prefix("0x").and_then(|number| u32::from_str_radix(number, 16).ok());
    let link = number.and_then(|number| fs::read_link(format!("/proc/self/fd/{number}")).ok());
    link.is_some_and(|path| path.starts_with("/") && !path.starts_with("/dev"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs::File, os::fd::AsRawFd as _};

    use super::*;

    #[test]
    fn reading_calls_are_recognised() {
        let call = |number: libc::c_long, first: &str| {
            format!("{number} {first} 0x1 0x0 0x0 0x0 0x0 0x7ffd 0x7f01\n")
        };
        assert!(is_read(&call(libc::SYS_process_vm_readv, "0x4d2")));
        assert!(is_read(&call(libc::SYS_openat, "0xffffff9c")));
        assert!(!is_read(&call(libc::SYS_futex, "0x7f00aa10")));
        for text in ["", "running\n", "-1 0x7ffd 0x7f01\n"] {
            assert!(!is_read(text), "{text}");
        }
        let file = File::open("/proc/self/maps").unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(is_read(&call(libc::SYS_read, &format!("{:#x}", file.as_raw_fd()))));
        assert!(!is_read(&call(libc::SYS_read, &format!("{:#x}", reader.as_raw_fd()))));
    }

    #[test]
    fn a_running_thread_does_not_count_as_hung() {
        let (mut reading, mut last) = (Reading::default(), 0);
        for _ in 0..3 {
            last = reading.poll();
        }
        // This thread is in a reading call when it polls, but it runs in between.
        assert!(last < 3, "{reading:?}");
    }
}
