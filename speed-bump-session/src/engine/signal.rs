//! The engine `signal`: chooses a signal for each delay.
//!
//! Each delay of a session has a signal. When the helper in the process gets the signal, the helper spins for
//! that delay. The BPF program decides when to send the signal.

mod under_way;

use std::{
    collections::BTreeSet,
    io::{self, Read as _},
    iter,
};

use rustix::fs::OFlags;

use speed_bump_abi::control_block::{HARMLESS_SIGNAL, SIGNALS};

pub use under_way::UnderWay;
pub(crate) use under_way::wait_until_clear;

use super::bpf::Form;
use crate::{
    process::{Process, SignalMasks},
    units::Nanos,
};

/// If the helper is loaded, it spins delays longer than this: a spin in the kernel would hold up all other
/// work on the processor.
const AUTOMATIC_ABOVE: Nanos = Nanos(1_000_000);

/// Above this delay the helper spins, if it is loaded: 1 ms, or the longest delay that the programs can spin.
pub fn automatic_above(form: Form) -> Nanos {
    form.longest_spin().unwrap_or(AUTOMATIC_ABOVE)
}

/// The real-time signal that we take first, from the middle of the range: programs take signals from the two
/// ends.
const PREFERRED: u32 = 50;
/// The first real-time signal that we take. glibc and musl reserve lower signals for themselves, or hand them
/// out first (pthreads(7)).
const FIRST: u32 = 36;
/// The last real-time signal on all architectures that the tool runs on.
const LAST: u32 = 64;

/// A signal and its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelaySignal {
    /// The number of the signal in the target process, as in signal(7).
    pub number: u32,
    /// The whole delay.
    pub delay: Nanos,
}

impl DelaySignal {
    /// Whether the signal ends a process that removes its handler while the signal is in flight.
    pub fn is_deadly(self) -> bool {
        self.number != HARMLESS_SIGNAL
    }
}

/// Why we could choose no signals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// There are more different delays than signals in a session.
    #[error(
        "{delays} different delays need a signal each, and a session has {SIGNALS} at most: use fewer \
         different delays, or `--engine bpf`"
    )]
    TooMany {
        /// The number of different delays.
        delays: usize,
    },
    /// The processes use too many signals themselves.
    #[error(
        "{delays} different delays need a signal each, and the processes leave {left} of SIGURG and the \
         real-time signals {FIRST} to {LAST} unused: use fewer different delays, or `--engine bpf`"
    )]
    Used {
        /// The number of different delays.
        delays: usize,
        /// The number of signals that are left.
        left: usize,
    },
}

/// Chooses SIGURG for the longest delay, unless the processes use SIGURG. This signal is safe whatever the
/// processes do. Bit N of `used` is signal N + 1.
pub fn choose_harmless(delays: &BTreeSet<Nanos>, used: u64) -> Option<DelaySignal> {
    let is_free = is_free(HARMLESS_SIGNAL, used);
    delays.last().filter(|_| is_free).map(|delay| DelaySignal { number: HARMLESS_SIGNAL, delay: *delay })
}

/// Chooses a signal for each delay among the signals that no process uses: first SIGURG, like
/// [`choose_harmless`], then real-time signals.
///
/// # Errors
/// There are too few signals.
pub fn choose(delays: &BTreeSet<Nanos>, used: u64) -> Result<Vec<DelaySignal>, SignalError> {
    if delays.len() > SIGNALS {
        return Err(SignalError::TooMany { delays: delays.len() });
    }
    let candidates = iter::once(HARMLESS_SIGNAL).chain(PREFERRED..=LAST).chain((FIRST..PREFERRED).rev());
    let free: Vec<u32> = candidates.filter(|signal| is_free(*signal, used)).collect();
    if free.len() < delays.len() {
        return Err(SignalError::Used { delays: delays.len(), left: free.len() });
    }
    let longest_first = delays.iter().rev();
    Ok(free
        .into_iter()
        .zip(longest_first)
        .map(|(number, delay)| DelaySignal { number, delay: *delay })
        .collect())
}

/// Gives a session's signals to other delays, the longest first. A signal keeps its delay if the session
/// still wants this delay. If there are too few signals, the shortest delays get none.
pub fn reassign(assigned: &[DelaySignal], delays: &BTreeSet<Nanos>) -> Vec<DelaySignal> {
    let is_kept = |delay: &Nanos| assigned.iter().any(|signal| signal.delay == *delay);
    let mut new = delays.iter().rev().filter(|delay| !is_kept(delay));
    let give = |signal: &DelaySignal| {
        let delay = if delays.contains(&signal.delay) { None } else { new.next() };
        DelaySignal { delay: delay.copied().unwrap_or(signal.delay), ..*signal }
    };
    assigned.iter().map(give).collect()
}

fn is_free(signal: u32, used: u64) -> bool {
    used & (1 << (signal - 1)) == 0
}

/// The signal masks of a process, combined over all of its threads.
///
/// # Errors
/// The process has ended.
pub fn masks(process: &Process) -> io::Result<SignalMasks> {
    let mut all = process.status().map_err(io::Error::other)?.signals;
    for thread in process.thread_ids().map_err(io::Error::other)? {
        let mut status = Vec::new();
        let file = process.open_entry(&format!("task/{thread}/status"), OFlags::RDONLY);
        // We leave out a thread that has ended meanwhile.
        if file.is_ok_and(|mut file| file.read_to_end(&mut status).is_ok())
            && let Some(masks) = SignalMasks::parse(&status)
        {
            all = all.union(masks);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn delays(count: u64) -> BTreeSet<Nanos> {
        (1..=count).map(|number| Nanos(number * 1_000_000)).collect()
    }

    #[test]
    fn each_delay_has_a_signal_that_no_process_uses() {
        let used = 1 << (HARMLESS_SIGNAL - 1) | 1 << (PREFERRED - 1) | 1 << (PREFERRED + 1);
        let chosen = choose(&delays(SIGNALS as u64), used).unwrap();
        let numbers: BTreeSet<u32> = chosen.iter().map(|signal| signal.number).collect();
        assert_eq!(numbers.len(), SIGNALS);
        assert!(!numbers.contains(&PREFERRED) && !numbers.contains(&(PREFERRED + 2)));
        assert!(numbers.iter().all(|number| (FIRST..=LAST).contains(number)));
        assert!(chosen.iter().all(|signal| signal.is_deadly()));
        assert_eq!(chosen.iter().map(|signal| signal.delay).collect::<BTreeSet<_>>(), delays(SIGNALS as u64));
        assert!(choose(&delays(0), u64::MAX).unwrap().is_empty());
    }

    #[test]
    fn a_signal_that_cannot_kill_comes_first() {
        assert_eq!(HARMLESS_SIGNAL, libc::SIGURG.cast_unsigned());
        let chosen = choose(&delays(3), 0).unwrap();
        assert_eq!(chosen.iter().map(|signal| signal.is_deadly()).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(chosen[1].number, PREFERRED);
        assert_eq!(choose_harmless(&delays(3), 0), Some(chosen[0]));
        assert_eq!(chosen[0].delay, Nanos(3_000_000));
        assert_eq!(choose_harmless(&delays(3), 1 << (HARMLESS_SIGNAL - 1)), None);
        assert_eq!(choose_harmless(&delays(0), 0), None);
    }

    #[test]
    fn signals_go_to_other_delays_and_stay_where_they_are_wanted() {
        let assigned = choose(&delays(3), 0).unwrap();
        let delays = |signals: &[DelaySignal]| {
            signals.iter().map(|signal| signal.delay.0 / 1_000_000).collect::<Vec<_>>()
        };
        let wanted = |delays: &[u64]| delays.iter().map(|delay| Nanos(delay * 1_000_000)).collect();
        for (wants, has) in [
            (&[1, 2, 3][..], [3, 2, 1]),
            (&[], [3, 2, 1]),
            (&[7], [7, 2, 1]),
            (&[2, 7], [7, 2, 1]),
            (&[2, 5, 7, 9], [9, 2, 7]),
            (&[1, 2, 3, 9], [3, 2, 1]),
        ] {
            let reassigned = reassign(&assigned, &wanted(wants));
            assert_eq!(delays(&reassigned), has, "{wants:?}");
            assert!(reassigned.iter().zip(&assigned).all(|(after, before)| after.number == before.number));
        }
        assert_eq!(reassign(&[], &wanted(&[1])), []);
    }

    #[test]
    fn too_few_signals_are_an_error() {
        assert_eq!(choose(&delays(17), 0), Err(SignalError::TooMany { delays: 17 }));
        assert_eq!(choose(&delays(1), u64::MAX), Err(SignalError::Used { delays: 1, left: 0 }));
    }

    #[test]
    fn a_process_says_what_it_does_with_its_signals() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "trap '' URG; echo; read x"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let process = Process::open(crate::units::Pid::new(child.id().cast_signed()).unwrap()).unwrap();
        let ignored = masks(&process).unwrap().ignored;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ignored & (1 << (libc::SIGURG - 1)) != 0, "{ignored:x}");
    }
}
