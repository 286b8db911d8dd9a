//! CostTable: what a probe costs on this machine, by the kind of instruction it sits on.
//!
//! Measured at start-up on stubs of our own, never looked up in a table: kernels differ by a factor of
//! twenty in what they emulate. The result corrects every delay, so that requested is delivered.

pub(crate) mod counter;
mod line;
mod signal;
pub mod stubs;
mod way_back;
mod way_in;

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
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
use counter::Reading;
pub use signal::measure_signal;
use stubs::Stub;

/// Delay with which the constant surplus of a spin is measured; long enough that the loop runs, short
/// enough that start-up stays fast.
const TRIAL_DELAY: Nanos = Nanos(3_000);
/// Calls of each stub, whose median counts. Each is timed by itself: where a busy thread shares the processor
/// and preempts us every 50 us, nearly every batch of calls is spoilt, and few of the calls.
const CALLS: usize = 320;
/// Calls of each stub before that: the first optimises the site, the others warm what stays warm.
const FIRST_CALLS: usize = 8;
/// The stub by which the ways in and back are measured: of an everyday kind.
const EVERYDAY: SiteKind = SiteKind::Push;
/// Bytes touched between two calls: more than a first-level cache, less than a second-level one.
const WORKING_SET: usize = 256 << 10;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Held while stubs are probed and called.
static ALONE: Mutex<()> = Mutex::new(());

/// Why the machine could not be calibrated.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The BPF object could not be loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Our own process could not be probed.
    #[error("cannot attach to our own stubs: {0}")]
    Attach(AttachError),
    /// The kernel refused one of our own stubs.
    #[error("the kernel refuses a uprobe on our own {kind} stub: {error}")]
    Refused {
        /// The stub.
        kind: SiteKind,
        /// What the kernel said.
        error: io::Error,
    },
    /// The stubs could not be found in our own image.
    #[error("cannot find our own calibration stubs in /proc/self/maps: {0}")]
    Stubs(io::Error),
    /// Signals could not be tried.
    #[error("the engine `signal` does not work here: {0}; use `--engine bpf`")]
    Signal(io::Error),
    /// A map could not be written.
    #[error("cannot set a BPF map: {}", with_causes(.0))]
    Map(MapError),
    /// The counters could not be read.
    #[error("cannot read the counters of our own stubs: {0}")]
    Stats(io::Error),
    /// The stubs were called and the probes did not count it.
    #[error("uprobes on our own process count {counted} of {made} calls; this kernel's uprobes do not work")]
    Miscounted {
        /// What the probes counted.
        counted: u64,
        /// The calls made.
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

/// Measures this machine, which has this kernel. Takes some tens of milliseconds.
///
/// # Errors
/// Missing privilege, or a kernel on which uprobes do not work.
pub fn measure(kernel: &KernelFacts) -> Result<CostTable, CalibrateError> {
    match Bench::new(Form::Multi, None).and_then(|bench| {
        // Up to 6.9 the link's process filter took the process for its main thread.
        Ok(bench.covers_threads()?.then_some(bench))
    }) {
        Ok(Some(bench)) => return bench.measure(),
        Ok(None) => tracing::debug!("uprobe_multi links miss threads on this kernel"),
        Err(error) => tracing::debug!("no uprobe_multi links on this kernel: {error}"),
    }
    Bench::new(Form::single(kernel), None)?.measure()
}

/// A policy of delaying every call in the program.
fn spun(delay: Nanos) -> Policy {
    Policy { delay_ns: delay.0, frequency: 1, ..Policy::default() }
}

/// The stubs with probes on them.
struct Bench {
    engine: BpfEngine,
    stubs: Vec<Stub>,
    unprobed: Vec<u64>,
    _attachment: attach::Attachment,
    /// Another would count our calls of the stubs.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(form: Form, offsets: Option<TaskOffsets>) -> Result<Self, CalibrateError> {
        // The lock guards no data.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let stubs = Stub::all();
        let unprobed = costs_ns(&stubs);
        let count = u32::try_from(stubs.len()).unwrap_or(u32::MAX);
        let functions = count.saturating_add(1);
        let histograms = histograms(functions, form);
        let capacity =
            Capacity { policies: 1, sites: count, functions, histograms, trampolines: 0, python_usdt: false };
        let mut engine = BpfEngine::load(capacity, form, offsets, Hold::default())?;
        engine.switch().open(Nanos(0), Nanos(u64::MAX));
        engine.switch().renew(Nanos(u64::MAX));
        let mut sites = Vec::new();
        for (index, stub) in (0_u32..).zip(&stubs) {
            engine.set_site(index, SiteArguments { function: index, ..SiteArguments::default() })?;
            engine.functions().set_entry(index, FunctionEntry::NONE);
            let offset = stub.file_offset().map_err(CalibrateError::Stubs)?;
            sites.push(AttachSite { offset, semaphore: None, site: index });
        }
        let file =
            File::open("/proc/self/exe").and_then(|file| ProbeFile::new(file, "/proc/self/exe".into()));
        let file = Arc::new(file.map_err(CalibrateError::Stubs)?);
        let group = SiteGroup { file, program: UprobeProgram::Site, sites };
        let (attachment, refused) = attach::attach(&engine, Pid::own(), 0, &[group])?;
        if let Some(refused) = refused.into_iter().next()
            && let Some(stub) = stubs.get(refused.site.site as usize)
        {
            return Err(CalibrateError::Refused { kind: stub.kind, error: refused.error });
        }
        Ok(Self { engine, stubs, unprobed, _attachment: attachment, _alone: alone })
    }

    /// Whether calls on another thread than the main one are seen.
    fn covers_threads(&self) -> Result<bool, CalibrateError> {
        let Some(stub) = self.stubs.first().copied() else { return Ok(false) };
        let before = self.stats(0)?.calls;
        // A panic in the thread would only mean that nothing was counted.
        let _ = thread::spawn(move || stub.call()).join();
        Ok(self.stats(0)?.calls == before + 1)
    }

    fn measure(mut self) -> Result<CostTable, CalibrateError> {
        let started = Reading::now();
        let unselected = self.sweep(FunctionEntry::NONE, Nanos(0))?;
        // The floor is a trigger that has nothing left to spin: a delay below the overhead.
        for (index, _) in (0_u32..).zip(&self.stubs) {
            let arguments =
                SiteArguments { function: index, overhead_ns: u32::MAX, ..SiteArguments::default() };
            self.engine.set_site(index, arguments)?;
        }
        let floor = self.sweep(FunctionEntry::of(0), Nanos(1))?;
        for (index, _) in (0_u32..).zip(&self.stubs) {
            self.engine.set_site(index, SiteArguments { function: index, ..SiteArguments::default() })?;
        }
        let way_in = self.way_in()?;
        self.engine.set_coldness([way_in, Coldness::default()])?;
        let delayed = self.sweep(FunctionEntry::of(0), TRIAL_DELAY)?;

        let made = self.stats(0)?;
        let sweep = (FIRST_CALLS + CALLS) as u64;
        let expected = 3 * sweep;
        if made.calls < expected || made.delayed != 2 * sweep {
            return Err(CalibrateError::Miscounted { counted: made.calls, made: expected });
        }
        // Long spins are what it is about.
        let has_long_spins = self.engine.form().longest_spin().is_none();
        let way_back = if has_long_spins { self.way_back()? } else { Coldness::default() };
        let coldness = [way_in, way_back];
        let nop5_survives_forks = self.nop5_survives_forks();
        let costs = self
            .stubs
            .iter()
            .zip(unselected.iter().zip(&floor).zip(&delayed))
            .map(|(stub, ((unselected, floor), delayed))| SiteCost {
                kind: stub.kind,
                unselected: Nanos(*unselected),
                floor: Nanos(*floor),
                overhead: Nanos(delayed.saturating_sub(TRIAL_DELAY.0)),
            })
            .collect();
        let form = self.engine.form();
        Ok(CostTable { form, costs, coldness, nop5_survives_forks, tick_ns: started.tick_ns(), signal: None })
    }

    /// Tried with the stub, which the kernel has rewritten by now if it does that. In doubt it is taken for
    /// deadly.
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

    /// The [`EVERYDAY`] stub: its site, itself, and what a call of it takes without a probe, in ns. `None`
    /// where the processor has none.
    fn everyday(&self) -> Option<(u32, Stub, u64)> {
        (0_u32..)
            .zip(self.stubs.iter().zip(&self.unprobed))
            .find(|(_, (stub, _))| stub.kind == EVERYDAY)
            .map(|(site, (stub, unprobed))| (site, *stub, *unprobed))
    }

    fn stats(&self, function: u32) -> Result<FunctionStats, CalibrateError> {
        self.engine.functions().stats(function).map_err(CalibrateError::Stats)
    }

    /// Sets the one policy that there is.
    fn set_policy(&self, policy: Policy) -> Result<(), EngineError> {
        self.engine.switch().set(&[(0, policy)]).map(drop)
    }

    /// What each stub's call costs more than without a probe, in ns.
    fn sweep(&mut self, entry: FunctionEntry, delay: Nanos) -> Result<Vec<u64>, CalibrateError> {
        self.set_policy(spun(delay))?;
        for (index, _) in (0_u32..).zip(&self.stubs) {
            self.engine.functions().set_entry(index, entry);
        }
        let probed = costs_ns(&self.stubs);
        Ok(probed
            .iter()
            .zip(&self.unprobed)
            .map(|(probed, unprobed)| probed.saturating_sub(*unprobed))
            .collect())
    }
}

/// What a call of each stub takes, in ns. The stubs take turns, so that a slow moment of the machine falls on
/// all of them and on few calls of each.
///
/// Between two calls memory is touched, so that the kernel's path to the program is as cold as a target
/// leaves it that does something between its calls: a bare loop over the stubs makes a trap look some 130 ns
/// cheaper than it is in CPython.
fn costs_ns(stubs: &[Stub]) -> Vec<u64> {
    let mut working_set = Vec::new();
    let mut call = |stub: &Stub| {
        touch(&mut working_set);
        timed(*stub)
    };
    let mut taken = vec![Vec::with_capacity(FIRST_CALLS + CALLS); stubs.len()];
    // A single step leaves the processor such that the next two traps cost 100 ns more: those take no turns.
    for is_turn in [|kind| kind != SiteKind::SingleStep, |kind| kind == SiteKind::SingleStep] {
        for _ in 0..FIRST_CALLS + CALLS {
            for (stub, taken) in stubs.iter().zip(&mut taken).filter(|(stub, _)| is_turn(stub.kind)) {
                taken.push(call(stub));
            }
        }
    }
    taken.iter_mut().map(|taken| median(taken.get_mut(FIRST_CALLS..).unwrap_or_default())).collect()
}

/// What one call takes, in ns.
#[inline(always)]
fn timed(stub: Stub) -> u64 {
    let start = Instant::now();
    stub.call();
    Nanos::from(start.elapsed()).0
}

/// The median, the upper one of two; 0 of nothing. Sorts.
fn median(taken: &mut [u64]) -> u64 {
    taken.sort_unstable();
    taken.get(taken.len() / 2).copied().unwrap_or_default()
}

/// Touches a [`WORKING_SET`].
fn touch(working_set: &mut Vec<u8>) {
    working_set.resize(WORKING_SET, 0);
    for byte in working_set.iter_mut().step_by(CACHE_LINE) {
        *byte = byte.wrapping_add(1);
    }
    std::hint::black_box(working_set);
}

#[cfg(test)]
mod tests;
