//! The engine `bpf`: the BPF object with its maps. Each session loads its own.
//!
//! All policy is data in maps: to change a delay, we update a map, and need not attach anew. Nothing here
//! attaches to a process: [`probe::attach`](crate::probe::attach) does that.

pub mod callers;
mod copies;
pub mod decisions;
pub(crate) mod doses;
mod form;
pub mod functions;
pub mod object;
mod programs;
pub mod switch;
pub(crate) mod times;

use std::{
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, LazyLock},
};

use aya::maps::{Array, HashMap, Map, MapData, MapError, RingBuf};
use speed_bump_abi::{
    Coldness, Handshake, Histogram, Policy, PythonKey, SiteArguments, TrampolineKey, Verdict,
    maps::{self, FAULT_COUNT, PYTHON_CAPACITY},
};

use crate::{
    kernel::TaskOffsets,
    sys::mapped_words::MappedWords,
    units::{Nanos, Pid},
};

pub use form::Form;
pub use object::EngineError;
pub use programs::{SiteProgram, UprobeProgram};

use callers::CallerMaps;
use decisions::Decisions;
use functions::FunctionMaps;
use programs::Programs;
use switch::PolicySwitch;

/// The sizes that a session needs for its maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Policies: one for each target, and for each function with its own dose.
    pub policies: u32,
    /// Probe sites, in the programs of all processes.
    pub sites: u32,
    /// Functions, including room for later ones.
    pub functions: u32,
    /// Histograms of delays: one for each function on each processor that delays it.
    pub histograms: u32,
    /// Whether the session may time native functions.
    pub times: bool,
    /// Whether the session may bound the delays of threads.
    pub bound: bool,
    /// Native functions with targets for some callers alone.
    pub called: u32,
    /// Trampolines of all processes.
    pub trampolines: u32,
    /// Whether the session uses CPython's `function__entry`, which needs maps.
    pub python_usdt: bool,
}

impl Capacity {
    /// The number of functions whose times the programs can record.
    fn timed_functions(&self) -> u32 {
        if self.times { self.functions.max(1) } else { 1 }
    }
}

/// The most bytes of kernel memory for histograms.
const HISTOGRAMS_BYTES: usize = 16 << 20;

/// The number of histograms for these functions if all processors may delay them, up to a limit.
pub fn histograms(functions: u32, form: Form) -> u32 {
    if !form.tells_what_comes_next() {
        // On these kernels, the programs cannot number histograms: they would give every function the number
        // of the second histogram. We create only the first one, so no function has a histogram.
        return 1;
    }
    let most = HISTOGRAMS_BYTES / size_of::<Histogram>();
    functions.saturating_mul(processors()).min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// An upper limit for the numbers of processors on this machine (Documentation/admin-guide/cputopology.rst).
pub fn processors() -> u32 {
    static PROCESSORS: LazyLock<u32> = LazyLock::new(|| {
        let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let last = possible.trim_end().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
        let counted = || aya::util::nr_cpus().ok().and_then(|count| u32::try_from(count).ok());
        last.map(|last| last.saturating_add(1)).or_else(counted).unwrap_or(1)
    });
    *PROCESSORS
}

/// How we hold processes after an exec until we trace them. By default we do not hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The longest time for which a process is held.
    pub limit: Nanos,
    /// The most processes that we hold at the same time. Each of them uses a processor.
    pub tasks: u64,
}

/// The loaded BPF object.
pub struct BpfEngine {
    form: Form,
    programs: Programs,
    switch: Arc<PolicySwitch>,
    coldness: Array<MapData, Coldness>,
    sites: Array<MapData, SiteArguments>,
    functions: Arc<FunctionMaps>,
    trampolines: HashMap<MapData, TrampolineKey, u32>,
    python_keys: HashMap<MapData, PythonKey, u32>,
    python_verdicts: Array<MapData, u32>,
    python_pending: Array<MapData, u64>,
    callers: CallerMaps,
    tracked: HashMap<MapData, u32, u8>,
    handshakes: HashMap<MapData, u32, Handshake>,
    faults: Array<MapData, u64>,
    events: Option<RingBuf<MapData>>,
    held: Option<RingBuf<MapData>>,
    decisions: Option<Decisions>,
    /// The links of the programs that follow processes.
    follow: Vec<OwnedFd>,
}

impl BpfEngine {
    /// Loads the object, with maps of these sizes. Attaches nothing and delays nothing.
    ///
    /// `offsets` are the offsets of the running kernel; `None` if we need not follow processes.
    ///
    /// # Errors
    /// We lack a privilege, the kernel lacks something that the programs need, or memory is short.
    pub fn load(
        capacity: Capacity,
        form: Form,
        offsets: Option<TaskOffsets>,
        hold: Hold,
    ) -> Result<Self, EngineError> {
        let object::Loaded { mut maps, programs, decisions } = object::load(capacity, form, offsets, hold)?;
        let words = |name: &'static str, length: usize| match maps.get(name)? {
            Map::Array(array) => MappedWords::of_array(array.fd().as_fd(), length)
                .map_err(|error| EngineError::Mapping { name, error }),
            _ => Err(EngineError::NoMap { name }),
        };
        let rows = capacity.policies.max(1) as usize * Policy::ROWS as usize;
        let switch = PolicySwitch::new(
            words(maps::CONTROL, switch::CONTROL_WORDS)?,
            words(maps::POLICIES, rows * Policy::WORDS)?,
        );
        let functions = FunctionMaps::new(&maps, &capacity)?;
        let callers = CallerMaps::take(&mut maps)?;
        let mut take = |name: &'static str| maps.take(name);
        let coldness = take(maps::COLDNESS)?;
        let sites = take(maps::SITES)?;
        let trampolines = take(maps::TRAMPOLINES)?;
        let python_keys = take(maps::PYTHON_KEYS)?;
        let python_verdicts = take(maps::PYTHON_VERDICTS)?;
        let python_pending = take(maps::PYTHON_PENDING)?;
        let tracked = take(maps::TRACKED)?;
        let handshakes = take(maps::HANDSHAKES)?;
        let faults = take(maps::FAULTS)?;
        let events = take(maps::EVENTS)?;
        let held = take(maps::HELD)?;
        Ok(Self {
            form,
            programs,
            switch: Arc::new(switch),
            coldness: coldness.try_into()?,
            sites: sites.try_into()?,
            functions: Arc::new(functions),
            trampolines: trampolines.try_into()?,
            python_keys: python_keys.try_into()?,
            python_verdicts: python_verdicts.try_into()?,
            python_pending: python_pending.try_into()?,
            callers,
            tracked: tracked.try_into()?,
            handshakes: handshakes.try_into()?,
            faults: faults.try_into()?,
            events: Some(events.try_into()?),
            held: Some(held.try_into()?),
            decisions,
            follow: Vec::new(),
        })
    }

    /// The form of the programs.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Loads a program for sites. The caller must call this before it attaches the program for the first
    /// time.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn load_program(&self, program: UprobeProgram) -> Result<(), EngineError> {
        self.programs.load(program)
    }

    /// The program to attach to a site.
    ///
    /// # Errors
    /// `Unsupported` for a program that this form lacks or that we have not loaded. If each site has its own
    /// program: the error of `BPF_PROG_LOAD`.
    pub fn program(&self, program: UprobeProgram, site: u32) -> io::Result<SiteProgram<'_>> {
        self.programs.program(program, site)
    }

    /// The switch that sets policies and the window. Any thread may use it.
    pub fn switch(&self) -> &Arc<PolicySwitch> {
        &self.switch
    }

    /// Sets how much traps with cold caches cost, and how to recognise cold caches: on the way into the
    /// kernel, and on the way back.
    ///
    /// # Errors
    /// The error of the map update.
    pub fn set_coldness(&mut self, ways: [Coldness; Coldness::WAYS]) -> Result<(), MapError> {
        (0..).zip(ways).try_for_each(|(way, coldness)| self.coldness.set(way, coldness, 0))
    }

    /// Allows the session's signals for a process. The process's helper must have confirmed the signals.
    ///
    /// # Errors
    /// The map is full.
    pub fn set_handshake(&mut self, pid: Pid, handshake: Handshake) -> Result<(), MapError> {
        self.handshakes.insert(pid.get().unsigned_abs(), handshake, 0)
    }

    /// Sets the arguments of a site. The caller must call this before it attaches the site.
    ///
    /// # Errors
    /// `OutOfBounds` for a number beyond the capacity.
    pub fn set_site(&mut self, site: u32, arguments: SiteArguments) -> Result<(), MapError> {
        self.sites.set(site, arguments, 0)
    }

    /// The arguments of a site.
    ///
    /// # Errors
    /// `OutOfBounds` for a number beyond the capacity.
    pub fn site(&self, site: u32) -> Result<SiteArguments, MapError> {
        self.sites.get(&site, 0)
    }

    /// The policies and counters of functions. Any thread may use them.
    pub fn functions(&self) -> &Arc<FunctionMaps> {
        &self.functions
    }

    /// The maps for `caller=` of native functions.
    pub fn callers(&mut self) -> &mut CallerMaps {
        &mut self.callers
    }

    /// Sets the function of a trampoline.
    ///
    /// # Errors
    /// The map is full.
    pub fn set_trampoline(&mut self, key: TrampolineKey, function: u32) -> Result<(), MapError> {
        self.trampolines.insert(key, function, 0)
    }

    /// Removes a trampoline.
    ///
    /// # Errors
    /// The error of the map update. It is no error if there is no such trampoline.
    pub fn remove_trampoline(&mut self, key: &TrampolineKey) -> Result<(), MapError> {
        match self.trampolines.remove(key) {
            Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All code locations that `function__entry` has named so far, with their indices.
    pub fn python_locations(&self) -> impl Iterator<Item = (PythonKey, u32)> + '_ {
        self.python_keys.iter().filter_map(Result::ok)
    }

    /// Sets the verdict on a code location: whether a target selects its function.
    ///
    /// # Errors
    /// `OutOfBounds` for a number beyond the capacity.
    pub fn set_verdict(&mut self, location: u32, verdict: Verdict) -> Result<(), MapError> {
        self.python_verdicts.set(location, verdict.to_bits(), 0)
    }

    /// How many calls of a code location came before it got its verdict.
    ///
    /// # Errors
    /// `OutOfBounds` for a number beyond the capacity.
    pub fn pending_calls(&self, location: u32) -> Result<u64, MapError> {
        if location >= PYTHON_CAPACITY - 1 {
            return Ok(0); // the last element holds the number of locations
        }
        self.python_pending.get(&location, 0)
    }

    /// The counts of faults, in the order of [`maps::Fault`].
    ///
    /// # Errors
    /// The error of the map look-up.
    pub fn faults(&self) -> Result<[u64; FAULT_COUNT as usize], MapError> {
        let mut counts = [0; FAULT_COUNT as usize];
        for (count, index) in counts.iter_mut().zip(0_u32..) {
            *count = self.faults.get(&index, 0)?;
        }
        Ok(counts)
    }

    /// The programs' log of decisions, if they keep one.
    pub fn decisions(&mut self) -> Option<&mut Decisions> {
        self.decisions.as_mut()
    }

    /// Starts to announce forks and execs of tracked processes.
    ///
    /// # Errors
    /// We lack a privilege, or the kernel lacks these tracepoints.
    pub fn follow_processes(&mut self) -> Result<(), EngineError> {
        self.follow.extend(self.programs.follow()?);
        Ok(())
    }

    /// Tracks a process: from now on the programs announce its forks and execs.
    ///
    /// # Errors
    /// The map is full.
    pub fn track(&mut self, pid: Pid) -> Result<(), MapError> {
        self.tracked.insert(pid.get().unsigned_abs(), 1, 0)
    }

    /// Stops tracking a process.
    ///
    /// # Errors
    /// The error of the map update. It is no error if the process was not tracked.
    pub fn untrack(&mut self, pid: Pid) -> Result<(), MapError> {
        let pid = pid.get().unsigned_abs();
        // Only sessions with signals have an entry here.
        let _ = self.handshakes.remove(&pid);
        match self.tracked.remove(&pid) {
            Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The ring buffer of announcements. Only the first call returns it.
    pub fn take_events(&mut self) -> Option<RingBuf<MapData>> {
        self.events.take()
    }

    /// The ring buffer of held processes. Only the first call returns it.
    pub fn take_held(&mut self) -> Option<RingBuf<MapData>> {
        self.held.take()
    }
}

fn is_not_found(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::ENOENT))
}
