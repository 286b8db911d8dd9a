//! How the pace of a simulated machine changes over time.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use super::{exponential, normal};

/// The time between two values of the pace, in seconds.
const GRID: f64 = 0.005;

/// How the pace of the machine changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Never.
    Steady,
    /// Units take 1.45 times as long for some 4 s at a time.
    TwoSpeeds,
    /// As [`Pace::TwoSpeeds`], and the pace also changes by a tenth within half a second.
    Flicker,
    /// Units take twice as long for 50 to 200 ms, in 5 % of the time.
    Bursts,
    /// The pace changes by 5 % within 3 s.
    Wander,
    /// Slower and slower.
    Drift,
}

/// How long the work of one second takes, at each time.
#[derive(Debug)]
pub(super) struct Paces {
    /// Summed up to each point of the grid, in seconds.
    sums: Vec<f64>,
}

impl Paces {
    /// Paces for this many seconds; the last one goes on.
    pub(super) fn new(pace: Pace, seconds: f64, random: &mut Pcg64Mcg) -> Self {
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for pace in paces(pace, (seconds / GRID) as usize + 400, random) {
            sum += pace * GRID;
            sums.push(sum);
        }
        Self { sums }
    }

    /// The mean pace from one time to another.
    pub(super) fn mean(&self, from: f64, to: f64) -> f64 {
        (self.summed(to) - self.summed(from)) / (to - from)
    }

    fn summed(&self, time: f64) -> f64 {
        let at = time / GRID;
        let index = (at as usize).min(self.sums.len().saturating_sub(2));
        let part = at - index as f64;
        self.sums[index] + part * (self.sums[index + 1] - self.sums[index])
    }
}

fn paces(pace: Pace, points: usize, random: &mut Pcg64Mcg) -> Vec<f64> {
    let two_speeds = |high: f64, lasts: f64, random: &mut Pcg64Mcg| {
        let mut is_high = random.random_bool(0.5);
        let mut left = exponential(lasts, random);
        let mut next = || {
            left -= GRID;
            if left < 0.0 {
                is_high = !is_high;
                left = exponential(lasts, random);
            }
            if is_high { high } else { 1.0 }
        };
        (0..points).map(|_| next()).collect::<Vec<f64>>()
    };
    let wander = |deviation: f64, lasts: f64, random: &mut Pcg64Mcg| {
        let kept = (-GRID / lasts).exp();
        let mut state = deviation * normal(random);
        let mut next = || {
            state = kept * state + (1.0 - kept * kept).sqrt() * deviation * normal(random);
            state.exp()
        };
        (0..points).map(|_| next()).collect::<Vec<f64>>()
    };
    match pace {
        Pace::Steady => vec![1.0; points],
        Pace::TwoSpeeds => two_speeds(1.45, 4.0, random),
        Pace::Flicker => {
            let fast = wander(0.10, 0.5, random);
            let slow = two_speeds(1.45, 5.0, random);
            fast.iter().zip(&slow).map(|(one, other)| one * other).collect()
        }
        Pace::Wander => wander(0.05, 3.0, random),
        Pace::Drift => {
            let at = |point: usize| {
                let time = point as f64 * GRID;
                1.0 + 0.2 * time / 60.0 / (1.0 + time / 240.0)
            };
            (0..points).map(at).collect()
        }
        Pace::Bursts => {
            let mut all = vec![1.0; points];
            let mut at = 0.0;
            let end = points as f64 * GRID;
            loop {
                at += exponential(0.125 / 0.05, random);
                let lasts: f64 = 0.05 + 0.15 * random.random::<f64>();
                if at >= end {
                    break all;
                }
                let (first, last) = ((at / GRID) as usize, ((at + lasts) / GRID) as usize);
                all.iter_mut().take(last + 1).skip(first).for_each(|pace| *pace *= 2.0);
            }
        }
    }
}
