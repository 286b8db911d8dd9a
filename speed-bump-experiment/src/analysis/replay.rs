//! Gives the chips of a record to a design again.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    chips::design::{Asked, Chip, Design, Rules},
    record::{By, Measured, Origin, PhaseKind, Slice, Treatment},
};

/// How the slices of a record become chips.
#[derive(Debug)]
pub(crate) struct Chips {
    /// The functions or groups that the experiment asks about.
    pub(crate) arms: Vec<Treatment>,
    /// The number of its arm, by candidate.
    arm_of: BTreeMap<u32, usize>,
    /// The share of a unit that 1 ns of delay per call adds, by candidate.
    per_ns: BTreeMap<u32, f64>,
    /// Time per unit without delays, in ns.
    unit: f64,
}

impl Chips {
    /// The chips of a record with these arms, in which a unit takes `unit` ns.
    pub(crate) fn new(measured: &Measured, arms: Vec<Treatment>, unit: f64) -> Self {
        let mut arm_of = BTreeMap::new();
        let mut per_ns = BTreeMap::new();
        for (number, arm) in arms.iter().enumerate() {
            for member in measured.members(*arm) {
                arm_of.insert(member, number);
                if let Some(candidate) = measured.candidates.get(member as usize) {
                    per_ns.insert(member, measured.calls_per_unit(candidate) / unit);
                }
            }
        }
        Self { arms, arm_of, per_ns, unit }
    }

    /// A design without chips.
    pub(crate) fn design(&self, measured: &Measured) -> Design {
        // A run of a benchmark never reaches into the next slice.
        let is_latency = measured.by != By::Throughput && !measured.is_of_runs();
        let latency = is_latency.then_some(self.unit);
        let quantile = measured.by.quantile().map(|share| (share, self.unit));
        Design::new(self.asked(measured), rules(measured))
            .with_quantile(quantile)
            .with_latency(latency)
            .with_parts_of_units(measured.inner_unit.is_some())
    }

    /// The arms, as a design asks about them.
    pub(crate) fn asked(&self, measured: &Measured) -> Vec<Asked> {
        let mut threads = BTreeMap::new();
        let asked = |arm: &Treatment| {
            let members = measured.members(*arm);
            let own: Option<Vec<f64>> = members.iter().map(|of| measured.own_of(*of)).collect();
            let thread = members.iter().find_map(|of| thread(measured, *of));
            let count = threads.len();
            let number = *threads.entry(thread).or_insert(count);
            Asked {
                share: own.map(|own| own.iter().sum::<f64>() / self.unit),
                thread: u32::try_from(number).unwrap_or_default(),
                is_first: is_first(measured, &members),
            }
        };
        self.arms.iter().map(asked).collect()
    }

    /// A slice as a chip. `follows`: it came right after the chip before.
    pub(crate) fn chip(&self, measured: &Measured, slice: &Slice, follows: bool) -> Chip {
        let mut of_arms: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
        for (candidate, dose) in &slice.doses {
            if let (Some(arm), Some(per_ns)) = (self.arm_of.get(candidate), self.per_ns.get(candidate)) {
                of_arms.entry(*arm).or_default().0 += dose.0 as f64 * per_ns;
            }
        }
        for of in &slice.delivered {
            if let Some(sums) = self.arm_of.get(&of.candidate).and_then(|arm| of_arms.get_mut(arm)) {
                sums.1 += of.all_asked().0 as f64;
                sums.2 += of.delivered_ns.0 as f64;
            }
        }
        Chip {
            time: slice.time_per_unit(measured.by) / self.unit,
            latencies: slice.latencies.clone(),
            units: slice.units,
            span: slice.span(),
            doses: of_arms.iter().map(|(arm, (dose, ..))| (*arm, *dose)).collect(),
            delivered: of_arms.values().map(|(_, asked, delivered)| (*asked, *delivered)).collect(),
            follows,
        }
    }
}

/// The rules of a record's design.
pub(crate) fn rules(measured: &Measured) -> Rules {
    Rules {
        worth: measured.rules.worth,
        threshold: measured.rules.threshold,
        max_slowdown: measured.rules.max_slowdown,
        min_chips: measured.rules.min_chips,
        matters_error: Rules::MATTERS_ERROR,
        does_not_error: Rules::DOES_NOT_ERROR,
    }
}

/// Whether these functions have the first turn. If sampling chose the functions, only the service's own have
/// it. If the user named them, all have it.
fn is_first(measured: &Measured, members: &[u32]) -> bool {
    let origin = |of: &u32| measured.candidates.get(*of as usize).map(|of| of.origin);
    measured.sampling.is_none() || members.iter().any(|of| origin(of) == Some(Origin::Service))
}

/// The thread that a candidate mostly runs on, as far as sampling saw it.
fn thread(measured: &Measured, candidate: u32) -> Option<crate::units::Pid> {
    measured.candidates.get(candidate as usize)?.sharing.as_ref()?.threads.first().copied()
}

/// A record's chips, and what its design found.
pub(crate) struct Replayed {
    /// How slices became chips.
    pub(crate) chips: Chips,
    /// The design, with all chips.
    pub(crate) design: Design,
    /// The number of each chip's slice.
    pub(crate) slices: Vec<usize>,
}

/// Replays a record in which a unit takes `unit` ns without delays.
pub(crate) fn replay(measured: &Measured, unit: f64) -> Replayed {
    let mut replayed = replay_so_far(measured, unit);
    if replayed.design.chips() > 0 {
        replayed.design.estimate();
    }
    replayed
}

/// Replays a running experiment: without an estimate after the last chip.
pub(crate) fn replay_so_far(measured: &Measured, unit: f64) -> Replayed {
    let chips = Chips::new(measured, arms(measured), unit);
    let mut design = chips.design(measured);
    let mut slices = Vec::new();
    let mut last = None;
    for (number, slice) in measured.slices.iter().enumerate() {
        if !is_chip(slice, measured.by) {
            continue;
        }
        let follows = number > 0 && last == Some(number - 1);
        design.add(chips.chip(measured, slice, follows));
        slices.push(number);
        last = Some(number);
    }
    Replayed { chips, design, slices }
}

/// Whether a slice counts, and is of a phase with delays.
pub(crate) fn is_chip(slice: &Slice, by: By) -> bool {
    let has_delays = match slice.phase {
        PhaseKind::Titrate | PhaseKind::Screen | PhaseKind::Confirm | PhaseKind::Test => true,
        PhaseKind::Census | PhaseKind::Ladder | PhaseKind::Recover => false,
    };
    // Without a unit there is no latency.
    has_delays && slice.counts() && (by == By::Throughput || slice.units > 0.0)
}

/// The most numbers that an analysis keeps: chips times functions. A sweep of an hour with 200 functions has
/// fewer.
const MAX_NUMBERS: usize = 50_000_000;

/// Why a record is not analysed, if it is too large for that.
pub(crate) fn too_large(measured: &Measured) -> Option<String> {
    let (slices, functions) = (measured.slices.len(), arms(measured).len());
    (slices.saturating_mul(functions) > MAX_NUMBERS)
        .then(|| format!("{slices} slices of {functions} functions are more than this tool analyses"))
}

/// The functions or groups that were tested, each once. A record from before chips does not list them: for
/// such a record, those that had delays.
fn arms(measured: &Measured) -> Vec<Treatment> {
    if !measured.arms.is_empty() {
        let mut seen = BTreeSet::new();
        let is_there = |number: u32, all: usize| (number as usize) < all;
        let arms = measured.arms.iter().copied().filter(|arm| match arm {
            Treatment::Function { candidate } => is_there(*candidate, measured.candidates.len()),
            Treatment::Group { group } => is_there(*group, measured.groups.len()),
            Treatment::Control | Treatment::Placebo | Treatment::Rest | Treatment::Several => false,
        });
        return arms.filter(|arm| seen.insert(*arm)).collect();
    }
    // Functions that are always delayed together cannot be told apart.
    if !measured.groups.is_empty() {
        let groups = 0..u32::try_from(measured.groups.len()).unwrap_or_default();
        return groups.map(|group| Treatment::Group { group }).collect();
    }
    let delayed = measured.slices.iter().filter(|slice| is_chip(slice, measured.by));
    let candidates: BTreeSet<u32> = delayed.flat_map(|slice| slice.doses.iter().map(|(of, _)| *of)).collect();
    let is_known = |candidate: &u32| (*candidate as usize) < measured.candidates.len();
    candidates.into_iter().filter(is_known).map(|candidate| Treatment::Function { candidate }).collect()
}
