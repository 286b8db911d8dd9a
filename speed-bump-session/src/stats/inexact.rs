//! Reports where delays were longer than requested on average, and why. The result depends only on the counts
//! and on what the processes waited for.

use std::fmt;

use serde::{Serialize, Serializer};
use speed_bump_abi::Histogram;

use super::median::{interrupted, interrupted_part};
use crate::{probe::cost::Floors, units::Nanos};

/// From this multiple of the request on, we report the mean delay. The multiple is in thousandths: a tenth
/// more.
const TOLD_FROM: u64 = 1_100;
/// Waiting explains excess delays if the waiting takes at least this fraction (one fourth) of the excess
/// time. Not all waiting is in delays, and some threads that waited have ended.
const EXPLAINS: u64 = 4;

/// The mean delay divided by the mean request, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Times(pub u64);

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1_000.0)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0 as f64 / 1_000.0)
    }
}

/// Why delays were too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The request is shorter than the floor: the time that a delayed call takes at the probe site with warm
    /// caches.
    Floor,
    /// The request is shorter than the floor with cold caches, which calls have after a sleep, or after much
    /// other code.
    ColdFloor,
    /// The threads waited for a processor.
    Preemption,
    /// The hypervisor gave the machine's processors to other machines.
    Steal,
    /// The control group had used up its share of processor time.
    CpuQuota,
    /// The threads waited for Python's lock, which they release during long delays.
    InterpreterLock,
    /// None of these causes, or the session has not ended yet.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Floor => "floor: at the probe site, a delayed call takes more than was asked for",
            Self::ColdFloor => "cold floor: a call after a sleep takes more than was asked for",
            Self::Preemption => "preemption: its threads waited for a processor that others had",
            Self::Steal => "steal: the hypervisor gave the processors to other machines",
            Self::CpuQuota => "CPU quota: the control group had used up its share of processor time",
            Self::InterpreterLock => "interpreter lock: another thread had not given it back in time",
            Self::Unknown => "the cause is not known",
        })
    }
}

impl Cause {
    /// What the user can do, as a continuation of the cause. Empty if there is nothing.
    pub fn way_out(self) -> &'static str {
        match self {
            Self::Floor | Self::ColdFloor => {
                ". Ask for more, or for less on average with frequency=N; `list` shows the floors"
            }
            Self::Preemption => {
                ". The median is what an undisturbed call lost. For exact means give it more processors, or \
                 end what else runs there"
            }
            Self::Steal => {
                ". The median is what an undisturbed call lost. For exact means take a machine without \
                 neighbours"
            }
            Self::CpuQuota => {
                ". The median is what an undisturbed call lost. For exact means raise the group's cpu.max: \
                 spins count as its work"
            }
            Self::InterpreterLock => ". A function that is itself slower gives the lock up in the same way",
            Self::Unknown => "",
        }
    }
}

/// A mean delay that exceeds the mean request by a tenth or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Inexact {
    /// The mean delay divided by the mean request.
    pub over: Times,
    /// Why the mean delay is longer.
    pub cause: Cause,
}

/// Delays, for comparison with their requests.
#[derive(Clone, Copy, Debug)]
pub struct Delays<'a> {
    /// The number of delays.
    pub delayed: u64,
    /// The sum of the requested delays.
    pub requested: Nanos,
    /// The sum of the delivered delays.
    pub delivered: Nanos,
    /// The histogram of the delays, if known.
    pub histogram: Option<&'a Histogram>,
    /// The smallest possible delay.
    pub floors: Floors,
}

/// How long the processes of a session waited during the session, and for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// How long the threads of the processes waited for a processor.
    pub for_processor: Nanos,
    /// How long the machine's processors waited for their hypervisor: only the part that belongs to the
    /// processes.
    pub for_hypervisor: Nanos,
    /// How long the control groups of the processes waited for more processor time.
    pub for_quota: Nanos,
}

/// Describes delays that were too long on average; `None` if they were not. `waited` is what the session
/// waited for, if known. `too_long` is a sum over all delays of the session: by how much they were too long.
pub fn inexact(delays: &Delays<'_>, waited: Option<&Waited>, too_long: Nanos) -> Option<Inexact> {
    let over = delays.delivered.0.saturating_mul(1_000).checked_div(delays.requested.0)?;
    if over < TOLD_FROM {
        return None;
    }
    Some(Inexact { over: Times(over), cause: cause(delays, waited, too_long) })
}

fn cause(delays: &Delays<'_>, waited: Option<&Waited>, too_long: Nanos) -> Cause {
    let request = Nanos(delays.requested.0.checked_div(delays.delayed).unwrap_or_default());
    if request < delays.floors.warm {
        return Cause::Floor;
    }
    let Some(histogram) = delays.histogram else { return Cause::Unknown };
    if interrupted_part(histogram) < 0.5 {
        return if request < delays.floors.cold { Cause::ColdFloor } else { Cause::Unknown };
    }
    let locked_out = histogram.words.get(Histogram::LOCKED_OUT).copied().unwrap_or_default();
    if locked_out > interrupted(histogram) / 2 {
        return Cause::InterpreterLock;
    }
    let Some(waited) = waited else { return Cause::Unknown };
    let explains = |waited: Nanos| waited.0 > 0 && waited.0 >= too_long.0 / EXPLAINS;
    // A group that has used up its processor time also waits for a processor, so we check the group first.
    if explains(waited.for_quota) {
        return Cause::CpuQuota;
    }
    match (explains(waited.for_processor), explains(waited.for_hypervisor)) {
        (true, true) if waited.for_hypervisor > waited.for_processor => Cause::Steal,
        (true, _) => Cause::Preemption,
        (false, true) => Cause::Steal,
        (false, false) => Cause::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::median::tests::histogram_of;

    const FLOORS: Floors = Floors { warm: Nanos(1_000), cold: Nanos(7_000) };

    fn decided(requested: u64, delivered: &[u64], waited: Option<Waited>) -> Option<(u64, Cause)> {
        let histogram = histogram_of(requested, delivered);
        let delays = Delays {
            delayed: delivered.len() as u64,
            requested: Nanos(requested * delivered.len() as u64),
            delivered: Nanos(delivered.iter().sum()),
            histogram: Some(&histogram),
            floors: FLOORS,
        };
        let too_long = Nanos(delays.delivered.0.saturating_sub(delays.requested.0));
        inexact(&delays, waited.as_ref(), too_long).map(|Inexact { over, cause }| (over.0, cause))
    }

    const MS: u64 = 1_000_000;
    /// Three exact delays of 1 ms, and one of 4 ms.
    const INTERRUPTED: [u64; 4] = [MS, MS, MS, 4 * MS];

    fn waited(processor: u64, hypervisor: u64, quota: u64) -> Option<Waited> {
        Some(Waited {
            for_processor: Nanos(processor),
            for_hypervisor: Nanos(hypervisor),
            for_quota: Nanos(quota),
        })
    }

    #[test]
    fn exact_delays_are_not_spoken_of() {
        for delivered in [&[][..], &[MS; 3], &[MS, MS + MS / 6], &[MS / 2]] {
            assert_eq!(decided(MS, delivered, waited(MS, MS, MS)), None, "{delivered:?}");
        }
    }

    #[test]
    fn interrupted_delays_have_the_cause_that_was_waited_for() {
        for (waited, cause) in [
            (None, Cause::Unknown),
            (waited(0, 0, 0), Cause::Unknown),
            (waited(3 * MS, 0, 0), Cause::Preemption),
            (waited(3 * MS, 2 * MS, 0), Cause::Preemption),
            (waited(2 * MS, 3 * MS, 0), Cause::Steal),
            (waited(MS / 2, 3 * MS, 0), Cause::Steal),
            (waited(MS / 2, MS / 2, 0), Cause::Unknown),
            (waited(3 * MS, 0, 3 * MS), Cause::CpuQuota),
            (waited(3 * MS, 0, MS / 2), Cause::Preemption),
        ] {
            assert_eq!(decided(MS, &INTERRUPTED, waited), Some((1_750, cause)), "{waited:?}");
        }
    }

    #[test]
    fn delays_below_a_floor_have_that_for_a_cause() {
        let waited = waited(MS, MS, MS);
        assert_eq!(decided(500, &[1_000; 4], waited), Some((2_000, Cause::Floor)));
        assert_eq!(decided(1_000, &[6_000; 4], waited), Some((6_000, Cause::ColdFloor)));
        // The request is above both floors, and nothing interrupted the delays: the cause is unknown.
        assert_eq!(decided(8_000, &[10_000; 4], waited), Some((1_250, Cause::Unknown)));
        // Something interrupted the delays. This is the cause even if the request is below the cold floor.
        assert_eq!(decided(6_000, &[6_100, 90_000], waited).map(|(_, cause)| cause), Some(Cause::CpuQuota));
    }

    #[test]
    fn a_lock_that_was_waited_for_is_named() {
        let mut histogram = histogram_of(MS, &INTERRUPTED);
        histogram.words[Histogram::LOCKED_OUT] = 1;
        let delays = Delays {
            delayed: 4,
            requested: Nanos(4 * MS),
            delivered: Nanos(7 * MS),
            histogram: Some(&histogram),
            floors: FLOORS,
        };
        let waited = waited(3 * MS, 0, 0);
        let found = inexact(&delays, waited.as_ref(), Nanos(3 * MS));
        assert_eq!(found.map(|found| found.cause), Some(Cause::InterpreterLock));
        let nothing_known = Delays { histogram: None, ..delays };
        let found = inexact(&nothing_known, waited.as_ref(), Nanos(3 * MS));
        assert_eq!(found.map(|found| found.cause), Some(Cause::Unknown));
    }

    #[test]
    fn times_are_numbers_in_json_and_short_in_words() {
        let inexact = Inexact { over: Times(1_364), cause: Cause::CpuQuota };
        let json = serde_json::to_value(inexact).unwrap_or_default();
        assert_eq!(json, serde_json::json!({ "over": 1.364, "cause": "cpu-quota" }));
        assert_eq!(Times(1_364).to_string(), "1.36");
    }
}
