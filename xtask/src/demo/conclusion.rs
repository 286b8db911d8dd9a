//! Draws conclusions only from what the demo measured: how much of the time that was added in a function
//! requests waited for, how certain that is, and what it means for the function.

use super::{Function, load::Throughput};

/// If at least this share of a function's time shows, requests wait for it.
const SHOWS: f64 = 0.5;
/// If less than this share shows, the function is hidden.
const HIDDEN: f64 = 0.2;
/// Half the width of an interval, in standard errors.
const ERRORS: f64 = 2.5;

/// The share of the time added in a function that requests waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Waited {
    share: f64,
    low: f64,
    high: f64,
}

impl Waited {
    /// Compares the throughput with `added_ms` more time in each request with the throughputs without it. The
    /// differences between the latter show how much the machine changes its pace by itself.
    pub(super) fn new(added_ms: f64, delayed: &Throughput, without: &[&Throughput]) -> Self {
        let times = || without.iter().map(|of| of.milliseconds_each());
        let usual = times().sum::<f64>() / without.len().max(1) as f64;
        let longest = times().fold(f64::NEG_INFINITY, f64::max);
        let shortest = times().fold(f64::INFINITY, f64::min);
        let error = without.iter().map(|of| of.error_ms()).fold(delayed.error_ms(), f64::max);
        let unsure = (ERRORS * 2.0_f64.sqrt() * error + longest - shortest) / added_ms;
        let share = (delayed.milliseconds_each() - usual) / added_ms;
        Self { share, low: share - unsure, high: share + unsure }
    }

    /// `-3 % (-9 to 3)`.
    pub(super) fn in_per_cent(self) -> String {
        let Self { share, low, high } = self;
        format!("{:.0} % ({:.0} to {:.0})", share * 100.0, low * 100.0, high * 100.0)
    }

    /// What it means for a function; NaN gives no conclusion.
    pub(super) fn says(self, function: Function) -> String {
        let Function { name, calls, .. } = function;
        if self.low > SHOWS {
            format!(
                "Requests wait for {name}(): a microsecond saved in a call of it is saved {calls} times in \
                 each request."
            )
        } else if self.high < HIDDEN {
            format!(
                "Making {name}() faster would gain next to nothing: while it runs, requests wait for others."
            )
        } else {
            format!(
                "What making {name}() faster would gain cannot be told: the machine changed its pace too \
                 much meanwhile. Try again when it is less busy, or measure for longer (--seconds)."
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of this duration, with this much noise from line to line of the client.
    fn throughput(each_ms: f64, noise_ms: f64) -> Throughput {
        let medians = (0..16).map(|line| each_ms + noise_ms * f64::from(line % 5 - 2));
        Throughput::of_medians(medians.collect())
    }

    fn said(delayed_ms: f64, noise_ms: f64, without_ms: [f64; 3]) -> String {
        let without = without_ms.map(|each| throughput(each, noise_ms));
        let waited = Waited::new(8.0, &throughput(delayed_ms, noise_ms), &without.each_ref());
        waited.says(Function { name: "score", calls: 8 })
    }

    #[test]
    fn what_is_said_is_what_was_measured() {
        for (delayed, words) in [
            (21.0, "would gain next to nothing"),
            (20.5, "would gain next to nothing"),
            (29.0, "saved 8 times in each request"),
            (27.0, "saved 8 times in each request"),
            // This was once called hidden, though 26 % of its time showed.
            (23.1, "cannot be told"),
        ] {
            assert!(said(delayed, 0.05, [21.0; 3]).contains(words), "{delayed}");
        }
    }

    #[test]
    fn on_a_busy_machine_it_cannot_be_told() {
        // From line to line, or from one measurement to the next.
        for (noise, without) in [(3.0, [21.0; 3]), (0.05, [21.0, 24.0, 26.0])] {
            for delayed in [21.0, 23.0, 29.0] {
                let said = said(delayed, noise, without);
                assert!(said.contains("cannot be told"), "{delayed} {noise} {without:?}: {said}");
            }
        }
        assert!(said(f64::NAN, 0.0, [21.0; 3]).contains("cannot be told"));
        assert!(said(21.0, 0.0, [f64::NAN; 3]).contains("cannot be told"));
    }
}
