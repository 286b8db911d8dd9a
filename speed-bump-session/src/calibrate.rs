//! Measures the costs of probes on this machine, by the kind of instruction at their site.
//!
//! We measure the costs on stubs of our own. We have no fixed table, because kernels emulate different
//! instructions, and emulation changes a cost by a factor of twenty. The costs correct every delay, so that
//! calls lose exactly the requested delay. We [keep](kept) them until the machine reboots, and each session
//! [checks](check) the costs that it needs.

pub(crate) mod counter;
pub mod kept;
mod line;
mod signal;
pub mod stubs;
mod way_back;
mod way_in;

use std::{
    collections::BTreeSet,
    fs::File,
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use aya::maps::MapError;
use speed_bump_abi::{Coldness, FunctionEntry, FunctionStats, Policy, SiteArguments};

use crate::{
    causes::with_causes,
    engine::bpf::{BpfEngine, Capacity, EngineError, Form, Hold, UprobeProgram, histograms},
    kernel::{KernelFacts, TaskOffsets},
    probe::{
        attach::{self, AttachError, AttachSite, SiteGroup},
        cost::{CostTable, SiteCost},
        file::ProbeFile,
        site::SiteKind,
    },
    units::{Nanos, Pid},
};
pub use signal::measure_signal;
use stubs::Stub;

/// The delay for measuring the constant surplus of a delay: long enough that the loop runs, and short enough
/// for a fast start.
const TRIAL_DELAY: Nanos = Nanos(3_000);
/// How often we call each stub. The median call counts. We time each call on its own. If a busy thread shares
/// the processor and preempts us every 50 us, it disturbs nearly every batch of calls, but only few single
/// calls.
const CALLS: usize = 200;
/// How often we repeat these calls. The smallest median counts: other users of the machine can only add time.
const ROUNDS: usize = 2;
/// How often we call each stub to check a kept cost, and how often the check may fail before we measure the
/// cost again.
const CHECK_CALLS: usize = 48;
const CHECKS: usize = 2;
/// How often we call each stub before timing starts: the first call optimises the site, and the others warm
/// the caches.
const FIRST_CALLS: usize = 8;
/// The stub for measuring the way into a trap and back. Its instruction is of a common kind.
const EVERYDAY: SiteKind = SiteKind::Push;
/// The number of bytes that we touch between two calls: more than a first-level cache, less than a
/// second-level one.
const WORKING_SET: usize = 256 << 10;
/// The size of a cache line in bytes.
const CACHE_LINE: usize = 64;

/// We hold this lock while we probe and call stubs. It contains the thread that removes the former probes
/// from the stubs. Removing them takes the kernel about 30 ms, and the caller need not wait for it.
static ALONE: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Why we could not calibrate the machine.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// We could not load the BPF object.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// We could not probe our own process.
    #[error("cannot attach to our own stubs: {0}")]
    Attach(AttachError),
    /// The kernel refused one of our own stubs.
    #[error("the kernel refuses a uprobe on our own {kind} stub: {error}")]
    Refused {
        /// The kind of the stub.
        kind: SiteKind,
        /// The kernel's error.
        error: io::Error,
    },
    /// We could not find our own stubs in our mappings.
    #[error("cannot find our own calibration stubs in /proc/self/maps: {0}")]
    Stubs(io::Error),
    /// We could not try out signals.
    #[error("the engine `signal` does not work here: {0}; use `--engine bpf`")]
    Signal(io::Error),
    /// We could not write a map.
    #[error("cannot set a BPF map: {}", with_causes(.0))]
    Map(MapError),
    /// The counters could not be read.
    #[error("cannot read the counters of our own stubs: {0}")]
    Stats(io::Error),
    /// We called the stubs, but the probes did not count the calls.
    #[error("uprobes on our own process count {counted} of {made} calls; this kernel's uprobes do not work")]
    Miscounted {
        /// The number of calls that the probes counted.
        counted: u64,
        /// The number of calls that we made.
        made: u64,
    },
}

impl From<AttachError> for CalibrateError {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl From<MapError> for CalibrateError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// Measures this machine. `kernel` is its kernel. Takes half a second.
///
/// # Errors
/// We lack a privilege, or uprobes do not work on this kernel.
pub fn measure(kernel: &KernelFacts) -> Result<CostTable, CalibrateError> {
    match Bench::new(Form::Multi, None, CALLS, |_| true).and_then(|bench| {
        // Up to 6.9, links for one process only see its main thread.
        Ok(bench.covers_threads()?.then_some(bench))
    }) {
        Ok(Some(bench)) => return bench.measure(),
        Ok(None) => tracing::debug!("uprobe_multi links miss threads on this kernel"),
        Err(error) => tracing::debug!("no uprobe_multi links on this kernel: {error}"),
    }
    measure_form(Form::single(kernel))
}

/// Measures this machine with programs in this form.
///
/// # Errors
/// See [`measure`].
pub fn measure_form(form: Form) -> Result<CostTable, CalibrateError> {
    Bench::new(form, None, CALLS, |_| true)?.measure()
}

/// Checks the kept costs of probes on these kinds of instructions. Measures each cost again that is no longer
/// right. Returns whether there was one.
///
/// `signals` are the kernel's offsets, if the session needs signals. We check or measure the cost of signals
/// last.
///
/// # Errors
/// See [`measure`] and [`measure_signal`].
pub fn check(
    costs: &mut CostTable,
    kinds: &BTreeSet<SiteKind>,
    signals: Option<TaskOffsets>,
) -> Result<bool, CalibrateError> {
    let is_needed = |kind| kinds.contains(&kind) || (signals.is_some() && kind == EVERYDAY);
    let mut bench = Bench::new(costs.form, signals, CHECK_CALLS, is_needed)?;
    let mut has_changed = bench.check(costs)?;
    if signals.is_some() {
        has_changed |= bench.check_signal(costs)?;
    }
    Ok(has_changed)
}

/// Whether a measured cost differs from the kept one: it is lower by more than a sixteenth and 30 ns, or more
/// than twice as high. For a single step we accept up to half the cost, because this cost varies by that much
/// from one moment to the next.
///
/// If a cost is within these bounds, the lower one counts. Other users of the machine can only add to a cost,
/// and the processor of a virtual machine sometimes runs at half its speed. If we used a cost that we
/// measured at a slow time, delays would be too short.
fn is_off(kind: SiteKind, kept: Nanos, measured: Nanos) -> bool {
    let noise = if kind == SiteKind::SingleStep { kept.0 / 2 } else { kept.0 / 16 + 30 };
    measured.0.saturating_add(noise) < kept.0 || measured.0 > kept.0.saturating_mul(2).saturating_add(noise)
}

/// A policy with which the BPF program delays every call.
fn spun(delay: Nanos) -> Policy {
    Policy { delay_ns: delay.0, frequency: 1, ..Policy::default() }
}

/// Stubs with probes on them.
struct Bench {
    engine: BpfEngine,
    stubs: Vec<Stub>,
    unprobed: Vec<u64>,
    attachment: attach::Attachment,
    /// The lock. Without the lock, calls of the stubs by another thread would be in our counts.
    alone: MutexGuard<'static, Option<JoinHandle<()>>>,
}

impl Bench {
    /// Probes the stubs of the needed kinds. Before that, times `calls` calls of each stub without a probe.
    fn new(
        form: Form,
        offsets: Option<TaskOffsets>,
        calls: usize,
        is_needed: impl Fn(SiteKind) -> bool,
    ) -> Result<Self, CalibrateError> {
        let mut alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // If the removing thread panicked, probes stay until the process ends, which does no other harm.
        let _ = alone.take().map(JoinHandle::join);
        let mut stubs = Stub::all();
        stubs.retain(|stub| is_needed(stub.kind));
        let unprobed = costs_ns(&stubs, calls);
        let count = u32::try_from(stubs.len()).unwrap_or(u32::MAX);
        let functions = count.saturating_add(1);
        let histograms = histograms(functions, form);
        let capacity = Capacity {
            policies: 1,
            sites: count,
            functions,
            histograms,
            times: false,
            bound: false,
            trampolines: 0,
            called: 1,
            python_usdt: false,
        };
        let mut engine = BpfEngine::load(capacity, form, offsets, Hold::default())?;
        engine.switch().open(Nanos(0), Nanos(u64::MAX));
        engine.switch().renew(Nanos(u64::MAX));
        let offsets = stubs::file_offsets(&stubs).map_err(CalibrateError::Stubs)?;
        let mut sites = Vec::new();
        for (index, offset) in (0_u32..).zip(offsets) {
            engine.set_site(index, SiteArguments { function: index, ..SiteArguments::default() })?;
            engine.functions().set_entry(index, FunctionEntry::NONE);
            sites.push(AttachSite { offset, semaphore: None, site: index });
        }
        let file =
            File::open("/proc/self/exe").and_then(|file| ProbeFile::new(file, "/proc/self/exe".into()));
        let file = Arc::new(file.map_err(CalibrateError::Stubs)?);
        let group = SiteGroup { file, program: UprobeProgram::Site, sites };
        let (attachment, refused) = attach::attach(&engine, Pid::own(), 0, &[group], &|| {})?;
        if let Some(refused) = refused.into_iter().next()
            && let Some(stub) = stubs.get(refused.site.site as usize)
        {
            return Err(CalibrateError::Refused { kind: stub.kind, error: refused.error });
        }
        Ok(Self { engine, stubs, unprobed, attachment, alone })
    }

    /// Whether probes also count calls on threads other than the main one.
    fn covers_threads(&self) -> Result<bool, CalibrateError> {
        let Some(stub) = self.stubs.first().copied() else { return Ok(false) };
        let before = self.stats(0)?.calls;
        // If the thread panics, the probes count nothing, and the result is `false`.
        let _ = thread::spawn(move || stub.call()).join();
        Ok(self.stats(0)?.calls == before + 1)
    }

    fn measure(mut self) -> Result<CostTable, CalibrateError> {
        let began = Instant::now();
        let without_spin = self.without_spin()?;
        let way_in = self.way_in()?;
        self.engine.set_coldness([way_in, Coldness::default()])?;
        let costs = self.with_spin(without_spin)?;

        let made = self.stats(0)?;
        let sweeps = (ROUNDS * (FIRST_CALLS + CALLS)) as u64;
        let expected = 3 * sweeps;
        if made.calls < expected || made.delayed != 2 * sweeps {
            return Err(CalibrateError::Miscounted { counted: made.calls, made: expected });
        }
        // These long delays in the kernel are intended.
        let has_long_spins = self.engine.form().longest_spin().is_none();
        let way_back = if has_long_spins { self.way_back()? } else { Coldness::default() };
        let coldness = [way_in, way_back];
        let nop5_survives_forks = self.nop5_survives_forks();
        tracing::info!("the machine was measured in {}", Nanos::from(began.elapsed()));
        Ok(CostTable { form: self.engine.form(), costs, coldness, nop5_survives_forks, signal: None })
    }

    /// Checks the costs of the probed stubs. Measures each cost again that is no longer right.
    fn check(&mut self, costs: &mut CostTable) -> Result<bool, CalibrateError> {
        self.engine.set_coldness([costs.coldness[Coldness::WAY_IN as usize], Coldness::default()])?;
        let mut off: Vec<SiteKind> = self.stubs.iter().map(|stub| stub.kind).collect();
        for _ in 0..CHECKS {
            let delayed = self.sweep(FunctionEntry::of(0), TRIAL_DELAY, CHECK_CALLS)?;
            for (stub, delayed) in self.stubs.iter().zip(delayed) {
                let overhead = Nanos(delayed.saturating_sub(TRIAL_DELAY.0));
                if !is_off(stub.kind, costs.cost(stub.kind).overhead, overhead) {
                    off.retain(|kind| *kind != stub.kind);
                }
            }
            if off.is_empty() {
                return Ok(false);
            }
        }
        let without_spin = self.without_spin()?;
        for new in self.with_spin(without_spin)?.into_iter().filter(|new| off.contains(&new.kind)) {
            tracing::debug!("a probe on a {} costs other than before: {new:?}", new.kind);
            costs.costs.iter_mut().filter(|cost| cost.kind == new.kind).for_each(|cost| *cost = new);
        }
        Ok(true)
    }

    /// For each stub, how much longer a call takes: first if the program only counts it, and then if it is a
    /// trigger without a spin.
    fn without_spin(&mut self) -> Result<Vec<(u64, u64)>, CalibrateError> {
        let unselected = self.sweeps(FunctionEntry::NONE, Nanos(0))?;
        // The floor is the cost of a trigger that need not spin, because its delay is below the overhead.
        for (index, _) in (0_u32..).zip(&self.stubs) {
            let arguments =
                SiteArguments { function: index, overhead_ns: u32::MAX, ..SiteArguments::default() };
            self.engine.set_site(index, arguments)?;
        }
        let floor = self.sweeps(FunctionEntry::of(0), Nanos(1))?;
        for (index, _) in (0_u32..).zip(&self.stubs) {
            self.engine.set_site(index, SiteArguments { function: index, ..SiteArguments::default() })?;
        }
        Ok(unselected.into_iter().zip(floor).collect())
    }

    /// Adds the overhead of a trigger around its spin. The caller must know the cost of the way in.
    fn with_spin(&mut self, without: Vec<(u64, u64)>) -> Result<Vec<SiteCost>, CalibrateError> {
        let delayed = self.sweeps(FunctionEntry::of(0), TRIAL_DELAY)?;
        let costs = self.stubs.iter().zip(without.into_iter().zip(delayed));
        let costs = costs.map(|(stub, ((unselected, floor), delayed))| SiteCost {
            kind: stub.kind,
            unselected: Nanos(unselected),
            floor: Nanos(floor),
            overhead: Nanos(delayed.saturating_sub(TRIAL_DELAY.0)),
        });
        Ok(costs.collect())
    }

    /// Whether forked children survive a probed 5-byte nop. We try this with the stub: if the kernel rewrites
    /// 5-byte nops, it has done so by now. If the trial fails, we assume that they kill children.
    fn nop5_survives_forks(&self) -> bool {
        let stub = self.stubs.iter().find(|stub| stub.kind == SiteKind::Nop5);
        stub.is_none_or(|stub| {
            let survives = stub.survives_fork();
            if !matches!(survives, Ok(true)) {
                tracing::info!("no probe goes on a 5-byte nop: on this kernel forked children die of those");
            }
            survives.unwrap_or(false)
        })
    }

    /// The [`EVERYDAY`] stub: its site, the stub, and how long a call takes without a probe, in ns. `None` if
    /// this processor has no such stub.
    fn everyday(&self) -> Option<(u32, Stub, u64)> {
        (0_u32..)
            .zip(self.stubs.iter().zip(&self.unprobed))
            .find(|(_, (stub, _))| stub.kind == EVERYDAY)
            .map(|(site, (stub, unprobed))| (site, *stub, *unprobed))
    }

    fn stats(&self, function: u32) -> Result<FunctionStats, CalibrateError> {
        self.engine.functions().stats(function).map_err(CalibrateError::Stats)
    }

    /// Sets the policy of all stubs.
    fn set_policy(&self, policy: Policy) -> Result<(), EngineError> {
        self.engine.switch().set(&[(0, policy)]).map(drop)
    }

    /// For each stub, by how much longer a call takes than without a probe, in ns.
    fn sweep(&self, entry: FunctionEntry, delay: Nanos, calls: usize) -> Result<Vec<u64>, CalibrateError> {
        self.set_policy(spun(delay))?;
        for (index, _) in (0_u32..).zip(&self.stubs) {
            self.engine.functions().set_entry(index, entry);
        }
        let probed = costs_ns(&self.stubs, calls);
        Ok(probed
            .iter()
            .zip(&self.unprobed)
            .map(|(probed, unprobed)| probed.saturating_sub(*unprobed))
            .collect())
    }

    /// The smallest results of several sweeps.
    fn sweeps(&self, entry: FunctionEntry, delay: Nanos) -> Result<Vec<u64>, CalibrateError> {
        let mut least = vec![u64::MAX; self.stubs.len()];
        for _ in 0..ROUNDS {
            let sweep = self.sweep(entry, delay, CALLS)?;
            least.iter_mut().zip(sweep).for_each(|(least, cost)| *least = cost.min(*least));
        }
        Ok(least)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let attachment = mem::take(&mut self.attachment);
        let closing = thread::Builder::new().name("detach-stubs".to_owned()).spawn(move || drop(attachment));
        // If the thread could not start, `spawn` has dropped the closure, and the links with it.
        *self.alone = closing.ok();
    }
}

/// How long a call of each stub takes, in ns. The stubs take turns, so that a slow moment of the machine
/// affects all of them, but only a few calls of each.
///
/// We touch memory between two calls. So the kernel's code for the trap is as cold as in a target that does
/// other work between its calls. If we only called the stubs, a trap would seem to be about 130 ns cheaper
/// than in CPython.
fn costs_ns(stubs: &[Stub], calls: usize) -> Vec<u64> {
    let mut working_set = Vec::new();
    let mut call = |stub: &Stub| {
        touch(&mut working_set);
        timed(*stub)
    };
    let mut taken = vec![Vec::with_capacity(FIRST_CALLS + calls); stubs.len()];
    // A single step makes the next two traps 100 ns slower, so the single-stepped stub does not take turns
    // with the others.
    for is_turn in [|kind| kind != SiteKind::SingleStep, |kind| kind == SiteKind::SingleStep] {
        for _ in 0..FIRST_CALLS + calls {
            for (stub, taken) in stubs.iter().zip(&mut taken).filter(|(stub, _)| is_turn(stub.kind)) {
                taken.push(call(stub));
            }
        }
    }
    taken.iter_mut().map(|taken| median(taken.get_mut(FIRST_CALLS..).unwrap_or_default())).collect()
}

/// How long a call takes, in ns.
#[inline(always)]
fn timed(stub: Stub) -> u64 {
    let start = Instant::now();
    stub.call();
    Nanos::from(start.elapsed()).0
}

/// The median, or the upper one of two; 0 if there are no values. Sorts the values.
fn median(taken: &mut [u64]) -> u64 {
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied().unwrap_or_default()
}

/// Touches [`WORKING_SET`] bytes of memory.
fn touch(working_set: &mut Vec<u8>) {
    working_set.resize(WORKING_SET, 0);
    for byte in working_set.iter_mut().step_by(CACHE_LINE) {
        *byte = byte.wrapping_add(1);
    }
    std::hint::black_box(working_set);
}

#[cfg(test)]
mod tests;
