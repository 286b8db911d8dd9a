//! Functions that are asked about by their callers: a helper that one caller uses in the shadow of a device
//! and another one after it has no single answer.
//!
//! Samples show which functions of the service call such a helper. Then we count calls, to find which of
//! these callers make enough calls. All other calls are asked about together.

use std::collections::BTreeMap;

use super::{
    attribution::attributed,
    choose::{Code, is_function},
    sampled::{is_of, lines},
};
use crate::{
    experiment::{live::Counted, record::Origin},
    sampling::profile::{FunctionSeen, Profile},
    targets::TargetKind,
};

/// A function is asked about by its callers from this share of a unit's time on.
const OF_UNIT: f64 = 0.1;
/// Callers count if they make this share of the function's calls, and of its samples.
const OF_CALLS: f64 = 0.1;
/// With fewer samples, or calls counted, there is too little to tell shares by.
const MIN: f64 = 20.0;
/// The most functions and callers: a session has room for 32 callers, and a caller without a qualified name
/// has two patterns.
const MOST_FUNCTIONS: usize = 4;
const MOST_CALLERS: usize = 4;

/// A function that is asked about by its callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ByCaller {
    pub(super) function: FunctionSeen,
    /// The value of `caller=` for each caller.
    callers: Vec<String>,
}

impl ByCaller {
    /// Lines of a targets file: for each caller, and for all other calls.
    pub(super) fn lines(&self) -> Vec<String> {
        let plain = lines(&self.function);
        let of_caller =
            |caller: &String| plain.iter().map(|line| format!("{line} caller={caller}")).collect::<Vec<_>>();
        let by_caller: Vec<String> = self.callers.iter().flat_map(of_caller).collect();
        by_caller.into_iter().chain(plain.iter().cloned()).collect()
    }

    /// Keeps only the callers that make enough of the calls. `None`: fewer than two are left.
    fn by_calls(self, counted: &Counted) -> Option<Self> {
        let of_function = || counted.candidates.iter().filter(|of| is_of(of, &self.function));
        let all: u64 = of_function().map(|of| of.calls).sum();
        if (all as f64) < MIN {
            return Some(self);
        }
        let calls = |caller: &String| {
            let of_caller = of_function().filter(|of| of.caller.as_ref() == Some(caller));
            of_caller.map(|of| of.calls).sum::<u64>()
        };
        let enough = |caller: &&String| calls(caller) as f64 >= OF_CALLS * all as f64;
        let callers: Vec<String> = self.callers.iter().filter(enough).cloned().collect();
        (callers.len() > 1).then_some(Self { callers, ..self })
    }
}

/// The chosen functions that take enough of a unit and have several callers in the service's own code, by
/// their samples. `is_chosen`: by place in the profile.
pub(super) fn by_samples(profile: &Profile, code: &Code, is_chosen: &[bool]) -> Vec<ByCaller> {
    let is_chosen_at = |place: &u32| is_chosen.get(*place as usize) == Some(&true);
    let mut calls: BTreeMap<u32, BTreeMap<Option<u32>, u64>> = BTreeMap::new();
    for stack in &profile.stacks {
        let Some(position) = stack.functions.iter().position(is_chosen_at) else { continue };
        let caller = stack.functions.get(position + 1).copied();
        if let Some(function) = stack.functions.get(position) {
            *calls.entry(*function).or_default().entry(caller).or_default() += stack.works;
        }
    }
    let of = |place: u32| profile.functions.get(place as usize);
    let times = attributed(profile, is_chosen);
    let is_services = |of: &&FunctionSeen| code.origin(of) == Origin::Service && is_function(of);
    let mut found: Vec<(f64, ByCaller)> = Vec::new();
    for (place, by) in calls {
        let works = times.get(place as usize).map_or(0.0, |time| time.works);
        let Some(function) = of(place).filter(|of| of.line.is_some()) else { continue };
        let all: u64 = by.values().sum();
        if works < OF_UNIT * profile.ticks as f64 || (all as f64) < MIN {
            continue;
        }
        let mut callers: Vec<(u64, &FunctionSeen)> = by
            .iter()
            .filter(|(_, samples)| **samples as f64 >= OF_CALLS * all as f64)
            .filter_map(|(caller, samples)| Some((*samples, of((*caller)?).filter(is_services)?)))
            .collect();
        callers.sort_by_key(|(samples, _)| std::cmp::Reverse(*samples));
        callers.truncate(MOST_CALLERS);
        if callers.len() > 1 {
            let callers = callers.iter().flat_map(|(_, of)| patterns(of)).collect();
            found.push((works, ByCaller { function: function.clone(), callers }));
        }
    }
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().map(|(_, of)| of).take(MOST_FUNCTIONS).collect()
}

/// Keeps the functions whose callers make enough of the calls, by the counts of a session. `None`: the
/// session does not cover the functions, for example because it sees calls without the helper.
pub(super) fn by_calls(by_caller: Vec<ByCaller>, counted: &Counted) -> Option<Vec<ByCaller>> {
    let is_covered =
        |of: &ByCaller| counted.candidates.iter().any(|candidate| is_of(candidate, &of.function));
    if !by_caller.iter().all(is_covered) {
        return None;
    }
    Some(by_caller.into_iter().filter_map(|of| of.by_calls(counted)).collect())
}

/// The values of `caller=` for a function: `MODULE:NAME`. There are two if its qualified name is unknown.
fn patterns(caller: &FunctionSeen) -> Vec<String> {
    let prefix = format!("{}:", TargetKind::Python.prefix());
    // These lines have no white space.
    lines(caller).iter().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{
        super::attribution::tests::{candidate, counted as counted_of, seen},
        *,
    };
    use crate::{
        experiment::record::Candidate,
        sampling::profile::{StackSeen, ThreadOf},
        targets::ParsedTargets,
        units::Pid,
    };

    /// Stacks of functions by place, the innermost first, with how often each was seen at work.
    fn profile(stacks: &[(&[u32], u64)]) -> Profile {
        let process = Pid::new(1).unwrap();
        let stack = |(functions, works): &(&[u32], u64)| StackSeen {
            thread: ThreadOf { process, thread: process },
            functions: functions.to_vec(),
            works: *works,
            waits: BTreeMap::new(),
        };
        let mut functions =
            ["burn", "hot", "cold", "seldom", "unit", "f.<locals>.<listcomp>"].map(seen).to_vec();
        functions.push(FunctionSeen { file: "/usr/lib/python3.11/heapq.py".into(), ..seen("merge") });
        Profile { ticks: 1_000, functions, stacks: stacks.iter().map(stack).collect(), ..Profile::default() }
    }

    const ALL: [bool; 7] = [true; 7];

    fn found(stacks: &[(&[u32], u64)], is_chosen: &[bool]) -> Vec<ByCaller> {
        let profile = profile(stacks);
        by_samples(&profile, &Code::new(&profile), is_chosen)
    }

    const HOT: &str = "/srv/app.py:hot";
    const COLD: &str = "/srv/app.py:cold";

    #[test]
    fn a_function_with_two_callers_that_takes_time_is_asked_about_by_them() {
        let stacks: [(&[u32], u64); 4] = [(&[0, 1, 4], 100), (&[0, 2, 4], 50), (&[0, 3], 5), (&[1, 4], 500)];
        let by_caller = found(&stacks, &ALL);
        assert_eq!(by_caller, [ByCaller { function: seen("burn"), callers: vec![HOT.into(), COLD.into()] }]);
        let lines = by_caller[0].lines();
        let of = |caller: &str| format!("py:/srv/app.py:burn caller={caller}");
        assert_eq!(lines, [of(HOT), of(COLD), "py:/srv/app.py:burn".to_owned()]);
        let parsed = ParsedTargets::parse("t", lines.join("\n").as_bytes(), false).unwrap();
        assert_eq!(parsed.decide(|_| false).len(), 3);
        // The time of a callee that is not asked about belongs to the function.
        let of_callee: [(&[u32], u64); 2] = [(&[3, 0, 1], 100), (&[0, 2], 50)];
        let is_chosen = [true, true, true, false, true, true, true];
        assert_eq!(found(&of_callee, &is_chosen).len(), 1);
    }

    #[test]
    fn other_functions_are_asked_about_as_a_whole() {
        for stacks in [
            // The function takes less than a tenth of the time.
            [(&[0, 1][..], 60), (&[0, 2], 30)],
            // One caller makes nearly all of its calls.
            [(&[0, 1], 300), (&[0, 2], 20)],
            // Its other caller is a library's, or part of another function, or none.
            [(&[0, 1], 100), (&[0, 6], 100)],
            [(&[0, 1], 100), (&[0, 5], 100)],
            [(&[0, 1], 100), (&[0], 100)],
        ] {
            assert_eq!(found(&stacks, &ALL), [], "{stacks:?}");
        }
        let native = [false, true, true, true, true, true, true];
        assert_eq!(found(&[(&[0, 1], 100), (&[0, 2], 100)], &native), [], "it is not asked about");
    }

    #[test]
    fn a_caller_without_a_qualified_name_has_two_patterns() {
        let caller = FunctionSeen { is_qualified: false, ..seen("hot") };
        assert_eq!(patterns(&caller), [HOT, "/srv/app.py:*.hot"]);
        let odd = FunctionSeen { file: "/srv/my app.py".into(), ..seen("hot") };
        assert_eq!(patterns(&odd), ["/srv/my?app.py:hot"]);
    }

    #[test]
    fn calls_tell_which_callers_count() {
        let counted = |calls: &[(Option<&str>, u64)]| {
            let of = |(caller, calls): &(Option<&str>, u64)| Candidate {
                caller: caller.map(str::to_owned),
                calls: *calls,
                ..candidate("burn", 0)
            };
            counted_of(calls.iter().map(of).collect())
        };
        let mixed = ByCaller {
            function: seen("burn"),
            callers: [HOT, COLD, "/srv/app.py:*.hot"].map(str::to_owned).to_vec(),
        };
        let left = |calls: &[(Option<&str>, u64)]| {
            let left = by_calls(vec![mixed.clone()], &counted(calls)).unwrap();
            left.into_iter().next().map(|of| of.callers)
        };
        let both = Some(vec![HOT.to_owned(), COLD.to_owned()]);
        assert_eq!(left(&[(Some(HOT), 60), (Some(COLD), 20), (Some("<others>"), 20)]), both);
        assert_eq!(left(&[(Some(HOT), 90), (Some(COLD), 5), (Some("<others>"), 5)]), None);
        assert_eq!(left(&[(Some(HOT), 3)]), Some(mixed.callers.clone()), "too few calls");
        assert_eq!(by_calls(vec![mixed.clone()], &counted(&[])), None, "nothing covers it");
    }
}
