//! Chooses functions of a profile: the service's own code first, then libraries, then native code.
//!
//! A function of the service is asked about with all that it calls outside of the service, because that is
//! what its author can change. So a library's function that the service calls is not asked about. Waits are
//! no work: time counts in which threads have a processor, or want one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    attribution::{Time, attributed, attributed_by, weights},
    sampled::lines,
};
use crate::{
    experiment::record::Origin,
    sampling::profile::{FunctionSeen, Profile, ThreadOf},
};

/// By chance, samples may show less time than a function takes. So we choose a function if its samples show
/// this share of a time that is worth an experiment.
const MARGIN: f64 = 0.5;
/// The most functions that are chosen.
const MAX: usize = 60;
/// If the service's own functions are less than this part of the running time, functions of the C library
/// count too.
const MOSTLY_OWN: f64 = 0.5;
/// A library's function is asked about unless the service's functions call it in more than this share of its
/// time: then its time is theirs.
const CALLED_BY_SERVICE: f64 = 0.1;
/// A library's function is reported as a wait if this share of its own samples are waits, or more.
const MOSTLY_WAITS: f64 = 0.8;
/// A function that never returns is on the stack in at least this share of its threads' samples.
const ALWAYS: f64 = 0.98;
/// With fewer samples, it is unknown whether a function never returns.
const MIN_SAMPLES: u64 = 20;

/// In each of this many rounds we take out the functions of one depth. After that, we take out all at once.
const ROUNDS: usize = 64;
/// Names that CPython gives to code within a function (compile.c).
const WITHIN: [&str; 4] = ["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"];

/// The functions that were chosen, by their places in the profile.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// The functions, in order.
    pub(super) functions: Vec<usize>,
    /// Functions that no target can name.
    pub(super) no_targets: Vec<usize>,
}

/// Whose code the functions of a profile are.
#[derive(Debug)]
pub(super) struct Code {
    /// The origin of each function, by its place.
    origins: Vec<Origin>,
    /// Whether it is a function of its own, and not code of a module or within a function.
    is_function: Vec<bool>,
    standard_library: Vec<PathBuf>,
}

impl Code {
    pub(super) fn new(profile: &Profile) -> Self {
        let standard_library = standard_library(profile);
        let origin = |of: &FunctionSeen| origin(of, &standard_library);
        Self {
            origins: profile.functions.iter().map(origin).collect(),
            is_function: profile.functions.iter().map(is_function).collect(),
            standard_library,
        }
    }

    /// Whose code a function of the profile is.
    pub(super) fn origin(&self, of: &FunctionSeen) -> Origin {
        origin(of, &self.standard_library)
    }

    fn is(&self, place: usize, origin: Origin) -> bool {
        self.origins.get(place) == Some(&origin) && self.is_function.get(place) == Some(&true)
    }

    /// Functions of the service that are on all stacks of their threads, and take time that is worth an
    /// experiment. They may be loops that never return, or called again and again: counting their calls
    /// tells.
    pub(super) fn always_there(&self, profile: &Profile, worth: f64) -> Vec<usize> {
        let is_asked: Vec<bool> = self.places().map(|place| self.is(place, Origin::Service)).collect();
        // The time of the functions that a loop calls may count to the loop.
        let mut takes_time = is_asked.clone();
        give_to_callers(profile, &mut takes_time, least(profile, worth));
        let (mut of_threads, mut on): (BTreeMap<ThreadOf, u64>, BTreeMap<(u32, ThreadOf), u64>) =
            (BTreeMap::new(), BTreeMap::new());
        for stack in &profile.stacks {
            let samples = stack.works + stack.waits.values().sum::<u64>();
            *of_threads.entry(stack.thread).or_default() += samples;
            let mut functions: Vec<u32> = stack.functions.clone();
            functions.sort_unstable();
            functions.dedup();
            for place in functions.into_iter().filter(|place| is_asked.get(*place as usize) == Some(&true)) {
                *on.entry((place, stack.thread)).or_default() += samples;
            }
        }
        let mut always: BTreeMap<u32, bool> = BTreeMap::new();
        for ((place, thread), samples) in on {
            let all = of_threads.get(&thread).copied().unwrap_or(0);
            let is_always = all >= MIN_SAMPLES && samples as f64 >= ALWAYS * all as f64;
            *always.entry(place).or_insert(true) &= is_always;
        }
        let always = always.into_iter().filter(|(_, is)| *is).map(|(place, _)| place as usize);
        always.filter(|place| takes_time.get(*place) == Some(&true)).collect()
    }

    /// Chooses functions, in order. `loops` are functions that never return.
    pub(super) fn chosen(&self, profile: &Profile, worth: f64, loops: &[usize]) -> Chosen {
        let least = least(profile, worth);
        let (mut chosen, mut no_targets) = (Chosen::default(), Vec::new());
        let mut can_be = |place: usize| {
            let has_lines = profile.functions.get(place).is_some_and(|of| !lines(of).is_empty());
            if !has_lines {
                no_targets.push(place);
            }
            has_lines
        };
        let mut is_asked: Vec<bool> = (self.places())
            .map(|place| self.is(place, Origin::Service) && !loops.contains(&place) && can_be(place))
            .collect();
        let times = give_to_callers(profile, &mut is_asked, least);
        chosen.add(&is_asked, &times);
        let is_service = is_asked.clone();
        let leaves = attributed(profile, &vec![true; is_asked.len()]);
        let is_free = outside(profile, &is_service);
        for (place, is_asked) in is_asked.iter_mut().enumerate() {
            let waits = leaves.get(place).is_some_and(|Time { works, waits }| {
                *waits > 0.0 && *waits >= MOSTLY_WAITS * (works + waits)
            });
            let is_free = is_free.get(place) == Some(&true);
            *is_asked |= self.is(place, Origin::Library) && is_free && !waits && can_be(place);
        }
        let times = give_to_callers(profile, &mut is_asked, least);
        let of_libraries: Vec<bool> =
            is_asked.iter().zip(&is_service).map(|(is_asked, is_service)| *is_asked && !is_service).collect();
        chosen.add(&of_libraries, &times);
        let of_python: f64 = chosen.functions.iter().filter_map(|of| times.get(*of)).map(|of| of.works).sum();
        let native = self.native(profile, worth, of_python / profile.ticks.max(1) as f64);
        let (native, unnamed): (Vec<usize>, Vec<usize>) = native.into_iter().partition(|of| can_be(*of));
        chosen.functions.extend(native);
        chosen.functions.truncate(MAX);
        // A function that takes little time is not missed.
        no_targets.retain(|place| {
            let seen = profile.functions.get(*place);
            unnamed.contains(place) || seen.is_some_and(|of| profile.share(of) >= worth * MARGIN)
        });
        no_targets.dedup();
        no_targets.truncate(MAX);
        chosen.no_targets = no_targets;
        chosen
    }

    /// Native functions that take time, the ones that run most first, beside Python functions that take this
    /// much. If a thread executes Python, the time of its native functions counts to the Python functions
    /// that call them. Findings about the C library and allocators rarely help; they are chosen only if they
    /// are most of the running time, as in a server that mostly makes system calls.
    fn native(&self, profile: &Profile, worth: f64, of_python: f64) -> Vec<usize> {
        let has_stacks = |of: &ThreadOf| profile.threads.get(of).is_some_and(|seen| seen.ticks > 0);
        let is_pythons = |of: &FunctionSeen| {
            let samples = |is: bool| -> u64 {
                of.threads.iter().filter(|(of, _)| has_stacks(of) == is).map(|(_, samples)| samples).sum()
            };
            samples(true) > samples(false)
        };
        let native = |place: &usize| {
            let of = profile.functions.get(*place)?;
            let is_worth_it = of.line.is_none() && profile.share(of) >= worth * MARGIN;
            (is_worth_it && !is_pythons(of)).then_some(of)
        };
        let mut found: Vec<(usize, &FunctionSeen)> =
            self.places().filter_map(|place| Some((place, native(&place)?))).collect();
        let own = found.iter().filter(|(_, of)| !of.is_everybodys).map(|(_, of)| profile.running_share(of));
        if of_python + own.sum::<f64>() >= MOSTLY_OWN {
            found.retain(|(_, of)| !of.is_everybodys);
        }
        let order = |of: &FunctionSeen| profile.running_share(of);
        found.sort_by(|(_, a), (_, b)| order(b).total_cmp(&order(a)));
        found.into_iter().map(|(place, _)| place).collect()
    }

    fn places(&self) -> std::ops::Range<usize> {
        0..self.origins.len()
    }
}

impl Chosen {
    /// Adds functions, the ones that work most first.
    fn add(&mut self, is_chosen: &[bool], times: &[Time]) {
        let works = |place: &usize| times.get(*place).map_or(0.0, |time| time.works);
        let mut added: Vec<usize> =
            is_chosen.iter().enumerate().filter(|(_, is)| **is).map(|(place, _)| place).collect();
        added.sort_by(|a, b| works(b).total_cmp(&works(a)));
        self.functions.extend(added);
    }
}

/// The folders in which the interpreters of a profile may have their standard library.
pub(super) fn standard_library(profile: &Profile) -> Vec<PathBuf> {
    let folders = profile.interpreters.values().flat_map(|seen| &seen.standard_library);
    let folders: BTreeSet<&PathBuf> = folders.collect();
    folders.into_iter().cloned().collect()
}

fn origin(of: &FunctionSeen, standard_library: &[PathBuf]) -> Origin {
    match of.line {
        Some(_) => Origin::of_python(&of.file, standard_library),
        None => Origin::Native,
    }
}

/// The samples that are enough.
fn least(profile: &Profile, worth: f64) -> f64 {
    (worth * MARGIN * profile.ticks as f64).max(1.0)
}

/// Whether it is a function of its own. Comprehensions, generator expressions and lambdas belong to the
/// function in which they stand; names before 3.11 do not tell where that is. Functions that libraries make
/// of text are no functions of their own either: each named tuple has one.
pub(super) fn is_function(of: &FunctionSeen) -> bool {
    let last = of.name.rsplit('.').next().unwrap_or_default();
    let is_within = of.name.contains(".<locals>.") || !of.is_qualified || of.file == Path::new("<string>");
    of.line.is_some() && last != "<module>" && !WITHIN.contains(&last) && !(last == "<lambda>" && is_within)
}

/// Takes out the functions that have too little time, the innermost first, so that the time goes to their
/// callers. Returns the times of the functions that remain.
fn give_to_callers(profile: &Profile, is_asked: &mut [bool], least: f64) -> Vec<Time> {
    let weights = weights(profile);
    let mut round = 0;
    loop {
        let times = attributed_by(&weights, profile, is_asked);
        let depth = |place: usize| profile.functions.get(place).map_or(0, |of| of.depth);
        let has_little = |place: &usize| times.get(*place).is_none_or(|time| time.works < least);
        let asked = is_asked.iter().enumerate().filter(|(_, is)| **is).map(|(place, _)| place);
        let little: Vec<usize> = asked.filter(has_little).collect();
        let deepest = little.iter().map(|place| depth(*place)).max();
        let Some(deepest) = deepest else { return times };
        // A process can make its stacks deep. After many rounds, all functions that are left go at once.
        for place in little.into_iter().filter(|place| depth(*place) == deepest || round >= ROUNDS) {
            if let Some(is_asked) = is_asked.get_mut(place) {
                *is_asked = false;
            }
        }
        round += 1;
    }
}

/// Whether a function works mostly without a function of the service around it, for each function by its
/// place.
fn outside(profile: &Profile, is_service: &[bool]) -> Vec<bool> {
    let mut of_all = vec![(0_u64, 0_u64); profile.functions.len()];
    for stack in &profile.stacks {
        let is_services = |place: &u32| is_service.get(*place as usize) == Some(&true);
        let outermost = stack.functions.iter().rposition(is_services);
        for (position, place) in stack.functions.iter().enumerate() {
            let Some((all, called)) = of_all.get_mut(*place as usize) else { continue };
            *all += stack.works;
            if outermost.is_some_and(|outermost| position < outermost) {
                *called += stack.works;
            }
        }
    }
    of_all.into_iter().map(|(all, called)| called as f64 <= CALLED_BY_SERVICE * all as f64).collect()
}

#[cfg(test)]
mod tests;
