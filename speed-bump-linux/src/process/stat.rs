//! The fields of /proc/PID/stat that we use (named as in proc_pid_stat(5)).
//!
//! We read the fields as bytes: the process chose the name in the second field, which may hold anything, even
//! parentheses and blanks.

/// The /proc/PID/stat of a process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Field 2, without its parentheses.
    pub comm: String,
    /// Field 3: `R`, `S`, `Z` and so on.
    pub state: char,
    /// Field 4; 0 for a parent outside our PID namespace.
    pub(crate) ppid: i32,
    /// Field 9: the kernel's flags of the process (include/linux/sched.h).
    pub(crate) flags: u32,
    /// Fields 14 to 17, added up: the processor time of the process, of its ended threads, and of the
    /// children that it waited for, in clock ticks.
    pub(crate) ran: u64,
    /// Field 22, in clock ticks since boot.
    pub starttime: u64,
    /// Field 28: the address where the stack begins; 0 if we may not read it.
    pub(crate) startstack: u64,
}

impl Stat {
    /// The bit of `flags` that marks a thread of the kernel (`PF_KTHREAD`).
    pub(crate) const KERNEL_THREAD: u32 = 0x0020_0000;

    /// Whether the thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Reads the text of /proc/PID/stat. Returns `None` if the text is not in the kernel's format.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let comm = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
        let after = str::from_utf8(text.get(close + 1..)?).ok()?;
        // The first of these fields has number 3.
        let fields: Vec<&str> = after.split_ascii_whitespace().take(26).collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            comm,
            state: field(3)?.chars().next()?,
            ppid: field(4)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            ran: ran(fields.get(14 - 3..=17 - 3)?)?,
            starttime: field(22)?.parse().ok()?,
            startstack: field(28)?.parse().ok()?,
        })
    }
}

fn ran(fields: &[&str]) -> Option<u64> {
    fields.iter().try_fold(0_u64, |sum, field| Some(sum.saturating_add(field.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const AFTER: &str =
        " S 41 7 7 0 -1 2097216 95 0 0 0 1 2 3 4 20 0 1 0 1234 5000 200 18446744073709551615 1 1 99 0 0";

    fn parse(before: &str, after: &str) -> Option<Stat> {
        Stat::parse(format!("{before}{after}").as_bytes())
    }

    #[test]
    fn fields_are_read_whatever_the_name_is() {
        for name in ["a", "", "a) b", "(a", ") S 1 1 (", "ü", "a\nb"] {
            let stat = parse(&format!("7 ({name})"), AFTER).unwrap();
            let expected = Stat {
                comm: name.to_owned(),
                state: 'S',
                ppid: 41,
                flags: 2_097_216,
                ran: 10,
                starttime: 1234,
                startstack: 99,
            };
            assert_eq!(stat, expected);
            assert_ne!(stat.flags & Stat::KERNEL_THREAD, 0);
        }
        let stat = Stat::parse(&[b"7 (\xff)".as_slice(), AFTER.as_bytes()].concat()).unwrap();
        assert_eq!((stat.comm.as_str(), stat.state), ("\u{fffd}", 'S'));
    }

    #[test]
    fn other_texts_are_refused() {
        let short = AFTER.rsplitn(4, ' ').last().unwrap();
        for (before, after) in [
            ("", ""),
            ("7", ""),
            ("7 a", AFTER),
            ("(", ""),
            (")(", AFTER),
            ("7 (a)", ""),
            ("7 (a)", " S"),
            ("7 (a)", short),
        ] {
            assert_eq!(parse(before, after), None, "{before}{after}");
        }
        assert_eq!(parse("7 (a)", &AFTER.replace("1234", "x")), None);
    }

    #[test]
    fn our_own_is_read() {
        let stat = Stat::parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(stat.ppid, std::os::unix::process::parent_id().cast_signed());
        assert_eq!(stat.flags & Stat::KERNEL_THREAD, 0);
        assert!(stat.starttime > 0 && stat.startstack > 0);
    }
}
