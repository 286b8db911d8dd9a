//! The policy of a session: which delay a call gets, how often, and who spins it. The only place that knows.

use std::collections::BTreeSet;

use crate::{
    engine::{EngineChoice, EngineKind, bpf::Form},
    targets::{Target, TargetIndex, Targets},
    units::Nanos,
};

/// What happens to the matching calls of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dose {
    /// Spin per trigger; 0 counts calls and delays none.
    pub delay: Nanos,
    /// Every how many matching calls is a trigger; at least 1.
    pub frequency: u64,
}

/// The dose of each target of a session, and which engine is to spin it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTable {
    choice: EngineChoice,
    default: Dose,
    /// By [`TargetIndex`].
    doses: Vec<Dose>,
}

impl PolicyTable {
    /// The doses that the targets give. What a target leaves open is the default's.
    pub fn new(targets: &Targets, default: Dose, choice: EngineChoice) -> Self {
        let dose = |(_, target): (TargetIndex, &Target)| Dose {
            delay: target.delay.unwrap_or(default.delay),
            frequency: target.frequency.map_or(default.frequency, u64::from),
        };
        Self { choice, default, doses: targets.iter().map(dose).collect() }
    }

    /// The dose of a target; the default of one that there is not.
    pub fn dose(&self, target: TargetIndex) -> Dose {
        self.doses.get(target.0 as usize).copied().unwrap_or(self.default)
    }

    /// The delay of a target.
    pub fn delay(&self, target: TargetIndex) -> Nanos {
        self.dose(target).delay
    }

    /// All different delays of the targets.
    pub fn delays(&self) -> BTreeSet<Nanos> {
        self.doses.iter().map(|dose| dose.delay).collect()
    }

    /// Which engine the user wants.
    pub fn choice(&self) -> EngineChoice {
        self.choice
    }

    /// Who spins a delay, with programs of this form, in a process that the helper is in and handles signals
    /// in, or is not.
    pub fn engine(&self, delay: Nanos, form: Form, has_signals: bool) -> EngineKind {
        match self.choice.engine(delay, form) {
            EngineKind::Signal if !has_signals => EngineKind::Bpf,
            kind => kind,
        }
    }

    /// The different delays that are the helper's, wherever it is in.
    pub fn signalled(&self, form: Form) -> BTreeSet<Nanos> {
        let mut delays = self.delays();
        delays.retain(|delay| self.engine(*delay, form, true) == EngineKind::Signal);
        delays
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::targets::Reading;

    const DEFAULT: Dose = Dose { delay: Nanos(1_000), frequency: 3 };

    fn table(targets: &str, choice: EngineChoice) -> PolicyTable {
        let reading = Reading { is_elf: &|_| false, allow_empty: true };
        PolicyTable::new(&Targets::parse("targets", targets.as_bytes(), reading).unwrap(), DEFAULT, choice)
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

    #[test]
    fn the_helper_spins_long_delays_where_it_handles_signals() {
        let table = table("*:f\n*:g delay=2ms\n", EngineChoice::Auto);
        let [short, long] = [0, 1].map(|index| table.delay(TargetIndex(index)));
        for (delay, has_signals, kind) in
            [(short, true, EngineKind::Bpf), (long, true, EngineKind::Signal), (long, false, EngineKind::Bpf)]
        {
            assert_eq!(table.engine(delay, Form::Multi, has_signals), kind, "{delay} {has_signals}");
        }
        assert_eq!(table.signalled(Form::Multi).into_iter().collect::<Vec<_>>(), [long]);
    }

    #[test]
    fn the_users_choice_comes_first() {
        let only = |kind| table("*:f\n*:g delay=2ms\n*:h delay=0\n", EngineChoice::Only(kind));
        assert!(only(EngineKind::Bpf).signalled(Form::Multi).is_empty());
        // A delay of 0 leaves nothing to spin.
        assert_eq!(only(EngineKind::Signal).signalled(Form::Multi).len(), 2);
        let kmod = only(EngineKind::Kmod);
        assert_eq!(kmod.engine(Nanos(1), Form::Multi, false), EngineKind::Kmod);
        assert_eq!(kmod.choice(), EngineChoice::Only(EngineKind::Kmod));
    }
}
