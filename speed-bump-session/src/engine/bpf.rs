//! The engine `bpf`: the BPF object with its maps, loaded for one session.
//!
//! All policy is data in maps: changing a delay is one map update, without a new attach. Nothing here
//! attaches to a process; see [`probe::attach`](crate::probe::attach).

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

/// How many elements the session needs; we create the maps with these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Policies: one for each target, and for each function with its own dose.
    pub policies: u32,
    /// Probe sites of all images.
    pub sites: u32,
    /// Functions, including room for later ones.
    pub functions: u32,
    /// Histograms of delays: one for each function on each processor that delays it.
    pub histograms: u32,
    /// Whether native functions may be timed.
    pub times: bool,
    /// Whether what threads are delayed may be bounded.
    pub bound: bool,
    /// Native functions with targets for some callers alone.
    pub called: u32,
    /// Trampolines of all processes.
    pub trampolines: u32,
    /// Whether CPython's `function__entry` is used, which needs maps.
    pub python_usdt: bool,
}

impl Capacity {
    /// The number of functions whose times can be recorded.
    fn timed_functions(&self) -> u32 {
        if self.times { self.functions.max(1) } else { 1 }
    }
}

/// The most bytes of kernel memory for histograms.
const HISTOGRAMS_BYTES: usize = 16 << 20;

/// How many histograms these functions need if all processors may delay them, within limits.
pub fn histograms(functions: u32, form: Form) -> u32 {
    if !form.tells_what_comes_next() {
        // Each function would need the second one, which does not exist.
        return 1;
    }
    let most = HISTOGRAMS_BYTES / size_of::<Histogram>();
    functions.saturating_mul(processors()).min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// How many processors the machine can have: their numbers are less than this
/// (Documentation/admin-guide/cputopology.rst).
pub fn processors() -> u32 {
    static PROCESSORS: LazyLock<u32> = LazyLock::new(|| {
        let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let last = possible.trim_end().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
        let counted = || aya::util::nr_cpus().ok().and_then(|count| u32::try_from(count).ok());
        last.map(|last| last.saturating_add(1)).or_else(counted).unwrap_or(1)
    });
    *PROCESSORS
}

/// How processes are held after an exec until we trace them. The default: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The longest hold.
    pub limit: Nanos,
    /// How many at the same time: each uses a processor.
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
    /// Loads the object with maps of the given sizes. Attaches nothing and delays nothing.
    ///
    /// `offsets` are those of the running kernel, or `None` if processes need not be followed.
    ///
    /// # Errors
    /// A privilege is missing, the kernel lacks something that the programs need, or memory is short.
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

    /// Loads a program for sites. Call it before the first attach of the program.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn load_program(&self, program: UprobeProgram) -> Result<(), EngineError> {
        self.programs.load(program)
    }

    /// The program to attach to a site.
    ///
    /// # Errors
    /// `Unsupported` for a program that this form lacks or that is not loaded; the error of `BPF_PROG_LOAD`
    /// if each site has a program of its own.
    pub fn program(&self, program: UprobeProgram, site: u32) -> io::Result<SiteProgram<'_>> {
        self.programs.program(program, site)
    }

    /// The switch that sets policies and the window, for any thread.
    pub fn switch(&self) -> &Arc<PolicySwitch> {
        &self.switch
    }

    /// Sets the cost of cold traps, and how they are recognised, for both ways.
    ///
    /// # Errors
    /// What the map update returns.
    pub fn set_coldness(&mut self, ways: [Coldness; Coldness::WAYS]) -> Result<(), MapError> {
        (0..).zip(ways).try_for_each(|(way, coldness)| self.coldness.set(way, coldness, 0))
    }

    /// Allows the session's signals for a process: its helper has answered.
    ///
    /// # Errors
    /// The map is full.
    pub fn set_handshake(&mut self, pid: Pid, handshake: Handshake) -> Result<(), MapError> {
        self.handshakes.insert(pid.get().unsigned_abs(), handshake, 0)
    }

    /// Describes a site before it is attached.
    ///
    /// # Errors
    /// `OutOfBounds` beyond the capacity.
    pub fn set_site(&mut self, site: u32, arguments: SiteArguments) -> Result<(), MapError> {
        self.sites.set(site, arguments, 0)
    }

    /// The description of a site.
    ///
    /// # Errors
    /// `OutOfBounds` beyond the capacity.
    pub fn site(&self, site: u32) -> Result<SiteArguments, MapError> {
        self.sites.get(&site, 0)
    }

    /// The policies and counters of functions, for any thread.
    pub fn functions(&self) -> &Arc<FunctionMaps> {
        &self.functions
    }

    /// What `caller=` of native functions needs.
    pub fn callers(&mut self) -> &mut CallerMaps {
        &mut self.callers
    }

    /// Maps a trampoline to a function.
    ///
    /// # Errors
    /// The map is full.
    pub fn set_trampoline(&mut self, key: TrampolineKey, function: u32) -> Result<(), MapError> {
        self.trampolines.insert(key, function, 0)
    }

    /// Removes a trampoline's function.
    ///
    /// # Errors
    /// What the map update returns, except that the key was absent.
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

    /// Sets the verdict on a code location.
    ///
    /// # Errors
    /// `OutOfBounds` beyond the capacity.
    pub fn set_verdict(&mut self, location: u32, verdict: Verdict) -> Result<(), MapError> {
        self.python_verdicts.set(location, verdict.to_bits(), 0)
    }

    /// Calls of a code location before its verdict.
    ///
    /// # Errors
    /// `OutOfBounds` beyond the capacity.
    pub fn pending_calls(&self, location: u32) -> Result<u64, MapError> {
        if location >= PYTHON_CAPACITY - 1 {
            return Ok(0); // the last element holds the number of locations
        }
        self.python_pending.get(&location, 0)
    }

    /// The counts of faults, by [`maps::Fault`] position.
    ///
    /// # Errors
    /// What the map look-up returns.
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

    /// Starts to report forks and execs of tracked processes.
    ///
    /// # Errors
    /// Missing privilege, or a kernel without these tracepoints.
    pub fn follow_processes(&mut self) -> Result<(), EngineError> {
        self.follow.extend(self.programs.follow()?);
        Ok(())
    }

    /// Follows a process: its forks and execs are reported from now on.
    ///
    /// # Errors
    /// The map is full.
    pub fn track(&mut self, pid: Pid) -> Result<(), MapError> {
        self.tracked.insert(pid.get().unsigned_abs(), 1, 0)
    }

    /// No longer follows a process.
    ///
    /// # Errors
    /// What the map update returns, except that the process was not tracked.
    pub fn untrack(&mut self, pid: Pid) -> Result<(), MapError> {
        let pid = pid.get().unsigned_abs();
        // Absent unless the session uses signals.
        let _ = self.handshakes.remove(&pid);
        match self.tracked.remove(&pid) {
            Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The ring buffer of reports; the first caller gets it.
    pub fn take_events(&mut self) -> Option<RingBuf<MapData>> {
        self.events.take()
    }

    /// The ring buffer of held processes; the first caller gets it.
    pub fn take_held(&mut self) -> Option<RingBuf<MapData>> {
        self.held.take()
    }
}

fn is_not_found(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::ENOENT))
}
