//! The policy of a session: the delay and frequency of each call, and the engine. No other module decides
//! these.
//!
//! Each target has a dose. A function has the dose of its target, unless the user gave the function its own
//! dose.

mod bound;

use std::collections::{BTreeMap, BTreeSet};

pub use bound::{BoundError, DelayBound};

pub use crate::engine::Dose;
use crate::{
    engine::{EngineChoice, EngineKind, bpf::Form},
    probe::plan::SelectedFunction,
    targets::{Target, TargetIndex, TargetKind, Targets},
    units::Nanos,
};

/// The most functions in a session that can have their own dose.
pub const OWN_DOSES: u32 = 16_384;
/// The most targets that a user can add to a session.
pub const LATE_TARGETS: u32 = 1_024;

/// The functions that a dose applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All functions of a target, except those with their own dose.
    Target(TargetIndex),
    /// One function, in all processes.
    Function(SelectedFunction),
}

/// Why a dose cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoseError {
    /// There is no target with this index.
    #[error("there is no target {}: the session has {targets}", .index.0)]
    NoTarget {
        /// The requested index, from 0.
        index: TargetIndex,
        /// The number of targets.
        targets: usize,
    },
    /// The user has added too many targets.
    #[error("{LATE_TARGETS} targets were added already: attach again with these")]
    TooManyTargets,
    /// Too many functions have their own dose.
    #[error("{OWN_DOSES} functions have a dose of their own already; set that of a target instead")]
    TooMany,
}

/// The dose of each target of a session, and of each function with its own dose. This value decides which
/// engine spins a delay.
///
/// Each dose has a number in the engine. The dose of a target has the target's number. Then comes the room
/// for targets that the user adds later, and then come the doses of single functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTable {
    choice: EngineChoice,
    default: Dose,
    /// The dose of each target, by [`TargetIndex`].
    doses: Vec<Dose>,
    /// Whether each target selects Python functions, by [`TargetIndex`].
    is_python: Vec<bool>,
    /// The number of the first dose of a single function.
    first_own: u32,
    /// Doses of single functions, each with its number.
    own: BTreeMap<SelectedFunction, (u32, Dose)>,
}

impl PolicyTable {
    /// The doses of these targets. If a target does not give an option, it has the value of the default.
    pub fn new(targets: &Targets, default: Dose, choice: EngineChoice) -> Self {
        let doses: Vec<Dose> = targets.iter().map(|(_, target)| dose_of(target, default)).collect();
        let is_python = targets.iter().map(|(_, target)| target.kind == TargetKind::Python).collect();
        let first_own = u32::try_from(doses.len()).unwrap_or(u32::MAX).saturating_add(LATE_TARGETS);
        Self { choice, default, doses, is_python, first_own, own: BTreeMap::new() }
    }

    /// The first dose of a new target.
    pub fn begins_with(&self, target: &Target) -> Dose {
        dose_of(target, self.default)
    }

    /// Adds a target after the others. Returns the number of its dose.
    ///
    /// # Errors
    /// There is no room for another target.
    pub fn add(&mut self, target: &Target) -> Result<u32, DoseError> {
        let number = u32::try_from(self.doses.len()).unwrap_or(u32::MAX);
        if number >= self.first_own {
            return Err(DoseError::TooManyTargets);
        }
        self.doses.push(self.begins_with(target));
        self.is_python.push(target.kind == TargetKind::Python);
        Ok(number)
    }

    /// Sets a dose. Returns the number of the dose.
    ///
    /// # Errors
    /// There is no such target, or no room for another function.
    pub fn set(&mut self, selection: &Selection, dose: Dose) -> Result<u32, DoseError> {
        match selection {
            Selection::Target(index) => {
                let targets = self.doses.len();
                let error = DoseError::NoTarget { index: *index, targets };
                *self.doses.get_mut(index.0 as usize).ok_or(error)? = dose;
                Ok(index.0)
            }
            Selection::Function(function) => {
                if let Some((number, own)) = self.own.get_mut(function) {
                    *own = dose;
                    return Ok(*number);
                }
                let count = u32::try_from(self.own.len()).ok().filter(|count| *count < OWN_DOSES);
                let number = self.first_own.saturating_add(count.ok_or(DoseError::TooMany)?);
                self.own.insert(function.clone(), (number, dose));
                Ok(number)
            }
        }
    }

    /// The most doses that there can be.
    pub fn capacity(&self) -> u32 {
        self.first_own.saturating_add(OWN_DOSES)
    }

    /// All doses by number.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, Dose)> {
        (0..).zip(self.doses.iter().copied()).chain(self.own.values().copied())
    }

    /// The number of a function's own dose.
    pub fn own_number(&self, function: &SelectedFunction) -> Option<u32> {
        self.own.get(function).map(|(number, _)| *number)
    }

    /// The functions of a target that have their own dose.
    pub fn with_own(&self, target: TargetIndex) -> impl Iterator<Item = &SelectedFunction> {
        self.own.keys().filter(move |function| function.target == target)
    }

    /// The number of a function's dose: its own dose, or its target's.
    pub fn number(&self, function: &SelectedFunction) -> u32 {
        self.own_number(function).unwrap_or(function.target.0)
    }

    /// The dose of a target; the default if there is no such target.
    pub fn dose(&self, target: TargetIndex) -> Dose {
        self.doses.get(target.0 as usize).copied().unwrap_or(self.default)
    }

    /// The dose of a function: its own dose, or its target's.
    pub fn for_function(&self, function: &SelectedFunction) -> Dose {
        self.own.get(function).map_or_else(|| self.dose(function.target), |(_, dose)| *dose)
    }

    /// The delay of a target. Its functions without their own dose have this delay.
    pub fn delay(&self, target: TargetIndex) -> Nanos {
        self.dose(target).delay
    }

    /// All different delays.
    pub fn delays(&self) -> BTreeSet<Nanos> {
        self.numbered().map(|(_, dose)| dose.delay).collect()
    }

    /// Which engine the user wants.
    pub fn choice(&self) -> EngineChoice {
        self.choice
    }

    /// Whether the session needs the helper for its signals.
    pub fn wants_helper(&self) -> bool {
        self.choice.wants_helper()
    }

    /// Which engine spins a delay. `form` is the form of the BPF programs. `has_signals` says whether the
    /// process has a helper that handles signals.
    pub fn engine(&self, delay: Nanos, form: Form, has_signals: bool) -> EngineKind {
        match self.choice.engine(delay, form) {
            EngineKind::Signal if !has_signals => EngineKind::Bpf,
            kind => kind,
        }
    }

    /// Whether the session needs the helper in the process.
    pub fn insists_on_helper(&self) -> bool {
        self.choice.insists_on_helper()
    }

    /// `Helper` if the helper itself delays the calls of a target that it sees; otherwise `None`.
    pub fn in_helper(&self, target: TargetIndex) -> Option<EngineKind> {
        let is_python = self.is_python.get(target.0 as usize).is_some_and(|is_python| *is_python);
        (is_python && self.choice.delays_in_helper()).then_some(EngineKind::Helper)
    }

    /// The different delays that helpers must make when they get a signal. A helper that delays without a
    /// trap needs no signal. But if the BPF programs cannot spin for long, helpers must know these delays
    /// too.
    pub fn signalled(&self, form: Form) -> BTreeSet<Nanos> {
        let needs_none = |target| form.longest_spin().is_none() && self.in_helper(target).is_some();
        let of_targets = (0..).map(TargetIndex).zip(&self.doses).map(|(target, dose)| (target, dose.delay));
        let own = self.own.iter().map(|(function, (_, dose))| (function.target, dose.delay));
        let delays = of_targets.chain(own).filter(|(target, _)| !needs_none(*target));
        let mut delays: BTreeSet<Nanos> = delays.map(|(_, delay)| delay).collect();
        delays.retain(|delay| self.engine(*delay, form, true) == EngineKind::Signal);
        delays
    }
}

fn dose_of(target: &Target, default: Dose) -> Dose {
    Dose {
        delay: target.delay.unwrap_or(default.delay),
        frequency: target.frequency.map_or(default.frequency, u64::from),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::targets::ParsedTargets;

    const DEFAULT: Dose = Dose { delay: Nanos(1_000), frequency: 3 };

    fn table(targets: &str, choice: EngineChoice) -> PolicyTable {
        let targets = ParsedTargets::parse("targets", targets.as_bytes(), true).unwrap();
        PolicyTable::new(&targets.decide(|_| false), DEFAULT, choice)
    }

    #[test]
    fn a_target_has_what_its_line_says_and_else_the_default() {
        let table =
            table("*:f\n*:g delay=2ms\n*:h frequency=7\n*:i delay=2ms frequency=1\n", EngineChoice::Auto);
        let doses = [0, 1, 2, 3, 4].map(|index| table.dose(TargetIndex(index)));
        let expected = [(1_000, 3), (2_000_000, 3), (1_000, 7), (2_000_000, 1), (1_000, 3)];
        assert_eq!(doses, expected.map(|(ns, frequency)| Dose { delay: Nanos(ns), frequency }));
        assert_eq!(table.delay(TargetIndex(1)), Nanos(2_000_000));
        assert_eq!(table.delays().into_iter().collect::<Vec<_>>(), [Nanos(1_000), Nanos(2_000_000)]);
    }

    fn function(name: &str, target: u32) -> SelectedFunction {
        SelectedFunction {
            target: TargetIndex(target),
            name: name.to_owned(),
            file: "/a.py".into(),
            line: None,
        }
    }

    #[test]
    fn a_function_has_its_own_dose_or_that_of_its_target() {
        let mut table = table("*:f\n*:g delay=2ms\n", EngineChoice::Auto);
        let [f, g] = [function("f", 0), function("g", 1)];
        assert_eq!((table.number(&f), table.number(&g), table.own_number(&g)), (0, 1, None));
        let dose = |ns| Dose { delay: Nanos(ns), frequency: 1 };
        let own = 2 + LATE_TARGETS;
        assert_eq!(table.set(&Selection::Function(g.clone()), dose(5)), Ok(own));
        assert_eq!(table.set(&Selection::Target(TargetIndex(1)), dose(6)), Ok(1));
        assert_eq!(table.set(&Selection::Function(f.clone()), dose(7)), Ok(own + 1));
        assert_eq!(table.set(&Selection::Function(g.clone()), dose(8)), Ok(own));
        assert_eq!((table.number(&f), table.number(&g), table.own_number(&g)), (own + 1, own, Some(own)));
        let mut numbered: Vec<_> = table.numbered().collect();
        numbered.sort_unstable_by_key(|(number, _)| *number);
        assert_eq!(numbered, [(0, DEFAULT), (1, dose(6)), (own, dose(8)), (own + 1, dose(7))]);
        assert_eq!(table.delays(), [DEFAULT.delay, Nanos(6), Nanos(7), Nanos(8)].into());
        assert_eq!(table.capacity(), own + OWN_DOSES);
    }

    #[test]
    fn targets_are_added_before_the_doses_of_functions() {
        let mut table = table("*:f\n", EngineChoice::Auto);
        let target = added("*:g delay=5us frequency=2\n");
        for number in 0..LATE_TARGETS {
            assert_eq!(table.add(&target), Ok(1 + number));
        }
        assert_eq!(table.dose(TargetIndex(7)), Dose { delay: Nanos(5_000), frequency: 2 });
        assert_eq!(table.add(&target), Err(DoseError::TooManyTargets));
        assert_eq!(table.set(&Selection::Function(function("f", 0)), DEFAULT), Ok(1 + LATE_TARGETS));
    }

    fn added(line: &str) -> Target {
        let targets = ParsedTargets::parse("targets", line.as_bytes(), true).unwrap().decide(|_| false);
        targets.get(TargetIndex(0)).unwrap().clone()
    }

    #[test]
    fn doses_have_a_bound_and_are_of_targets_that_there_are() {
        let mut table = table("*:f\n", EngineChoice::Auto);
        for number in 0..OWN_DOSES {
            let function = function(&number.to_string(), 0);
            assert_eq!(table.set(&Selection::Function(function), DEFAULT), Ok(1 + LATE_TARGETS + number));
        }
        let set = |table: &mut PolicyTable, selection| table.set(&selection, DEFAULT);
        assert_eq!(set(&mut table, Selection::Function(function("one more", 0))), Err(DoseError::TooMany));
        assert_eq!(set(&mut table, Selection::Function(function("7", 0))), Ok(8 + LATE_TARGETS));
        let index = TargetIndex(1);
        let error = set(&mut table, Selection::Target(index)).unwrap_err();
        assert_eq!(error, DoseError::NoTarget { index, targets: 1 });
        assert_eq!(error.to_string(), "there is no target 1: the session has 1");
    }

    #[test]
    fn the_helper_spins_long_delays_where_it_handles_signals() {
        let table = table("native:*/x:f\nnative:*/x:g delay=2ms\n", EngineChoice::Auto);
        let [short, long] = [0, 1].map(|index| table.delay(TargetIndex(index)));
        for (delay, has_signals, kind) in
            [(short, true, EngineKind::Bpf), (long, true, EngineKind::Signal), (long, false, EngineKind::Bpf)]
        {
            assert_eq!(table.engine(delay, Form::Multi, has_signals), kind, "{delay} {has_signals}");
        }
        assert_eq!(table.signalled(Form::Multi).into_iter().collect::<Vec<_>>(), [long]);
    }

    #[test]
    fn python_functions_are_delayed_in_the_helper_and_need_no_signals() {
        let targets = "*:f delay=2ms\nnative:*/x:g delay=3ms\n";
        let helper = Some(EngineKind::Helper);
        for (choice, in_helper, signalled) in [
            (EngineChoice::Auto, [helper, None], &[Nanos(3_000_000)][..]),
            (EngineChoice::Only(EngineKind::Helper), [helper, None], &[]),
            (EngineChoice::Only(EngineKind::Bpf), [None, None], &[]),
            (EngineChoice::Only(EngineKind::Signal), [None, None], &[Nanos(2_000_000), Nanos(3_000_000)]),
        ] {
            let table = table(targets, choice);
            assert_eq!([0, 1].map(|target| table.in_helper(TargetIndex(target))), in_helper, "{choice:?}");
            let signals: Vec<Nanos> = table.signalled(Form::Multi).into_iter().collect();
            assert_eq!(signals, signalled, "{choice:?}");
        }
        let mut table = table(targets, EngineChoice::Auto);
        assert_eq!(table.add(&added("*:h delay=4ms\n")), Ok(2));
        assert_eq!((table.in_helper(TargetIndex(2)), table.in_helper(TargetIndex(3))), (helper, None));
        table
            .set(&Selection::Function(function("f", 0)), Dose { delay: Nanos(9_000_000), frequency: 1 })
            .unwrap();
        assert_eq!(table.signalled(Form::Multi).into_iter().collect::<Vec<_>>(), [Nanos(3_000_000)]);
    }

    #[test]
    fn the_users_choice_comes_first() {
        let only = |kind| table("*:f\n*:g delay=2ms\n*:h delay=0\n", EngineChoice::Only(kind));
        assert!(only(EngineKind::Bpf).signalled(Form::Multi).is_empty());
        // A delay of 0 needs no spin.
        assert_eq!(only(EngineKind::Signal).signalled(Form::Multi).len(), 2);
        let kmod = only(EngineKind::Kmod);
        assert_eq!(kmod.engine(Nanos(1), Form::Multi, false), EngineKind::Kmod);
        assert_eq!(kmod.choice(), EngineChoice::Only(EngineKind::Kmod));
    }
}
