//! What a session begins with, before any process is covered: its engines, loaded, and its doses.

use std::sync::Arc;

use super::{
    capacity,
    context::Context,
    coverage::Coverage,
    engines::Engines,
    handshake,
    helper_doses::{HelperDoses, HelperRanges},
    helpers::Helpers,
    limits,
    phase::Processes,
    probes::Probes,
    signals::SignalDoses,
    window::Window,
};
use crate::{
    engine::{
        Engine,
        bpf::{BpfEngine, Capacity, Hold, doses::BpfDoses},
    },
    kernel::TaskOffsets,
    launch::Wake,
    presence::HelperSetup,
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    python::helper::{HelperClock, InPlace},
    session::{SessionError, Settings, doses::Doses, functions::FunctionTable, state::State, stop::Stop},
};

/// What the BPF object is loaded for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) capacity: Capacity,
    /// What following forks and execs needs of the running kernel.
    pub(super) follow: Option<TaskOffsets>,
    /// How children of a command are held when they have executed a program.
    pub(super) hold: Hold,
}

/// Loads the engines, and covers nothing yet. Helpers call `wake` when they have come.
///
/// # Errors
/// Nothing is left behind.
pub(super) fn load(
    resolver: Resolver,
    settings: Settings,
    object: Object,
    roots: &[(Process, Plan)],
    stop: Stop,
    wake: Wake,
) -> Result<Coverage, SessionError> {
    limits::check(&resolver, &settings, roots)?;
    let asked = stop.clone();
    resolver.explaining().ends_when({
        let asked = asked.clone();
        move || asked.times() > 0
    });
    resolver.effort().ends_when(move || asked.times() > 0);
    let Object { capacity, follow, hold } = object;
    let (signals, limits) = handshake::choose_signals(&resolver, &settings, roots)?.unzip();
    let mut engine = BpfEngine::load(capacity, resolver.form(), follow, hold)?;
    if let Some(costs) = resolver.costs().known() {
        engine.set_coldness(costs.coldness())?;
    }
    // The window is closed until everything is attached, so that it counts from there.
    let window = Window::start(engine.switch()).map_err(SessionError::Thread)?;
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
            policies: capacity.policies,
            children: settings.children,
            times: settings.times,
            callers: settings.callers,
        });
    }
    let for_ranges = in_helper.then_some(capacity::HELPERS_FUNCTIONS);
    let functions = FunctionTable::new(capacity.functions, for_ranges, capacity::room_for_names(roots));
    let bpf = BpfDoses::of(&engine);
    let doses: Box<dyn Engine> = match &signals {
        Some(signals) => Box::new(SignalDoses { bpf, signals: signals.clone() }),
        None => Box::new(bpf),
    };
    let ranges = HelperRanges::default();
    let doses = if in_helper {
        Box::new(HelperDoses { inner: doses, ranges: ranges.clone(), first: capacity.functions })
    } else {
        doses
    };
    let targets = Arc::clone(resolver.shared_targets());
    let doses = Doses::start(doses, functions, settings.policies.clone(), targets)?;
    let mut state = State::new(doses, &settings, stop);
    limits.into_iter().flatten().for_each(|limit| state.warn(limit));
    Ok(Coverage {
        context: Context { state, resolver, settings },
        processes: Processes::default(),
        engines: Engines {
            probes: Some(Probes::new(engine, capacity.sites)),
            helpers: Helpers::new(setup, ranges, signals, wake),
            window,
        },
    })
}

/// Where the running kernel keeps what following forks and execs needs; without it they are found by looking.
pub(super) fn offsets_to_follow() -> Option<TaskOffsets> {
    let offsets = TaskOffsets::usable();
    offsets.inspect_err(|error| tracing::info!("forks and execs are found by polling: {error}")).ok()
}
