//! Distinguishes time in which a thread spins from time in which it is kept from running.
//!
//! A slower function would have as much to do after it was preempted as before. So what a spin counts is the
//! thread's own time. Whoever spins reads a clock again and again; two readings that lie far apart have
//! something else between them: another thread, or another virtual machine.
//!
//! An interrupt is short, and counts as the thread's own time: otherwise delays of 1 ms, in every fourth of
//! which the timer ticks, would take 0.1 to 0.4 % longer in the mean on a virtual machine, where a tick takes
//! 5 us on one host and 13 to 20 us on another.

/// Judges the steps from one reading of the clock to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gaps {
    /// The shortest recent step, in units of the clock.
    usual: u64,
}

impl Gaps {
    /// A step is a gap if it takes longer than this many usual steps plus [`Gaps::ALLOWANCE_NS`].
    const USUAL_STEPS: u64 = 8;
    /// The longest interrupt that a step may contain, in ns. An interrupt takes 1 to 25 us.
    pub const ALLOWANCE_NS: u64 = 25_000;
    /// The first step is no gap: we do not know yet how long reading this clock takes.
    pub const NEW: Self = Self { usual: u64::MAX / Self::USUAL_STEPS / 2 };

    /// Whether the thread did something else in this step. `allowance` is [`Gaps::ALLOWANCE_NS`] in units of
    /// the clock.
    #[inline(always)]
    pub const fn is_gap(&mut self, step: u64, allowance: u64) -> bool {
        if step / Self::USUAL_STEPS > self.usual + allowance / Self::USUAL_STEPS {
            // Otherwise, if reading the clock begins to take longer, each step would be a gap, and the spin
            // would never end.
            self.usual = self.usual << 1 | 1;
            return true;
        }
        if step < self.usual {
            self.usual = step;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(steps: impl IntoIterator<Item = u64>) -> impl Iterator<Item = u64> {
        let mut gaps = Gaps::NEW;
        steps.into_iter().filter(move |step| gaps.is_gap(*step, Gaps::ALLOWANCE_NS))
    }

    #[test]
    fn what_takes_far_longer_than_usual_is_a_gap() {
        assert!(gaps([25, 30, 25, 40_000, 25, 26, 4_000_000, 24]).eq([40_000, 4_000_000]));
        assert!(gaps([300, 25, 40, 5_600, 25, 19_000, 25]).eq([]), "interrupts are none");
    }

    #[test]
    fn a_slow_clock_has_no_gaps_by_itself() {
        assert!(gaps([2_000, 2_100, 9_000, 2_000, 60_000]).eq([60_000]));
        assert!(gaps([2_000, 25_000, 2_000]).eq([]));
    }

    #[test]
    fn a_clock_that_becomes_slow_ends_nobodys_spin() {
        let steps = [25, 25].into_iter().chain([1_000_000; 100]);
        assert!(gaps(steps).count() < 20);
        assert!(gaps([u64::MAX; 200]).count() < 64);
    }
}
