//! Services whose session leaves delays out, because threads are already delayed as much as they may be.

use super::*;
use crate::subject::Sample;

/// If delays are cut, every other call is delayed: half of the dose for each, on average.
struct Bounded {
    service: Simulated,
    is_cut: bool,
    dosed: Vec<u32>,
    /// Calls of each candidate before the doses changed last, and how many of these calls were left out.
    before: Vec<(u64, f64)>,
    /// The bounds that were set: the share, and the window in ns.
    bounds: Vec<(f64, u64)>,
}

impl Bounded {
    fn new(service: Simulated, is_cut: bool) -> Self {
        Self { service, is_cut, dosed: Vec::new(), before: Vec::new(), bounds: Vec::new() }
    }

    fn left_out(&self, candidate: usize, calls: u64) -> f64 {
        let (before, left_out) = self.before.get(candidate).copied().unwrap_or_default();
        let is_dosed = self.is_cut && self.dosed.contains(&(candidate as u32));
        left_out + if is_dosed { (calls - before) as f64 / 2.0 } else { 0.0 }
    }
}

impl Subject for Bounded {
    fn set(&mut self, doses: &[(u32, Nanos)]) -> Result<Nanos, SubjectError> {
        let counts = self.service.sample()?.counts;
        let calls = counts.iter().enumerate();
        self.before = calls.map(|(of, counts)| (counts.calls, self.left_out(of, counts.calls))).collect();
        self.dosed = doses.iter().map(|(of, _)| *of).collect();
        let of_all = if self.is_cut { 2 } else { 1 };
        let doses: Vec<_> = doses.iter().map(|(of, dose)| (*of, Nanos(dose.0 / of_all))).collect();
        self.service.set(&doses)
    }

    fn bound(&mut self, share: f64, window: Nanos) -> Result<(), SubjectError> {
        self.bounds.push((share, window.0));
        Ok(())
    }

    fn sample(&mut self) -> Result<Sample, SubjectError> {
        let mut sample = self.service.sample()?;
        for (of, counts) in sample.counts.iter_mut().enumerate() {
            counts.bounded = self.left_out(of, counts.calls) as u64;
        }
        Ok(sample)
    }

    fn wait_until(&mut self, time: Nanos) -> Result<(), SubjectError> {
        self.service.wait_until(time)
    }

    fn now(&self) -> Nanos {
        self.service.now()
    }
}

/// Otherwise the analysis would take half of each effect for hidden.
#[test]
fn what_the_bound_left_out_hides_no_effect_and_is_told() {
    let functions = [("matters", function(1.0, 0.0), 50), ("hidden", function(0.0, 0.0), 50)];
    let of = functions.iter().map(|(_, function, _)| *function).collect();
    let service = Simulated::new(MS, of, Noise::White(0.03), 7);
    let mut bounded = Bounded::new(service, true);
    let measured = Measured { seed: 7, ..testing::measured(&functions) };
    let measured = run(&mut bounded, &options(), measured, &mut |_, _| {});
    let found = findings(&measured);
    let factor = factor(&found, "matters");
    assert!(holds(factor, 1.0), "{factor:?}");
    let told = &found.validity.problems;
    let is_told = told.iter().any(|problem| problem.text.starts_with("50 % of the delays were left out"));
    assert!(is_told && found.validity.holds, "{told:?}");
    let as_recorded: Measured = serde_json::from_str(&serde_json::to_string(&measured).unwrap()).unwrap();
    assert_eq!(findings(&as_recorded), found);
}

#[test]
fn the_bound_rises_only_for_what_is_known_to_be_hidden() {
    let bounds = |sensitivity: f64, is_cut: bool| {
        let functions = [("f", function(sensitivity, 0.0), 50)];
        let service = Simulated::new(MS, vec![functions[0].1], Noise::White(0.03), 1);
        let mut bounded = Bounded::new(service, is_cut);
        let measured = Measured { seed: 1, ..testing::measured(&functions) };
        run(&mut bounded, &options(), measured, &mut |_, _| {});
        bounded.bounds
    };
    let usual = (0.4, 100_000_000);
    let stays = |bounds: &[(f64, u64)]| bounds.len() > 1 && bounds.iter().all(|bound| *bound == usual);
    let of_matters = bounds(0.5, false);
    assert!(stays(&of_matters), "{of_matters:?}");
    let of_hidden = bounds(0.0, false);
    assert_eq!(of_hidden.first(), Some(&usual));
    assert!(of_hidden.last().is_some_and(|(share, _)| *share > 0.4), "{of_hidden:?}");
    // What was left out is not hidden.
    let of_cut = bounds(0.0, true);
    assert!(stays(&of_cut), "{of_cut:?}");
}
