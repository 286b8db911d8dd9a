//! What the machine's processors have done since boot, from /proc/stat (proc_stat(5)), and how long tasks
//! have waited for them, from /proc/pressure/cpu (Documentation/accounting/psi.rst).

use std::{fs::File, io::Read as _};

use crate::units::Nanos;

/// The length of a kernel tick in these files. A tick has the same length on all 64-bit architectures
/// (`USER_HZ`).
const TICK: Nanos = Nanos(10_000_000);
/// The number of bytes that we read: enough for the first line of each file.
const BYTES: u64 = 1_024;

/// Times, summed over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// How long the processors worked.
    pub busy: Nanos,
    /// How long the hypervisor gave the processors to other machines.
    pub stolen: Nanos,
    /// How long at least one task waited for a processor. The number of these tasks does not matter.
    pub lacking: Nanos,
}

impl ProcessorTimes {
    /// The present times; 0 for a value that this kernel does not give.
    pub fn read() -> Self {
        let text = |path: &str| {
            let mut bytes = Vec::new();
            let read = File::open(path).and_then(|file| file.take(BYTES).read_to_end(&mut bytes));
            read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        Self::parse(&text("/proc/stat"), &text("/proc/pressure/cpu"))
    }

    fn parse(stat: &str, pressure: &str) -> Self {
        let all = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = all.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
        let tick = |position: usize| ticks.get(position).copied().unwrap_or(0);
        let time = |ticks: u64| Nanos(ticks.saturating_mul(TICK.0));
        // The fields are: user, nice, system, idle, iowait, irq, softirq, steal.
        let busy = [0, 1, 2, 5, 6].into_iter().fold(0_u64, |sum, at| sum.saturating_add(tick(at)));
        let some = pressure.lines().find(|line| line.starts_with("some ")).unwrap_or_default();
        let us = some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok());
        let lacking = Nanos(us.unwrap_or(0_u64).saturating_mul(1_000));
        Self { busy: time(busy), stolen: time(tick(7)), lacking }
    }

    /// The difference from an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        let since = |now: Nanos, then: Nanos| Nanos(now.0.saturating_sub(then.0));
        Self {
            busy: since(self.busy, earlier.busy),
            stolen: since(self.stolen, earlier.stolen),
            lacking: since(self.lacking, earlier.lacking),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_all_processors() {
        let stat = "cpu  1 2 3 400 50 6 7 8 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n";
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=99\n";
        let times = ProcessorTimes::parse(stat, pressure);
        let expected =
            ProcessorTimes { busy: Nanos(190_000_000), stolen: Nanos(80_000_000), lacking: Nanos(12_000) };
        assert_eq!(times, expected);
        let earlier = ProcessorTimes { busy: Nanos(90_000_000), ..ProcessorTimes::default() };
        assert_eq!(times.since(earlier).busy, Nanos(100_000_000));
        assert_eq!(earlier.since(times), ProcessorTimes::default());
    }

    #[test]
    fn what_is_not_told_is_zero() {
        for (stat, pressure) in [("", ""), ("cpu x", "some total=x"), ("cpu0 1 2 3", "full total=1")] {
            assert_eq!(ProcessorTimes::parse(stat, pressure), ProcessorTimes::default(), "{stat}");
        }
        assert!(ProcessorTimes::read().busy > Nanos(0));
    }
}
