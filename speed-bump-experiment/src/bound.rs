//! Bounds on the unit's own metric, checked while slices run.

use std::{collections::VecDeque, str::FromStr};

use crate::{latencies::LatencyCounts, record::Quantity, subject::Sample, units::Nanos};

/// A bound applies to the last 100 units if these took less than [`SPAN`].
const UNITS: f64 = 100.0;
/// Otherwise a bound applies to the units of the last stretch of this length, in ns.
const SPAN: u64 = 1_000_000_000;
/// With fewer latencies than this, a bound is not checked.
pub const MIN_LATENCIES: f64 = 5.0;

/// `rate>100`, `latency<20ms`, `p50<10ms`, `p99<50ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    quantity: Quantity,
    /// Whether the value must be below the bound; otherwise above it.
    below: bool,
    /// The bound, in units per second or ns.
    bound: f64,
}

impl FromStr for Bound {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let at = text.find(['<', '>']).ok_or(())?;
        let (name, rest) = text.split_at_checked(at).ok_or(())?;
        let (below, bound) = (rest.starts_with('<'), rest.get(1..).ok_or(())?.trim());
        let quantity = match name.trim() {
            "rate" => Quantity::Rate,
            "latency" => Quantity::Latency,
            "p50" => Quantity::P50,
            "p99" => Quantity::P99,
            _ => return Err(()),
        };
        let bound = if quantity == Quantity::Rate {
            bound.strip_suffix("/s").unwrap_or(bound).trim_end().parse::<f64>().map_err(|_| ())?
        } else {
            // A time without a unit is ambiguous.
            let time = Some(bound).filter(|text| text.ends_with('s')).ok_or(())?;
            time.parse::<Nanos>().map_err(|_| ())?.0 as f64
        };
        (bound.is_finite() && bound >= 0.0).then_some(Self { quantity, below, bound }).ok_or(())
    }
}

impl Bound {
    /// The quantity that it bounds.
    pub fn quantity(&self) -> Quantity {
        self.quantity
    }

    fn shown(&self, value: f64) -> String {
        if self.quantity == Quantity::Rate {
            format!("{value:.1}/s")
        } else {
            Nanos(value.max(0.0) as u64).to_string()
        }
    }
}

/// The latest samples.
#[derive(Debug, Default)]
pub struct Window {
    seen: VecDeque<Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    at: Nanos,
    units: f64,
    latency: Option<f64>,
    latencies: Option<LatencyCounts>,
}

impl Window {
    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        let Sample { at, units, latency, latencies, .. } = sample;
        if self.seen.back().is_some_and(|last| last.at >= *at) {
            return;
        }
        self.seen.push_back(Seen { at: *at, units: *units, latency: *latency, latencies: latencies.clone() });
        // Keep the last sample that is a second old.
        while self.seen.get(1).is_some_and(|second| at.0 - second.at.0 >= SPAN) {
            self.seen.pop_front();
        }
    }

    /// Why a bound does not hold now, if one does not.
    pub fn broken(&self, bounds: &[Bound]) -> Option<String> {
        bounds.iter().find_map(|bound| {
            let value = self.value(bound.quantity)?;
            let holds = if bound.below { value < bound.bound } else { value > bound.bound };
            let (name, sign) = (bound.quantity.name(), if bound.below { '<' } else { '>' });
            let (value, wanted) = (bound.shown(value), bound.shown(bound.bound));
            (!holds).then(|| format!("{name} is {value}, and must be {sign} {wanted}"))
        })
    }

    fn value(&self, quantity: Quantity) -> Option<f64> {
        let now = self.seen.back()?;
        let is_enough = |then: &&Seen| now.units - then.units >= UNITS || now.at.0 - then.at.0 >= SPAN;
        let enough = self.seen.iter().rev().find(is_enough);
        if quantity == Quantity::Rate {
            let then = enough?;
            return Some((now.units - then.units) * 1e9 / (now.at.0 - then.at.0) as f64);
        }
        let then = enough.or_else(|| self.seen.front())?;
        let units = now.units - then.units;
        if units < MIN_LATENCIES {
            return None;
        }
        match quantity {
            Quantity::Latency => now.latency.zip(then.latency).map(|(now, then)| (now - then) / units),
            Quantity::P50 | Quantity::P99 => {
                let between = now.latencies.as_ref()?.since(then.latencies.as_ref()?);
                between.quantiles()?.get(quantity)
            }
            Quantity::Rate | Quantity::Mean => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use speed_bump_abi::Latencies;

    use super::*;

    fn bound(text: &str) -> Bound {
        text.parse().unwrap()
    }

    /// A service that is sampled every 100 ms: units in that time, and the latency of each in ms.
    fn window(samples: &[(u64, u64)]) -> Window {
        let (mut window, mut sample) = (Window::default(), Sample::default());
        let mut counts = Latencies::default();
        sample.latency = Some(0.0);
        sample.latencies = Some(LatencyCounts::new(&counts));
        window.add(&sample);
        for (units, ms) in samples {
            let ns = ms * 1_000_000;
            counts.buckets[Latencies::bucket(ns)] += units;
            sample.at = sample.at + Nanos(100_000_000);
            sample.units += *units as f64;
            sample.latency = sample.latency.map(|sum| sum + (units * ns) as f64);
            sample.latencies = Some(LatencyCounts::new(&counts));
            window.add(&sample);
        }
        window
    }

    #[test]
    fn bounds_have_units() {
        assert_eq!(bound("p99<50ms"), Bound { quantity: Quantity::P99, below: true, bound: 5e7 });
        assert_eq!(bound("rate > 10/s"), Bound { quantity: Quantity::Rate, below: false, bound: 10.0 });
        for text in ["", "p99", "p99<50", "p98<50ms", "rate>", "rate>x", "latency<-5ms", "rate>nan", "<5ms"] {
            assert!(text.parse::<Bound>().is_err(), "{text}");
        }
    }

    #[test]
    fn slow_requests_break_a_bound_on_p99() {
        let usual = [(15, 7); 20];
        assert_eq!(window(&usual).broken(&[bound("p99<20ms")]), None);
        let slow = [&usual[..], &[(5, 40)]].concat();
        let why = window(&slow).broken(&[bound("rate>1"), bound("p99<20ms")]).unwrap();
        assert!(why.starts_with("p99 is 4") && why.ends_with("and must be < 20ms"), "{why}");
        // Half of them are as fast as before.
        assert_eq!(window(&slow).broken(&[bound("p50<20ms")]), None);
    }

    #[test]
    fn means_and_rates_are_over_the_last_second() {
        let stalls = [&[(15, 7); 20][..], &[(0, 0); 10]].concat();
        let why = window(&stalls).broken(&[bound("latency<1ms"), bound("rate>100")]).unwrap();
        assert_eq!(why, "rate is 0.0/s, and must be > 100.0/s");
        let why = window(&[(15, 7); 20]).broken(&[bound("latency<1ms")]).unwrap();
        assert_eq!(why, "latency is 7ms, and must be < 1ms");
    }

    #[test]
    fn too_few_units_break_no_bound() {
        assert_eq!(window(&[(4, 70)]).broken(&[bound("p99<20ms"), bound("rate>100")]), None);
        assert_eq!(Window::default().broken(&[bound("rate>100")]), None);
    }
}
