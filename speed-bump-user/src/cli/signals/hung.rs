//! Whether the tool waits in the kernel for what never comes.
//!
//! Memory and files of a process can lie where nothing answers: on a file system of FUSE or NFS whose server
//! hangs, or in memory that a handler of page faults is to fill (userfaultfd). A thread that reads there
//! waits in the kernel, and no flag reaches it; but it goes when the tool exits. So `Reading` looks at the
//! calls that threads are in. A thread that is in the same reading call at look after look, and has not run
//! meanwhile, waits for what may never come.

use std::{collections::HashMap, fs, path::Path};

/// Calls by which the tool reads or writes what is others', and in which it waits for nothing else.
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

/// The threads that read, as of the last look.
#[derive(Debug, Default)]
pub(super) struct Reading {
    threads: HashMap<String, (Place, u32)>,
}

impl Reading {
    /// Looks at all threads. For how many looks in a row, this one among them, the thread that has waited for
    /// longest was in the same call.
    pub(super) fn look(&mut self) -> u32 {
        let mut now = HashMap::new();
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let Some(place) = Place::of(&entry.path()) else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let before = self.threads.get(&name).filter(|(before, _)| *before == place);
            let looks = before.map_or(1, |(_, looks)| looks + 1);
            now.insert(name, (place, looks));
        }
        self.threads = now;
        self.threads.values().map(|(_, looks)| *looks).max().unwrap_or(0)
    }
}

impl Place {
    /// Where a thread reads; `None` where it does something else.
    fn of(thread: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(thread.join(name)).ok();
        let call = read("syscall").filter(|call| is_read(call))?;
        Some(Self { call, ran: read("schedstat").unwrap_or_default() })
    }
}

/// Whether a `syscall` (proc_pid_syscall(5)) is one that reads what is others'.
fn is_read(call: &str) -> bool {
    let mut fields = call.split_ascii_whitespace();
    let Some(number) = fields.next().and_then(|number| number.parse::<libc::c_long>().ok()) else {
        return false;
    };
    // `read` is also how the tool waits for its own commands' output, and for signals.
    number == libc::SYS_read && fields.next().is_some_and(is_file) || READS.contains(&number)
}

/// Whether a descriptor of the tool's, as in `syscall`, is of a file below some root.
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
    fn calls_that_read_what_is_others_are_told_from_others() {
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
    fn a_thread_that_waits_for_something_else_is_none() {
        let (mut reading, mut last) = (Reading::default(), 0);
        for _ in 0..3 {
            last = reading.look();
        }
        // This very one reads while it looks, but it runs.
        assert!(last < 3, "{reading:?}");
    }
}
