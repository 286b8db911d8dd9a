//! Prepares a session before it covers any process: loads its engines, and sets up its doses.

use std::sync::Arc;

use super::{
    capacity,
    context::Context,
    coverage::Coverage,
    engines::Engines,
    handshake,
    helper_doses::{HelperDoses, HelperRanges, NoPrograms},
    helpers::Helpers,
    limits,
    phase::Processes,
    probes::Probes,
    signals::SignalDoses,
    window::Window,
};
use crate::{
    engine::{
        Engine, EngineChoice, EngineKind,
        bpf::{BpfEngine, Capacity, Hold, doses::BpfDoses, switch::PolicySwitch},
    },
    kernel::TaskOffsets,
    launch::Wake,
    presence::HelperSetup,
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    python::helper::{HelperClock, InPlace},
    session::{
        doses::Doses, error::SessionError, functions::FunctionTable, settings::Settings, state::State,
        stop::Stop,
    },
    targets::TargetKind,
};

/// Whether the session needs the BPF object. The session needs the object for probes, for signals, and for
/// children, because the object's programs announce forks and execs. The session needs no object if helpers
/// delay Python functions, and the request asks for nothing else.
pub(super) fn needs_object(resolver: &Resolver, settings: &Settings, roots: &[(Process, Plan)]) -> bool {
    let is_for_helper = |plan: &Plan| plan.wants_helper() && plan.sites.is_empty();
    settings.policies.choice() != EngineChoice::Only(EngineKind::Helper)
        || settings.children
        || resolver.targets().iter().any(|(_, target)| target.kind != TargetKind::Python)
        || !roots.iter().all(|(_, plan)| is_for_helper(plan))
}

/// What the BPF object must support.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) capacity: Capacity,
    /// The offsets in kernel structures that the programs for forks and execs need.
    pub(super) follow: Option<TaskOffsets>,
    /// How we hold the children of a command when they execute programs.
    pub(super) hold: Hold,
}

/// Loads the engines, and covers nothing yet. Loads the BPF object only if the session needs it. When a
/// helper is loaded, it calls `wake`.
///
/// # Errors
/// Loading has failed. Nothing is left behind.
pub(super) fn load(
    resolver: Resolver,
    settings: Settings,
    object: Option<Object>,
    roots: &[(Process, Plan)],
    stop: Stop,
    wake: Wake,
) -> Result<Coverage, SessionError> {
    if object.is_some() {
        limits::check(&resolver, &settings, roots)?;
    }
    let asked = stop.clone();
    resolver.explaining().ends_when({
        let asked = asked.clone();
        move || asked.times() > 0
    });
    resolver.effort().ends_when(move || asked.times() > 0);
    let (signals, limits) = handshake::choose_signals(&resolver, &settings, roots)?.unzip();
    let (engine, switch) = match object {
        Some(Object { capacity, follow, hold }) => {
            let mut engine = BpfEngine::load(capacity, resolver.form(), follow, hold)?;
            if let Some(costs) = resolver.costs().known() {
                engine.set_coldness(costs.coldness())?;
            }
            let switch = Arc::clone(engine.switch());
            (Some(engine), switch)
        }
        None => {
            let switch = PolicySwitch::without_programs(settings.policies.capacity());
            (None, Arc::new(switch.map_err(SessionError::Memory)?))
        }
    };
    // The window is closed until everything is attached: its time counts from its opening.
    let window = Window::start(&switch).map_err(SessionError::Thread)?;
    let may_inject = resolver.may_inject() || settings.policies.wants_helper();
    let setup = may_inject.then(|| HelperSetup::new(&resolver, settings.inject_timeout)).transpose();
    let mut setup = setup.map_err(|error| SessionError::Python(error.to_string()))?;
    if let (Some(setup), Some(signals)) = (&mut setup, &signals) {
        setup.signals = signals.for_helpers().into();
    }
    let in_helper = settings.policies.choice().delays_in_helper();
    if let Some(setup) = setup.as_mut().filter(|_| in_helper) {
        setup.in_place = Some(InPlace {
            clock: HelperClock::of_machine(resolver.costs().tick_ns()),
            policies: settings.policies.capacity(),
            children: settings.children,
            times: settings.may_time,
            timing: u32::from(settings.times),
            callers: settings.callers,
        });
    }
    let for_ranges = in_helper.then_some(capacity::HELPERS_FUNCTIONS);
    // The indices of helpers come after the indices that BPF programs count.
    let first = object.map_or(0, |object| object.capacity.functions);
    let functions = FunctionTable::new(first, for_ranges, capacity::room_for_names(roots));
    let doses: Box<dyn Engine> = match (engine.as_ref().map(BpfDoses::new), &signals) {
        (Some(bpf), Some(signals)) => Box::new(SignalDoses { bpf, signals: signals.clone() }),
        (Some(bpf), None) => Box::new(bpf),
        (None, _) => Box::new(NoPrograms(switch)),
    };
    let ranges = HelperRanges::default();
    let doses =
        if in_helper { Box::new(HelperDoses { inner: doses, ranges: ranges.clone(), first }) } else { doses };
    let targets = Arc::clone(resolver.shared_targets());
    let doses = Doses::start(doses, functions, &settings, targets)?;
    let mut state = State::new(doses, &settings, stop);
    limits.into_iter().flatten().for_each(|limit| state.warn(limit));
    let probes =
        object.zip(engine).map(|(object, engine)| Probes::new(engine, &object.capacity, settings.times));
    Ok(Coverage {
        context: Context { is_timing: settings.times, new_targets: Vec::new(), state, resolver, settings },
        processes: Processes::default(),
        engines: Engines { probes, helpers: Helpers::new(setup, ranges, signals, wake), window },
    })
}

/// Where the running kernel keeps what the programs for forks and execs need. Without these offsets, the
/// session looks for new processes at intervals.
pub(super) fn offsets_to_follow() -> Option<TaskOffsets> {
    let offsets = TaskOffsets::usable();
    offsets.inspect_err(|error| tracing::info!("forks and execs are found by polling: {error}")).ok()
}
