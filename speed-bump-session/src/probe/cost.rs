//! The cost of probes on this machine, by the kind of instruction at their site.
//! [`calibrate`](crate::calibrate) measures the costs, and this module holds the results.

use std::{cell::OnceCell, fmt};

use serde::{Deserialize, Serialize};
use speed_bump_abi::Coldness;

use super::site::SiteKind;
use crate::{engine::bpf::Form, units::Nanos};

/// The time that the helper adds to a matching call before the call reaches the stub
/// (docs/internals/helper.md).
pub const HELPER_COST: Nanos = Nanos(15);
/// The smallest delays if the helper counts and delays by itself, from the documentation. The helper uses no
/// trap, so the kind of site does not matter.
pub const IN_HELPER: Floors = Floors { warm: Nanos(40), cold: Nanos(400) };

/// The smallest possible delays of a call, by the thread's previous activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// The smallest delay shortly after another call.
    pub warm: Nanos,
    /// The smallest delay when caches are cold, for example after a sleep or after much other code.
    pub cold: Nanos,
}

impl Floors {
    /// Returns the larger of the two delays for each state of the caches.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { warm: self.warm.max(other.warm), cold: self.cold.max(other.cold) }
    }
}

/// The cost of a probe for the caller, on one kind of instruction, in ns per call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteCost {
    /// The instruction.
    pub kind: SiteKind,
    /// The time that a counted call takes if it is not delayed: the perturbation.
    pub unselected: Nanos,
    /// The smallest delay that a trigger can add: the floor.
    pub floor: Nanos,
    /// The part of a trigger's cost that the BPF program cannot measure. We subtract this part from each
    /// delay.
    pub overhead: Nanos,
}

/// The machine's table of costs, and how this kernel attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    /// How we attach uprobes.
    pub form: Form,
    pub(crate) costs: Vec<SiteCost>,
    pub(crate) coldness: [Coldness; Coldness::WAYS],
    pub(crate) nop5_survives_forks: bool,
    pub(crate) signal: Option<Nanos>,
}

impl CostTable {
    /// A table without measurements.
    pub fn unknown(form: Form) -> Self {
        let coldness = [Coldness::default(); Coldness::WAYS];
        Self { form, costs: Vec::new(), coldness, nop5_survives_forks: false, signal: None }
    }

    /// The smallest delays at a site of this kind.
    pub fn floors(&self, kind: SiteKind) -> Floors {
        let warm = self.cost(kind).floor;
        let [way_in, _] = &self.coldness;
        Floors { warm, cold: warm + Nanos(way_in.more_ns(u64::MAX)) }
    }

    /// The form of the programs on this machine.
    pub fn form(&self) -> Form {
        self.form
    }

    /// How to recognise a trap with cold caches, and how much more it costs: on the way into the kernel, and
    /// on the way back.
    pub fn coldness(&self) -> [Coldness; Coldness::WAYS] {
        self.coldness
    }

    /// The time to deliver a signal and return from its handler. Absent until someone
    /// [measures](crate::calibrate::measure_signal) it.
    pub fn signal(&self) -> Option<Nanos> {
        self.signal
    }

    /// The form of the helper's stub that costs less here. From Linux 6.18 on, the kernel optimises the
    /// five-byte nop. Older kernels single-step it. If forked children would not survive the optimisation, we
    /// do not use this nop.
    pub fn stub(&self) -> SiteKind {
        let [nop5, nop] = [SiteKind::Nop5, SiteKind::Nop].map(|kind| self.price(kind));
        if nop5 < nop { SiteKind::Nop5 } else { SiteKind::Nop }
    }

    /// The cost of a probe on this kind of instruction, for choosing among several. Infinite if forked
    /// children would die of the probe.
    pub fn price(&self, kind: SiteKind) -> Nanos {
        if self.survives_forks(kind) { self.cost(kind).floor } else { Nanos(u64::MAX) }
    }

    /// The cost of a call of a selected Python function through the helper's stub of this kind.
    pub fn through_helper(&self, stub: SiteKind) -> SiteCost {
        let SiteCost { kind, unselected, floor, overhead } = self.cost(stub);
        SiteCost { kind, unselected: unselected + HELPER_COST, floor: floor + HELPER_COST, overhead }
    }

    /// All costs, by kind.
    pub fn costs(&self) -> &[SiteCost] {
        &self.costs
    }

    /// Whether a forked child survives a probe on this kind of instruction if its parent had the probe when
    /// it forked.
    ///
    /// Linux 6.18 rewrites a 5-byte nop to a call into a special page. Children inherit the call, but not the
    /// page. So a child dies of SIGSEGV if it executes the call before we attach to the child, or if we never
    /// attach to it.
    pub fn survives_forks(&self, kind: SiteKind) -> bool {
        kind != SiteKind::Nop5 || self.nop5_survives_forks
    }

    /// The cost of one kind. If we cannot measure this kind here, we use the cost of a single step.
    pub fn cost(&self, kind: SiteKind) -> SiteCost {
        let find = |kind| self.costs.iter().find(|cost| cost.kind == kind).copied();
        find(kind).or_else(|| find(SiteKind::SingleStep)).unwrap_or(SiteCost {
            kind,
            unselected: Nanos(0),
            floor: Nanos(0),
            overhead: Nanos(0),
        })
    }
}

/// The machine's costs, for sessions that need them. Sessions without probes need not measure.
pub struct Costs {
    form: Form,
    table: OnceCell<CostTable>,
    measure: Box<dyn Fn(Form) -> CostTable + Send>,
    tick_ns: u32,
}

impl Costs {
    /// Costs that we know, or measure on first use. `form` is the form that the kernel should support.
    pub fn new(
        form: Form,
        known: Option<CostTable>,
        measure: impl Fn(Form) -> CostTable + Send + 'static,
    ) -> Self {
        let form = known.as_ref().map_or(form, CostTable::form);
        Self {
            form,
            table: known.map(OnceCell::from).unwrap_or_default(),
            measure: Box::new(measure),
            tick_ns: 0,
        }
    }

    /// Costs that we have measured before.
    pub fn measured(table: CostTable) -> Self {
        let copy = table.clone();
        Self::new(table.form(), Some(table), move |_| copy.clone())
    }

    /// The form of the programs on this machine. Does not measure.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The table. Measures now if we do not know the costs.
    pub fn table(&self) -> &CostTable {
        self.table.get_or_init(|| (self.measure)(self.form))
    }

    /// The table, if we know the costs.
    pub fn known(&self) -> Option<&CostTable> {
        self.table.get()
    }

    /// Sets the costs.
    pub fn set(&mut self, table: CostTable) {
        self.table = table.into();
    }

    /// The processor's rate, for [`SiteArguments::tick_ns`](speed_bump_abi::SiteArguments::tick_ns); 0 if
    /// unknown.
    pub fn tick_ns(&self) -> u32 {
        self.tick_ns
    }

    /// Sets the processor's rate.
    pub fn set_tick_ns(&mut self, tick_ns: u32) {
        self.tick_ns = tick_ns;
    }
}

impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Costs").field("form", &self.form).field("table", &self.table).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    #[test]
    fn nothing_is_measured_before_it_is_asked_for() {
        let times = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&times);
        let measure = move |form| {
            counted.fetch_add(1, Ordering::Relaxed);
            CostTable { form, ..machine(&[(SiteKind::Push, 500)], true) }
        };
        let mut costs = Costs::new(Form::Single, None, measure);
        assert_eq!((costs.form(), costs.known(), costs.tick_ns()), (Form::Single, None, 0));
        assert_eq!(times.load(Ordering::Relaxed), 0);
        let floor = |costs: &Costs| costs.table().cost(SiteKind::Push).floor;
        assert_eq!(
            (floor(&costs), floor(&costs), costs.table().form()),
            (Nanos(500), Nanos(500), Form::Single)
        );
        assert_eq!(times.load(Ordering::Relaxed), 1);
        costs.set(machine(&[(SiteKind::Push, 600)], true));
        costs.set_tick_ns(7);
        assert_eq!((floor(&costs), costs.tick_ns()), (Nanos(600), 7));
        // A known table decides the form.
        assert_eq!(Costs::measured(machine(&[], true)).form(), Form::Multi);
    }

    /// A machine on which probes have these costs. The costs of other kinds are unknown.
    fn machine(floors: &[(SiteKind, u64)], nop5_survives_forks: bool) -> CostTable {
        let cost = |&(kind, floor): &(SiteKind, u64)| SiteCost {
            kind,
            unselected: Nanos(floor - 50),
            floor: Nanos(floor),
            overhead: Nanos(floor + 7),
        };
        CostTable {
            form: Form::Multi,
            costs: floors.iter().map(cost).collect(),
            coldness: [Coldness::default(); Coldness::WAYS],
            nop5_survives_forks,
            signal: None,
        }
    }

    #[test]
    fn what_was_not_measured_costs_a_single_step() {
        let machine = machine(&[(SiteKind::Push, 500), (SiteKind::SingleStep, 9_500)], true);
        let push = SiteCost {
            kind: SiteKind::Push,
            unselected: Nanos(450),
            floor: Nanos(500),
            overhead: Nanos(507),
        };
        assert_eq!(machine.cost(SiteKind::Push), push);
        for kind in [SiteKind::Call, SiteKind::SingleStep] {
            assert_eq!(
                (machine.cost(kind).floor, machine.price(kind)),
                (Nanos(9_500), Nanos(9_500)),
                "{kind}"
            );
        }
        assert_eq!(machine.costs().len(), 2);
        assert_eq!((machine.form(), machine.signal()), (Form::Multi, None));
        // If we do not even know the cost of a single step, we invent no cost.
        let nothing = self::machine(&[], true).cost(SiteKind::Call);
        let free =
            SiteCost { kind: SiteKind::Call, unselected: Nanos(0), floor: Nanos(0), overhead: Nanos(0) };
        assert_eq!(nothing, free);
    }

    #[test]
    fn the_helpers_stub_is_the_cheaper_one_that_children_survive() {
        for (nop5, nop, survives, stub) in [
            (345, 500, true, SiteKind::Nop5),
            (345, 500, false, SiteKind::Nop),
            (9_500, 500, true, SiteKind::Nop),
            (500, 500, true, SiteKind::Nop),
        ] {
            let machine = machine(&[(SiteKind::Nop5, nop5), (SiteKind::Nop, nop)], survives);
            assert_eq!(machine.stub(), stub, "{nop5} {nop} {survives}");
            assert_eq!(machine.survives_forks(SiteKind::Nop5), survives);
            assert!(machine.survives_forks(SiteKind::Nop));
            let price = if survives { Nanos(nop5) } else { Nanos(u64::MAX) };
            assert_eq!((machine.price(SiteKind::Nop5), machine.price(SiteKind::Nop)), (price, Nanos(nop)));
        }
    }

    #[test]
    fn the_helper_adds_its_own_cost_to_a_call() {
        let machine = machine(&[(SiteKind::Nop, 500)], true);
        let cost = machine.through_helper(SiteKind::Nop);
        let expected = SiteCost {
            kind: SiteKind::Nop,
            unselected: Nanos(450) + HELPER_COST,
            floor: Nanos(500) + HELPER_COST,
            overhead: Nanos(507),
        };
        assert_eq!(cost, expected);
    }

    #[test]
    fn a_cold_call_costs_what_the_whole_line_says() {
        use speed_bump_abi::ColdSegment;
        let mut machine = machine(&[(SiteKind::Push, 500)], true);
        let floors = |machine: &CostTable| machine.floors(SiteKind::Push);
        assert_eq!(floors(&machine), Floors { warm: Nanos(500), cold: Nanos(500) });
        let segment = ColdSegment { length_ns: 100, factor: 20 * Coldness::ONE };
        machine.coldness[0].segments = [segment, ColdSegment::default(), segment];
        assert_eq!(floors(&machine), Floors { warm: Nanos(500), cold: Nanos(4_500) });
        let other = Floors { warm: Nanos(700), cold: Nanos(800) };
        assert_eq!(floors(&machine).max(other), Floors { warm: Nanos(700), cold: Nanos(4_500) });
    }

    #[test]
    fn a_machine_is_as_it_was_measured() {
        let way_back = Coldness { warm_ns: 7, ..Coldness::default() };
        let coldness = [Coldness::default(), way_back];
        let machine = CostTable { coldness, signal: Some(Nanos(900)), ..machine(&[], true) };
        assert_eq!((machine.coldness(), machine.signal()), (coldness, Some(Nanos(900))));
    }
}
