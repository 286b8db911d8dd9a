//! How busy the machine is while an experiment goes on.

use std::fs;

/// Time that the machine's processors have spent since it booted, in ticks, from /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    busy: u64,
    all: u64,
}

impl ProcessorTime {
    /// Until now; `None` where the kernel does not say.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are within user (proc(5)).
        let all = ticks.get(..8)?.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
        let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
        Some(Self { busy: all.saturating_sub(idle), all })
    }

    /// The share of the time since then that was spent on work, on all processors.
    pub fn busy_since(&self, earlier: &Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(earlier.busy) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_waiting() {
        let of = |text: &str| ProcessorTime::parse(text).unwrap();
        let earlier = of("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\n");
        let later = of("cpu  150 10 60 820 60 5 5 10 0 0\n");
        assert_eq!(later.busy_since(&earlier), Some(0.75));
        assert_eq!(earlier.busy_since(&earlier), None);
        for text in ["", "cpu  1 2 3", "intr 1", "cpu  a b c d e f g h"] {
            assert_eq!(ProcessorTime::parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_says() {
        assert!(ProcessorTime::now().unwrap().all > 0);
    }
}
