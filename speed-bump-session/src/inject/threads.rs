//! Chooses the thread to borrow, and reports why we did not borrow others.

use std::{collections::HashMap, fmt};

use super::{
    calls::{Continuation, continuation},
    safe_point::{STACK_BYTES, has_stack},
};
use crate::{
    process::{Process, Region},
    units::{Bytes, Pid, VirtualAddress},
};

/// A thread, and how suitable it is for borrowing. Sorts the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    pub(super) suits: Suits,
    pub(super) thread: Pid,
}

/// How suitable a thread is, as far as we can see without stopping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suits {
    /// The thread waits in a call that the kernel continues, so that the program does not notice.
    WaitsUnnoticed,
    /// The thread runs, or its state is hidden. Stopping it shows whether it is suitable.
    Runs,
    /// The thread waits in a call that may return `EINTR` to the program.
    WaitsNoticed,
}

/// The threads that may be suitable, the best first. Leaves out threads that wait in a call that we must not
/// interrupt, and threads with too little stack. We do not even stop these. `regions` are the mappings of the
/// process.
pub(super) fn candidates(process: &Process, regions: &[Region], tried: &mut Tried) -> Vec<Candidate> {
    let threads = process.thread_ids().unwrap_or_default();
    tried.threads = threads.len();
    let mut found = Vec::new();
    let main_has_ended = process.shown_by() != process.pid();
    for thread in threads.into_iter().filter(|thread| !(main_has_ended && *thread == process.pid())) {
        let Some(call) = waits_in(process, thread) else {
            found.push(Candidate { suits: Suits::Runs, thread });
            continue;
        };
        let suits = match continuation(call.number, call.arguments) {
            Some(Continuation::Kernel) => Suits::WaitsUnnoticed,
            Some(Continuation::Eintr { limit }) => {
                let unlimited = limit.is_none_or(|limit| limit.is_absent(call.arguments));
                if unlimited { Suits::WaitsUnnoticed } else { Suits::WaitsNoticed }
            }
            Some(Continuation::Socket) => Suits::WaitsNoticed,
            None => {
                tried.count(Unsuitable::OtherCall(call.number));
                continue;
            }
        };
        if has_stack(regions, call.stack) {
            found.push(Candidate { suits, thread });
        } else {
            tried.count(Unsuitable::Stack);
        }
    }
    found.sort_unstable();
    found
}

/// Decides which threads to stop next. Threads that we stopped in vain come last. So if there are many
/// threads, we do not stop the same few again and again.
#[derive(Debug, Default)]
pub(super) struct Turns {
    round: u32,
    /// The round in which each thread was stopped last.
    stopped: HashMap<Pid, u32>,
}

impl Turns {
    /// The next candidates, at most `most`. The threads that have waited longest come first, and among these
    /// the most suitable.
    pub(super) fn next(&mut self, mut candidates: Vec<Candidate>, most: usize) -> Vec<Candidate> {
        self.round = self.round.saturating_add(1);
        let before = std::mem::take(&mut self.stopped);
        let stopped = |thread: &Pid| before.get(thread).copied().unwrap_or(0);
        candidates.sort_by_key(|candidate| (stopped(&candidate.thread), *candidate));
        // Forgets threads that have ended.
        self.stopped = candidates.iter().map(|one| (one.thread, stopped(&one.thread))).collect();
        candidates.truncate(most);
        self.stopped.extend(candidates.iter().map(|candidate| (candidate.thread, self.round)));
        candidates
    }
}

/// The system call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingCall {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
    /// The thread's stack pointer.
    pub(super) stack: VirtualAddress,
}

/// The system call in which a thread waits, from /proc/PID/task/TID/syscall; `None` if the thread runs.
pub(super) fn waits_in(process: &Process, thread: Pid) -> Option<WaitingCall> {
    WaitingCall::parse(&super::task::file(process, thread, "syscall")?)
}

impl WaitingCall {
    /// The file has: number, six arguments, stack pointer, instruction pointer. If the thread is in no call,
    /// the file has the text `running`, or the number -1. Documentation/filesystems/proc.rst does not
    /// describe the file; the source is fs/proc/base.c, `proc_pid_syscall`.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = str::from_utf8(text).ok()?.split_whitespace();
        let number = fields.next()?.parse().ok()?;
        let mut hexadecimal = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = hexadecimal()?;
        }
        Some(Self { number, arguments, stack: VirtualAddress(hexadecimal()?) })
    }
}

/// Why we did not borrow a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsuitable {
    /// The thread waits in the system call with this number, which we must not interrupt.
    OtherCall(u64),
    /// The thread runs code that may hold a lock that the helper needs: neither the interpreter's code nor
    /// generated code.
    OtherCode,
    /// The thread runs native code, and did not return to the interpreter while we waited.
    NoReturn,
    /// The thread is in the code of the dynamic loader.
    Loader,
    /// The thread may be handling a signal.
    Handler,
    /// The thread got a signal before we borrowed it.
    Signal,
    /// The thread has too little stack left.
    Stack,
    /// The thread did not stop in time: it waits uninterruptibly.
    Stuck,
    /// The thread has ended, or we cannot trace it.
    Gone,
}

impl Unsuitable {
    /// Whether the thread may become suitable later, when it returns to the interpreter.
    pub(super) fn may_return(self) -> bool {
        matches!(self, Self::OtherCode | Self::Loader | Self::OtherCall(_))
    }
}

/// Why we borrowed no thread, for a message.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// The number of threads of the process.
    pub threads: usize,
    /// How often we could not borrow a thread, by reason.
    pub unfit: Vec<(Unsuitable, u32)>,
}

impl Tried {
    pub(super) fn count(&mut self, unfit: Unsuitable) {
        match self.unfit.iter_mut().find(|(reason, _)| *reason == unfit) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.unfit.push((unfit, 1)),
        }
    }

    /// The way out, for the message.
    pub(super) fn advice(&self) -> String {
        let longer = "try again, or give --inject-timeout a longer time";
        let short = |(reason, _): &(Unsuitable, u32)| *reason == Unsuitable::Stack;
        let needs = format!("a thread needs at least {} of stack", Bytes(STACK_BYTES));
        if self.unfit.is_empty() || !self.unfit.iter().any(short) {
            longer.to_owned()
        } else if self.unfit.iter().all(short) {
            format!("{needs}: have the program give one of its threads more, or use --no-inject")
        } else {
            format!("{needs}; {longer}")
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
                Unsuitable::OtherCall(number) => write!(f, "waiting in system call {number}")?,
                Unsuitable::OtherCode => f.write_str("in native code outside of the interpreter")?,
                Unsuitable::NoReturn => f.write_str("not returning from native code to the interpreter")?,
                Unsuitable::Loader => f.write_str("in the dynamic loader")?,
                Unsuitable::Handler => f.write_str("possibly in a signal handler")?,
                Unsuitable::Signal => f.write_str("receiving a signal")?,
                Unsuitable::Stack => f.write_str("with too little stack left")?,
                Unsuitable::Stuck => f.write_str("waiting uninterruptibly")?,
                Unsuitable::Gone => f.write_str("ended or not traceable")?,
            }
            write!(f, " {count}x")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    #[test]
    fn every_thread_has_its_turn() {
        let waiting = |number| Candidate { suits: Suits::WaitsUnnoticed, thread: pid(number) };
        let running = Candidate { suits: Suits::Runs, thread: pid(1) };
        let all: Vec<_> = (2..=30).map(waiting).chain([running]).collect();
        let mut turns = Turns::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.extend(turns.next(all.clone(), 8).iter().map(|one| one.thread.get()));
        }
        // The best thread comes first. Each thread comes once, and then they come again from the beginning.
        assert_eq!(seen, (2..=30).chain([1, 2, 3]).collect::<Vec<_>>());
        // We stop a new thread at once, and forget a thread that has ended.
        assert_eq!(turns.next(vec![waiting(4), waiting(31)], 1), [waiting(31)]);
        assert_eq!(turns.stopped.len(), 2);
    }

    #[test]
    fn a_call_is_read_with_its_stack() {
        let call = WaitingCall::parse(b"232 0x3 0x7f00 0x1 0xffffffffffffffff 0x0 0x8 0x7ffd10 0x7f12\n");
        let call = call.unwrap();
        assert_eq!((call.number, call.arguments), (232, [3, 0x7f00, 1, u64::MAX, 0, 8]));
        assert_eq!(call.stack, VirtualAddress(0x7f_fd10));
        for text in
            ["running\n", "-1 0x7ffd10 0x7f12\n", "232 0x3\n", "", "232 0x3 0x7 0x1 0xg 0x0 0x8 0x7 0x7"]
        {
            assert_eq!(WaitingCall::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn advice_is_what_would_help() {
        let advice = |unfit: &[Unsuitable]| {
            let mut tried = Tried::default();
            unfit.iter().for_each(|unfit| tried.count(*unfit));
            tried.advice()
        };
        assert!(!advice(&[]).contains("stack") && !advice(&[Unsuitable::Loader]).contains("stack"));
        assert!(!advice(&[Unsuitable::Stack]).contains("longer time"));
        assert!(advice(&[Unsuitable::Stack]).contains("--no-inject"));
        let both = advice(&[Unsuitable::Loader, Unsuitable::Stack]);
        assert!(both.contains("48 KiB of stack") && both.contains("longer time"), "{both}");
    }

    #[test]
    fn what_was_found_is_told_by_how_often() {
        let mut tried = Tried { threads: 2, ..Tried::default() };
        tried.count(Unsuitable::OtherCall(16));
        tried.count(Unsuitable::OtherCode);
        tried.count(Unsuitable::OtherCode);
        assert_eq!(
            tried.to_string(),
            "2 threads; found in native code outside of the interpreter 2x, waiting in system call 16 1x"
        );
    }
}
