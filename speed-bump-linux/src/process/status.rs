//! The lines of /proc/PID/status that we use.
//!
//! We read the lines as bytes: the name of a process may hold any bytes, and must not keep us from reading
//! the other lines.

use crate::units::{Bytes, Pid};

/// A process's status at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The process that the thread belongs to.
    pub thread_group: Pid,
    /// The parent process; absent if the parent is the kernel or outside our PID namespace.
    pub parent: Option<Pid>,
    /// The debugger that is attached to the process.
    pub tracer: Option<Pid>,
    /// Users, groups and capabilities.
    pub credentials: Credentials,
    /// Number of threads of the process.
    pub threads: u32,
    /// The resident memory that belongs to no file (`RssAnon`, since Linux 4.5; 0 before).
    pub anonymous: Bytes,
    /// The address space in use (`VmSize`).
    pub addresses: Bytes,
    /// The locked memory (`VmLck`). If there is any, all later mappings may be resident at once
    /// (mlockall(2)).
    pub locked: Bytes,
    /// The thread's sets of signals.
    pub signals: SignalMasks,
    /// The PIDs of the process in each namespace, from ours inwards (since Linux 4.1; empty before).
    pub namespace_pids: Vec<Pid>,
    /// Seccomp mode: 0 is none, 1 is strict, 2 is filter. Absent if the kernel has no seccomp.
    pub seccomp: Option<u32>,
    /// Whether the main thread runs with a shadow stack (x86, since Linux 6.6). If so, `x86_Thread_features`
    /// contains `shstk`.
    pub shadow_stack: bool,
}

/// A process's credentials, for the access rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective, saved and file-system user.
    pub users: [u32; 4],
    /// Real, effective, saved and file-system group.
    pub groups: [u32; 4],
    /// Permitted capabilities, one bit for each.
    pub permitted: u64,
    /// Effective capabilities, one bit for each.
    pub effective: u64,
}

/// A thread's sets of signals. Bit N stands for signal N + 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalMasks {
    /// Signals that wait to be delivered to the thread or to its process.
    pub pending: u64,
    /// Signals that the thread blocks.
    pub blocked: u64,
    /// Signals that the process ignores.
    pub ignored: u64,
    /// Signals that the process handles.
    pub caught: u64,
}

impl SignalMasks {
    /// Reads the text of a /proc/PID/task/TID/status. Returns `None` if the text is cut short.
    pub fn parse(status: &[u8]) -> Option<Self> {
        Fields(status).signals().ok()
    }

    /// Adds the signals of both values, set by set.
    pub fn union(self, other: Self) -> Self {
        Self {
            pending: self.pending | other.pending,
            blocked: self.blocked | other.blocked,
            ignored: self.ignored | other.ignored,
            caught: self.caught | other.caught,
        }
    }

    /// The signals that the program uses, or may soon use.
    pub fn used(self) -> u64 {
        self.pending | self.blocked | self.ignored | self.caught
    }
}

/// The name of a line that is missing or that we cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadField(pub String);

impl Status {
    /// Reads the text of /proc/PID/status.
    pub fn parse(text: &[u8]) -> Result<Self, BadField> {
        let fields = Fields(text);
        Ok(Self {
            thread_group: fields.pid("Tgid")?.ok_or_else(|| BadField("Tgid is 0".to_owned()))?,
            parent: fields.pid("PPid")?,
            tracer: fields.pid("TracerPid")?,
            credentials: Credentials {
                users: fields.ids("Uid")?,
                groups: fields.ids("Gid")?,
                permitted: fields.mask("CapPrm")?,
                effective: fields.mask("CapEff")?,
            },
            threads: fields.required("Threads", |text| text.parse().ok())?,
            anonymous: fields.kilobytes("RssAnon"),
            addresses: fields.kilobytes("VmSize"),
            locked: fields.kilobytes("VmLck"),
            signals: fields.signals()?,
            namespace_pids: fields
                .text("NSpid")
                .map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
                .unwrap_or_default(),
            seccomp: fields.text("Seccomp").and_then(|text| text.parse().ok()),
            shadow_stack: fields
                .text("x86_Thread_features")
                .is_some_and(|features| features.split_whitespace().any(|feature| feature == "shstk")),
        })
    }

    /// The status of the calling thread. The kernel checks the credentials of this thread.
    pub fn own() -> Option<Self> {
        Self::parse(&std::fs::read("/proc/thread-self/status").ok()?).ok()
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        let value = self.0.split(|byte| *byte == b'\n').find_map(|line| {
            let rest = line.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b":")
        })?;
        str::from_utf8(value).ok().map(str::trim)
    }

    fn required<T>(&self, name: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, BadField> {
        let text = self.text(name).ok_or_else(|| BadField(format!("no line {name}")))?;
        read(text).ok_or_else(|| BadField(format!("{name}: {text}")))
    }

    /// A PID; 0 means none.
    fn pid(&self, name: &str) -> Result<Option<Pid>, BadField> {
        self.required(name, |text| text.parse().ok().map(Pid::new))
    }

    fn mask(&self, name: &str) -> Result<u64, BadField> {
        self.required(name, |text| u64::from_str_radix(text, 16).ok())
    }

    /// An amount of memory; 0 if the line is missing.
    fn kilobytes(&self, name: &str) -> Bytes {
        let number = self.text(name).and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Bytes(number.unwrap_or(0).saturating_mul(1024))
    }

    fn signals(&self) -> Result<SignalMasks, BadField> {
        Ok(SignalMasks {
            pending: self.mask("SigPnd")? | self.mask("ShdPnd")?,
            blocked: self.mask("SigBlk")?,
            ignored: self.mask("SigIgn")?,
            caught: self.mask("SigCgt")?,
        })
    }

    fn ids(&self, name: &str) -> Result<[u32; 4], BadField> {
        self.required(name, |text| {
            let ids: Option<Vec<u32>> = text.split_whitespace().map(|id| id.parse().ok()).collect();
            ids?.try_into().ok()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &[u8] =
        b"Name:\t\xff\xfe:\\nTgid\nUmask:\t0022\nTgid:\t7\nPid:\t9\nPPid:\t0\nTracerPid:\t41\n\
        Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nNSpid:\t9\t12\t1\nThreads:\t3\nRssAnon:\t    12 kB\n\
        SigPnd:\t1\nShdPnd:\t2\nSigBlk:\t0000000000010001\nSigIgn:\t4\nSigCgt:\t8\nCapPrm:\t00000000a80425fb\n\
        CapEff:\t0000000000000000\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn lines_are_read_whatever_the_name_is() {
        let status = Status::parse(TEXT).unwrap();
        assert_eq!(status.thread_group, Pid::new(7).unwrap());
        assert_eq!(status.parent, None);
        assert_eq!(status.tracer, Pid::new(41));
        assert_eq!(status.credentials.users, [1, 2, 3, 4]);
        assert_eq!(status.credentials.groups, [5, 6, 7, 8]);
        assert_eq!((status.credentials.permitted, status.credentials.effective), (0xa804_25fb, 0));
        assert_eq!(status.threads, 3);
        assert_eq!(status.signals, SignalMasks { pending: 3, blocked: 0x1_0001, ignored: 4, caught: 8 });
        assert_eq!(status.anonymous, Bytes(12 << 10));
        assert_eq!(status.namespace_pids.last().copied(), Pid::new(1));
        assert_eq!(status.seccomp, Some(2));
    }

    #[test]
    fn a_missing_or_odd_line_is_named() {
        assert_eq!(Status::parse(b""), Err(BadField("no line Tgid".to_owned())));
        let odd = String::from_utf8_lossy(TEXT).replace("Uid:\t1\t2", "Uid:\t1");
        assert_eq!(Status::parse(odd.as_bytes()), Err(BadField("Uid: 1\t3\t4".to_owned())));
    }

    #[test]
    fn our_own_status_is_readable() {
        assert_eq!(Status::own().unwrap().thread_group.get(), std::process::id().cast_signed());
    }
}
