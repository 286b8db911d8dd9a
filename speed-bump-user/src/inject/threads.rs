//! Which thread to borrow, and why others were not.

use std::fmt;

use super::calls::{Continuation, continuation};
use crate::{process::Process, units::Pid};

/// A thread, and how well it suits, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) suits: Suits,
    pub(super) thread: Pid,
}

/// How well a thread suits, as far as can be seen without stopping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suits {
    /// It waits in a call that the kernel continues unnoticed.
    WaitsUnnoticed,
    /// It runs, or cannot be seen: where it is turns out when it is stopped.
    Runs,
    /// It waits in a call that may return `EINTR` to the program.
    WaitsNoticed,
}

/// The threads that may suit, the best first. Threads that wait where they must not be taken out of are left
/// out.
pub(super) fn candidates(process: &Process, tried: &mut Tried) -> Vec<Candidate> {
    let threads = process.thread_ids().unwrap_or_default();
    tried.threads = threads.len();
    let mut found = Vec::new();
    for thread in threads {
        match waits_in(process, thread) {
            Some((number, arguments)) => match continuation(number, arguments) {
                Some(Continuation::Kernel) => found.push(Candidate { suits: Suits::WaitsUnnoticed, thread }),
                Some(Continuation::Eintr { limit }) => {
                    let unlimited = limit.is_none_or(|limit| limit.is_absent(arguments));
                    let suits = if unlimited { Suits::WaitsUnnoticed } else { Suits::WaitsNoticed };
                    found.push(Candidate { suits, thread });
                }
                Some(Continuation::Socket) => found.push(Candidate { suits: Suits::WaitsNoticed, thread }),
                None => tried.count(Unfit::OtherCall(number)),
            },
            None => found.push(Candidate { suits: Suits::Runs, thread }),
        }
    }
    found.sort_unstable();
    found
}

/// The system call that a thread waits in, by /proc/PID/task/TID/syscall; `None` while it runs.
pub(super) fn waits_in(process: &Process, thread: Pid) -> Option<(u64, [u64; 6])> {
    let text = super::task::file(process, thread, "syscall")?;
    let mut fields = str::from_utf8(&text).ok()?.split_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    Some((number, arguments))
}

/// Why a thread was not borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It waits in a system call, by number, that it must not be taken out of.
    OtherCall(u64),
    /// It runs code, neither the interpreter's nor generated, that may hold a lock that the helper needs.
    OtherCode,
    /// It runs native code, and did not return to the interpreter while that was waited for.
    NoReturn,
    /// It is in the code of the dynamic loader.
    Loader,
    /// It may be handling a signal.
    Handler,
    /// A signal came in between.
    Signal,
    /// Too little stack is left.
    Stack,
    /// It did not stop in time: it waits uninterruptibly.
    Stuck,
    /// It ended, or cannot be traced.
    Gone,
}

impl Unfit {
    /// Whether it may become fit by running on, when it returns to the interpreter.
    pub(super) fn may_return(self) -> bool {
        matches!(self, Self::OtherCode | Self::Loader | Self::OtherCall(_))
    }
}

/// What was found at the points where threads were, for a message.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Threads of the process.
    pub threads: usize,
    /// How often threads were looked at in vain, by reason.
    pub unfit: Vec<(Unfit, u32)>,
}

impl Tried {
    pub(super) fn count(&mut self, unfit: Unfit) {
        match self.unfit.iter_mut().find(|(reason, _)| *reason == unfit) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.unfit.push((unfit, 1)),
        }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads;
        write!(f, "{threads} thread{}", if threads == 1 { "" } else { "s" })?;
        let mut reasons = self.unfit.clone();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (position, (reason, count)) in reasons.iter().enumerate() {
            f.write_str(if position == 0 { "; found " } else { ", " })?;
            match reason {
                Unfit::OtherCall(number) => write!(f, "waiting in system call {number}")?,
                Unfit::OtherCode => f.write_str("in native code outside of the interpreter")?,
                Unfit::NoReturn => f.write_str("not returning from native code to the interpreter")?,
                Unfit::Loader => f.write_str("in the dynamic loader")?,
                Unfit::Handler => f.write_str("possibly in a signal handler")?,
                Unfit::Signal => f.write_str("receiving a signal")?,
                Unfit::Stack => f.write_str("with too little stack left")?,
                Unfit::Stuck => f.write_str("waiting uninterruptibly")?,
                Unfit::Gone => f.write_str("ended or not traceable")?,
            }
            write!(f, " {count}x")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_told_by_how_often() {
        let mut tried = Tried { threads: 2, ..Tried::default() };
        tried.count(Unfit::OtherCall(16));
        tried.count(Unfit::OtherCode);
        tried.count(Unfit::OtherCode);
        assert_eq!(
            tried.to_string(),
            "2 threads; found in native code outside of the interpreter 2x, waiting in system call 16 1x"
        );
    }
}
