//! To which function the time of samples belongs.
//!
//! Each sample belongs to the innermost function on its stack that is asked about, as its own time in a
//! session does: a function that is not asked about counts to its callers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use crate::{
    experiment::{
        live::Counted,
        record::{Candidate, Origin, Wait},
    },
    sampling::profile::{FunctionSeen, Profile, StackSeen, ThreadOf},
    targets::TargetKind,
    units::Nanos,
};

use super::{
    choose::standard_library,
    sampled::{is_of, is_same},
};

/// With fewer samples of a function, nothing is said of how much of its time is work.
const MIN_SAMPLES: f64 = 5.0;
/// If a thread has fewer samples at work, we do not compare them with the time for which it ran by the
/// kernel's clock.
const MIN_WORKS: u64 = 5;
/// A sample counts for this many samples at most.
const MAX_WEIGHT: f64 = 5.0;
/// The most waits of the record.
const WAITS: usize = 20;

/// Samples of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Time {
    /// Samples in which its thread had a processor, or wanted one.
    pub(super) works: f64,
    /// Samples in which its thread waited for anything else.
    pub(super) waits: f64,
}

/// What a thread's samples count for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight {
    works: f64,
    waits: f64,
}

/// While a thread works, samples may come too seldom. The kernel knows how long each thread ran. At least as
/// many samples as belong to that time count as work.
pub(super) fn weights(profile: &Profile) -> BTreeMap<ThreadOf, Weight> {
    let mut samples: BTreeMap<ThreadOf, (u64, u64)> = BTreeMap::new();
    for stack in &profile.stacks {
        let (works, waits) = samples.entry(stack.thread).or_default();
        *works += stack.works;
        *waits += stack.waits.values().sum::<u64>();
    }
    let weight = |(thread, (works, waits)): (ThreadOf, (u64, u64))| {
        let ran = profile.threads.get(&thread).map_or(0, |seen| seen.ran.0);
        if ran == 0 || works < MIN_WORKS {
            return (thread, Weight { works: 1.0, waits: 1.0 });
        }
        let ticks = ran as f64 * profile.ticks as f64 / profile.span.0.max(1) as f64;
        let of_works = (ticks / works as f64).min((works + waits) as f64 / works as f64).min(MAX_WEIGHT);
        let left = (works + waits) as f64 - of_works.max(1.0) * works as f64;
        let of_waits = if waits == 0 { 1.0 } else { left / waits as f64 };
        (thread, Weight { works: of_works, waits: of_waits })
    };
    samples.into_iter().map(weight).collect()
}

/// The samples of each function, by place, if the session asks about these functions.
pub(super) fn attributed(profile: &Profile, is_asked: &[bool]) -> Vec<Time> {
    attributed_by(&weights(profile), profile, is_asked)
}

/// [`attributed`] with these weights.
pub(super) fn attributed_by(
    weights: &BTreeMap<ThreadOf, Weight>,
    profile: &Profile,
    is_asked: &[bool],
) -> Vec<Time> {
    let mut times = vec![Time::default(); profile.functions.len()];
    for stack in &profile.stacks {
        let weight = weights.get(&stack.thread);
        let place = innermost(stack, is_asked);
        let Some((time, weight)) = place.and_then(|place| times.get_mut(place as usize)).zip(weight) else {
            continue;
        };
        // A thread that waits for a processor has work to do: without that work it would not wait.
        time.works += stack.works as f64 * weight.works.max(1.0);
        time.waits += stack.waits.values().sum::<u64>() as f64 * weight.waits;
    }
    times
}

/// The innermost function of a stack that is asked about.
fn innermost(stack: &StackSeen, is_asked: &[bool]) -> Option<u32> {
    stack.functions.iter().copied().find(|place| is_asked.get(*place as usize).is_some_and(|is| *is))
}

/// The functions of a profile that a session asks about.
pub(super) struct Asked {
    /// The candidate of each function, by its place.
    candidates: Vec<Option<usize>>,
    is_asked: Vec<bool>,
}

impl Asked {
    pub(super) fn new(counted: &Counted, profile: &Profile) -> Self {
        let mut by_place: HashMap<(&Path, &str), Vec<usize>> = HashMap::new();
        for (number, candidate) in counted.candidates.iter().enumerate() {
            by_place.entry((&candidate.file, last(&candidate.name))).or_default().push(number);
        }
        let find = |seen: &FunctionSeen| {
            let known = by_place.get(&(seen.file.as_path(), last(&seen.name)))?;
            let is_it = |number: &&usize| {
                let candidate = counted.candidates.get(**number);
                candidate.is_some_and(|of| of.left_out().is_none() && is_of(of, seen))
            };
            known.iter().find(is_it).copied()
        };
        let candidates: Vec<Option<usize>> = profile.functions.iter().map(find).collect();
        // The function of the unit is timed too, and no candidate.
        let unit = counted.progress.as_ref();
        let is_unit =
            |seen: &FunctionSeen| unit.is_some_and(|unit| is_same(&unit.file, &unit.name, unit.line, seen));
        let functions = profile.functions.iter().zip(&candidates);
        let is_asked = functions.map(|(seen, candidate)| candidate.is_some() || is_unit(seen)).collect();
        Self { candidates, is_asked }
    }
}

/// The part of a name behind the last dot.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Sets whose code the candidates are, where the interpreter shows it.
pub(super) fn set_origins(counted: &mut Counted, profile: &Profile) {
    let folders = standard_library(profile);
    for candidate in counted.candidates.iter_mut().filter(|of| of.kind == TargetKind::Python) {
        candidate.origin = Origin::of_python(&candidate.file, &folders);
    }
}

/// Takes from the own times of Python functions what samples show to be waits.
pub(super) fn take_out_waits(counted: &mut Counted, profile: &Profile, asked: &Asked) {
    let mut times = vec![Time::default(); counted.candidates.len()];
    for (candidate, time) in asked.candidates.iter().zip(attributed(profile, &asked.is_asked)) {
        if let Some(of) = candidate.and_then(|number| times.get_mut(number)) {
            *of = Time { works: of.works + time.works, waits: of.waits + time.waits };
        }
    }
    // Samples are not divided by callers: candidates of one function have the same share of waits.
    let mut by_function: HashMap<_, Time> = HashMap::new();
    for (candidate, time) in counted.candidates.iter().zip(&times) {
        let of = by_function.entry(candidate.function()).or_default();
        *of = Time { works: of.works + time.works, waits: of.waits + time.waits };
    }
    let of_function = |of: &Candidate| by_function.get(&of.function()).copied().unwrap_or_default();
    let times: Vec<Time> = counted.candidates.iter().map(of_function).collect();
    for (candidate, Time { works, waits }) in counted.candidates.iter_mut().zip(times) {
        if candidate.kind != TargetKind::Python {
            continue;
        }
        let Some(own) = candidate.own_ns.filter(|_| works + waits >= MIN_SAMPLES) else { continue };
        let waited = Nanos((own.0 as f64 * waits / (works + waits)) as u64);
        candidate.own_ns = Some(Nanos(own.0 - waited.0.min(own.0)));
        candidate.waited_ns = Some(waited);
    }
}

/// What the threads that do units waited in, the longest first. If these threads are unknown, what the
/// threads that work waited in.
pub(super) fn waits(asked: &Asked, profile: &Profile, units: &BTreeSet<ThreadOf>) -> Vec<Wait> {
    let works = || profile.stacks.iter().filter(|stack| stack.works > 0).map(|stack| stack.thread);
    let threads = if units.is_empty() { works().collect() } else { units.clone() };
    let of_units = || profile.stacks.iter().filter(|stack| threads.contains(&stack.thread));
    let waited = |stack: &StackSeen| stack.waits.values().sum::<u64>();
    let all: u64 = of_units().map(|stack| stack.works + waited(stack)).sum();
    let weights = weights(profile);
    let mut samples: BTreeMap<(u32, u32, &str), f64> = BTreeMap::new();
    for stack in of_units() {
        let Some(leaf) = stack.functions.first().copied() else { continue };
        let function = innermost(stack, &asked.is_asked).unwrap_or(leaf);
        for (what, waits) in &stack.waits {
            if *waits > 0 {
                let weight = weights.get(&stack.thread).map_or(1.0, |weight| weight.waits);
                *samples.entry((function, leaf, what)).or_default() += *waits as f64 * weight;
            }
        }
    }
    let of = |place: u32| profile.functions.get(place as usize);
    let wait = |((function, leaf, what), samples): ((u32, u32, &str), f64)| {
        let seen = of(function)?;
        Some(Wait {
            name: seen.name.clone(),
            file: seen.file.clone(),
            line: seen.line,
            inside: of(leaf).filter(|_| leaf != function).map(|leaf| leaf.name.clone()),
            what: what.to_owned(),
            share: samples / all.max(1) as f64,
        })
    };
    let mut waits: Vec<Wait> = samples.into_iter().filter_map(wait).collect();
    waits.sort_by(|a, b| b.share.total_cmp(&a.share));
    waits.truncate(WAITS);
    waits
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{experiment::record::Census, sampling::profile::ThreadSeen, units::Pid};

    fn thread(number: i32) -> ThreadOf {
        ThreadOf { process: Pid::new(1).unwrap(), thread: Pid::new(number).unwrap() }
    }

    /// A function of the service.
    pub(in super::super) fn seen(name: &str) -> FunctionSeen {
        FunctionSeen {
            file: "/srv/app.py".into(),
            name: name.to_owned(),
            line: Some(1),
            is_qualified: true,
            ..FunctionSeen::default()
        }
    }

    /// The candidate for this function, with this own time, in ns.
    pub(in super::super) fn candidate(name: &str, own: u64) -> Candidate {
        Candidate {
            name: name.to_owned(),
            file: "/srv/app.py".into(),
            line: Some(1),
            caller: None,
            kind: TargetKind::Python,
            origin: Origin::Service,
            calls: 10,
            own_ns: Some(Nanos(own)),
            waited_ns: None,
            floor_ns: Nanos(0),
            sampled: None,
            sharing: None,
        }
    }

    pub(in super::super) fn counted(candidates: Vec<Candidate>) -> Counted {
        Counted { functions: Vec::new(), candidates, census: Census::default(), progress: None }
    }

    /// `handle` calls `read`, which waits; `idle` is in a thread that does no units.
    fn profile() -> Profile {
        let stack = |number, functions: &[u32], works, what, waits| StackSeen {
            thread: thread(number),
            functions: functions.to_vec(),
            works,
            waits: BTreeMap::from([(what, waits)]),
        };
        Profile {
            ticks: 100,
            functions: ["handle", "read", "idle", "seldom"].map(seen).to_vec(),
            stacks: vec![
                stack(1, &[0], 20, "a lock", 0),
                stack(1, &[1, 0], 0, "recv", 60),
                stack(1, &[2], 0, "epoll", 20),
                stack(2, &[2], 0, "a lock", 100),
                stack(1, &[3, 0], 0, "sleep", 2),
            ],
            ..Profile::default()
        }
    }

    /// The kernel knows how long a thread ran.
    #[test]
    fn samples_count_for_as_long_as_the_thread_ran() {
        let ran = |ran| {
            let mut profile = profile();
            profile.span = Nanos(1_000_000_000);
            let seen = ThreadSeen { ran: Nanos(ran), ..ThreadSeen::default() };
            profile.threads.insert(thread(1), seen);
            let [handle, read, ..] = attributed(&profile, &[true; 4])[..] else { unreachable!() };
            [handle.works, handle.waits, read.waits].map(|of| of.round())
        };
        // Of 102 samples 20 are ready to run; 82 wait.
        assert_eq!(ran(0), [20.0, 0.0, 60.0]);
        assert_eq!(ran(200_000_000), [20.0, 0.0, 60.0]);
        // The thread waited for a processor half of that time, with work to do.
        assert_eq!(ran(100_000_000), [20.0, 0.0, 60.0]);
        // Samples were taken mostly while it waited.
        assert_eq!(ran(400_000_000), [40.0, 0.0, 45.0]);
        assert_eq!(ran(4_000_000_000), [100.0, 0.0, 1.0]);
    }

    #[test]
    fn own_time_is_work_and_waits_are_told_beside_it() {
        let mut counted = counted(vec![candidate("handle", 800), candidate("seldom", 10)]);
        let profile = profile();
        let asked = Asked::new(&counted, &profile);
        take_out_waits(&mut counted, &profile, &asked);
        let times: Vec<_> = counted.candidates.iter().map(|of| (of.own_ns, of.waited_ns)).collect();
        // `seldom` has too few samples to say anything.
        assert_eq!(times, [(Some(Nanos(200)), Some(Nanos(600))), (Some(Nanos(10)), None)]);
    }

    #[test]
    fn candidates_of_one_function_have_the_same_share_of_waits() {
        let mut candidates = vec![candidate("handle", 800), candidate("handle", 80)];
        candidates[0].caller = Some("a".to_owned());
        candidates[1].caller = Some("b".to_owned());
        let mut counted = counted(candidates);
        let profile = profile();
        let asked = Asked::new(&counted, &profile);
        take_out_waits(&mut counted, &profile, &asked);
        let times: Vec<_> = counted.candidates.iter().map(|of| (of.own_ns, of.waited_ns)).collect();
        let of = |own, waited| (Some(Nanos(own)), Some(Nanos(waited)));
        // Two more waits than those of `read`: `seldom` is not asked about.
        assert_eq!(times, [of(196, 604), of(20, 60)]);
    }

    /// A function that is asked about has the waits of the functions that it calls, unless these are asked
    /// about too.
    #[test]
    fn waits_belong_to_the_innermost_function_that_is_asked_about() {
        let profile = profile();
        let waits_of =
            |asked: &[&str], units: &BTreeSet<ThreadOf>| -> Vec<(String, Option<String>, String, f64)> {
                let counted = counted(asked.iter().map(|name| candidate(name, 1)).collect());
                let waits = waits(&Asked::new(&counted, &profile), &profile, units).into_iter();
                waits.map(|of| (of.name, of.inside, of.what, (of.share * 102.0).round())).collect()
            };
        let row = |name: &str, inside: Option<&str>, what: &str, share| {
            (name.to_owned(), inside.map(str::to_owned), what.to_owned(), share)
        };
        let expected = [
            row("handle", Some("read"), "recv", 60.0),
            row("idle", None, "epoll", 20.0),
            row("handle", Some("seldom"), "sleep", 2.0),
        ];
        let found = waits_of(&["handle"], &BTreeSet::from([thread(1)]));
        assert_eq!(found, expected);
        // It is unknown which threads do units: then the waits are those of threads that work.
        assert_eq!(waits_of(&["handle"], &BTreeSet::new()), found);
        let found = waits_of(&["handle", "read"], &BTreeSet::from([thread(1)]));
        assert_eq!(found[0], row("read", None, "recv", 60.0));
    }
}
