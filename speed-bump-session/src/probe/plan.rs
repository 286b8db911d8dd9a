//! A plan: which functions the targets select in one process image, and where to put the probes for them.
//!
//! Resolving makes plans and attaches nothing; the session carries them out and resolves nothing.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    path::PathBuf,
    sync::Arc,
};

use serde::Serialize;
use speed_bump_abi::{ArgumentSpec, CallerRange, Condition};

use super::{file::ProbeFile, site::SiteKind};
use crate::{
    bounds::PLAN_BYTES,
    engine::bpf::UprobeProgram,
    process::Program,
    python::{entry_source::EntrySource, version::PythonVersion},
    targets::{TargetIndex, TargetKind},
    units::FileOffset,
};

/// How a call of a function becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A uprobe in the native function itself.
    Symbol,
    /// A uprobe at the locations of a USDT probe; CPython's `function__entry` too.
    Usdt,
    /// A uprobe on CPython's evaluator, which CPython's perf trampolines call.
    PerfMap,
    /// A uprobe on the stub of the helper in the process.
    Helper,
}

impl From<EntrySource> for Entry {
    fn from(source: EntrySource) -> Self {
        match source {
            EntrySource::Helper => Self::Helper,
            EntrySource::PerfMap => Self::PerfMap,
            EntrySource::Usdt => Self::Usdt,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Symbol => "symbol",
            Self::Usdt => "usdt",
            Self::PerfMap => "perf-map",
            Self::Helper => "helper",
        })
    }
}

/// A function that a target selected, with the facts that reports show. Functions of several processes that
/// agree in all of these are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SelectedFunction {
    /// The target that selected it.
    pub target: TargetIndex,
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// Its file, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
}

/// A place where calls of a function end.
#[derive(Clone, Copy, Debug)]
pub struct PlannedExit {
    /// Offset of the probed instruction in the file, in bytes.
    pub offset: FileOffset,
    /// The instruction there, which decides the cost.
    pub kind: SiteKind,
    /// The condition under which it leaves the function.
    pub condition: Condition,
}

/// Whether calls at a site are timed.
#[derive(Clone, Debug, Default)]
pub enum Timing {
    /// Not requested, or meaningless there.
    #[default]
    NotAsked,
    /// Calls end here.
    Exits(Vec<PlannedExit>),
    /// Not possible, for this reason.
    Impossible(String),
}

impl Timing {
    /// The places where timed calls end.
    pub fn exits(&self) -> &[PlannedExit] {
        match self {
            Self::Exits(exits) => exits,
            Self::NotAsked | Self::Impossible(_) => &[],
        }
    }
}

/// A place for one probe.
#[derive(Clone, Debug)]
pub struct PlannedSite {
    /// File that the site lies in, open.
    pub file: Arc<ProbeFile>,
    /// Offset in the file.
    pub offset: FileOffset,
    /// The USDT semaphore to raise.
    pub semaphore: Option<FileOffset>,
    /// Position in [`Plan::functions`]; `None` where each call names its function.
    pub function: Option<usize>,
    /// The program to run there.
    pub program: UprobeProgram,
    /// For a function with targets for some callers alone: the caller of this one, by number; 0: all others.
    /// Such a function has a site for each of its targets, in the same place and in the order in which they
    /// are tried.
    pub caller: Option<u32>,
    /// The instruction there, which decides the cost.
    pub kind: SiteKind,
    /// The instruction, disassembled.
    pub instruction: String,
    /// Bytes between the stack pointer there and the return address; for `perf-map` and for timed calls.
    pub stack_delta: u32,
    /// The locations of the probe's arguments; only for `function__entry`.
    pub arguments: [ArgumentSpec; 3],
    /// Why there is no cheaper site, or another remark.
    pub remark: Option<String>,
    /// Whether calls are timed.
    pub timing: Timing,
}

/// A function with all its names.
#[derive(Clone, Debug)]
pub struct PlannedFunction {
    /// The function as reports name it.
    pub selected: SelectedFunction,
    /// Its other names: aliases, demangled forms.
    pub aliases: Vec<String>,
    /// Other symbols of the same code, as the file writes them.
    pub symbols: Vec<String>,
    /// How its calls become visible.
    pub entry: Entry,
    /// Later lines of the targets file that would have selected it, too.
    pub shadowed: Vec<TargetIndex>,
}

/// How the process's Python functions become visible.
#[derive(Clone, Debug)]
pub enum PythonPlan {
    /// No target is for Python functions.
    NotAsked,
    /// Through this source.
    Source {
        /// How calls become visible.
        source: EntrySource,
        /// The interpreter's version.
        version: PythonVersion,
        /// For the helper: the stub's instruction that calls will run into, which decides the cost. It is in
        /// none of the sites, as the helper is not in the process yet.
        stub: Option<SiteKind>,
    },
    /// Not visible, with the reason and the way out.
    Impossible(String),
}

/// A remark about a target: why it selects nothing, or less than it seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The target, or the process as a whole.
    pub target: Option<TargetIndex>,
    /// The text.
    pub text: String,
}

/// A remark that a target would have another kind, by the files below a root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The text.
    pub remark: Remark,
    /// The numbers of the root's mount and of its directory there, if known.
    pub(crate) root: Option<(u64, u64)>,
}

/// Where the callers lie that native targets name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerCode {
    /// Their code, sorted and without overlap.
    pub ranges: Arc<[CallerRange]>,
    /// Which of them were found, by bit.
    pub found: u32,
}

/// The selection of the targets in one process image.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program that it was made for; absent from an empty plan.
    pub program: Option<Program>,
    /// Functions known now. Python functions may appear later.
    pub functions: Vec<PlannedFunction>,
    /// Where to attach.
    pub sites: Vec<PlannedSite>,
    /// Where the callers lie that native targets name; only if a site needs to know.
    pub callers: Option<CallerCode>,
    /// How Python functions become visible.
    pub python: PythonPlan,
    /// Other remarks.
    pub remarks: Vec<Remark>,
    /// Files that the process runs and targets name, but that no path leads to: calls in them would not be
    /// counted.
    pub out_of_reach: Vec<Remark>,
    /// Targets that would have another kind, by the files that this process sees.
    pub kinds_in_doubt: Vec<Doubt>,
    /// How much memory the plan takes, in bytes, roughly.
    bytes: usize,
}

impl PlannedFunction {
    /// How much memory it takes with its sites, in bytes, roughly.
    pub(super) fn bytes(&self, sites: &[PlannedSite]) -> usize {
        let selected = size_of::<Self>() + self.selected.name.len() + self.selected.file.as_os_str().len();
        let names = self.aliases.iter().chain(&self.symbols);
        let aliases: usize = names.map(|alias| size_of::<String>() + alias.len()).sum();
        let of_site = |site: &PlannedSite| {
            let timing = match &site.timing {
                Timing::NotAsked => 0,
                Timing::Exits(exits) => exits.len() * size_of::<PlannedExit>(),
                Timing::Impossible(why) => why.len(),
            };
            let remark = site.remark.as_ref().map_or(0, String::len);
            size_of::<PlannedSite>() + site.instruction.len() + remark + timing
        };
        selected + aliases + sites.iter().map(of_site).sum::<usize>()
    }
}

impl Plan {
    /// An empty plan.
    pub fn empty() -> Self {
        Self {
            program: None,
            functions: Vec::new(),
            sites: Vec::new(),
            callers: None,
            python: PythonPlan::NotAsked,
            remarks: Vec::new(),
            out_of_reach: Vec::new(),
            kinds_in_doubt: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes this many bytes, if they are left of [`PLAN_BYTES`].
    pub(super) fn take_room(&mut self, bytes: usize) -> bool {
        let taken = self.bytes.saturating_add(bytes);
        let fits = taken <= PLAN_BYTES;
        self.bytes = if fits { taken } else { self.bytes };
        fits
    }

    /// Whether the helper should be injected into the process.
    pub fn wants_helper(&self) -> bool {
        matches!(self.python, PythonPlan::Source { source: EntrySource::Helper, .. })
    }

    /// Adds the selection of another plan for the same process; its way to Python functions replaces ours.
    pub fn add(&mut self, other: Self) {
        let before = self.functions.len();
        self.functions.extend(other.functions);
        self.sites.extend(other.sites.into_iter().map(|mut site| {
            site.function = site.function.map(|position| position + before);
            site
        }));
        self.callers = self.callers.take().or(other.callers);
        self.python = other.python;
        self.remarks.extend(other.remarks);
        self.out_of_reach.extend(other.out_of_reach);
        self.kinds_in_doubt.extend(other.kinds_in_doubt);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Drops the functions with targets for some callers alone. Returns these targets.
    pub(super) fn drop_callers(&mut self) -> BTreeSet<TargetIndex> {
        let of_callers = self.sites.iter().filter(|site| site.caller.is_some());
        let dropped: BTreeSet<usize> = of_callers.filter_map(|site| site.function).collect();
        self.sites.retain(|site| site.caller.is_none());
        for site in &mut self.sites {
            site.function = site.function.map(|position| position - dropped.range(..position).count());
        }
        let mut targets = BTreeSet::new();
        let mut position = 0;
        self.functions.retain(|function| {
            let is_dropped = dropped.contains(&position);
            position += 1;
            if is_dropped {
                targets.insert(function.selected.target);
            }
            !is_dropped
        });
        targets
    }

    /// Drops the Python functions.
    pub fn keep_symbols(&mut self) {
        self.sites.retain(|site| site.function.is_some());
        self.python = PythonPlan::NotAsked;
    }

    /// The remarks on the process as a whole: why its Python functions may be missing.
    pub fn remarks_on_process(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().filter(|remark| remark.target.is_none()).map(|remark| remark.text.as_str())
    }

    /// Whether Python functions of the process can be made visible.
    pub fn has_python(&self) -> bool {
        matches!(self.python, PythonPlan::Source { .. })
    }

    /// Whether a target selects anything.
    pub fn selects(&self, target: TargetIndex) -> bool {
        self.functions.iter().any(|function| function.selected.target == target)
    }

    /// The targets that select anything.
    pub fn selecting(&self) -> HashSet<TargetIndex> {
        self.functions.iter().map(|function| function.selected.target).collect()
    }

    /// Whether a target selects anything, or would if an earlier one did not.
    pub fn would_select(&self, target: TargetIndex) -> bool {
        self.selects(target) || self.functions.iter().any(|function| function.shadowed.contains(&target))
    }

    /// Whether a target selects nothing here, and names a file that no path leads to.
    pub fn is_out_of_reach(&self, target: TargetIndex) -> bool {
        !self.would_select(target) && self.out_of_reach.iter().any(|remark| remark.target == Some(target))
    }

    /// The number of its probes.
    pub fn probes(&self) -> usize {
        self.sites.iter().map(|site| 1 + site.timing.exits().len()).sum()
    }

    /// The functions whose calls are not timed although that was requested, and why.
    pub fn untimed(&self) -> impl Iterator<Item = (&SelectedFunction, &str)> {
        self.sites.iter().filter_map(|site| match &site.timing {
            Timing::Impossible(why) => Some((&self.functions.get(site.function?)?.selected, why.as_str())),
            Timing::NotAsked | Timing::Exits(_) => None,
        })
    }

    /// The kinds of the sites at which a target's calls become visible; `kind` is the target's.
    pub fn kinds_of(&self, target: TargetIndex, kind: TargetKind) -> impl Iterator<Item = SiteKind> {
        let stub = match self.python {
            PythonPlan::Source { stub, .. } if kind == TargetKind::Python => stub,
            _ => None,
        };
        let sites = self.sites.iter().filter_map(move |site| {
            let concerns = match site.function {
                Some(position) => self.functions.get(position)?.selected.target == target,
                // Every Python function's calls pass here.
                None => kind == TargetKind::Python,
            };
            concerns.then_some(site.kind)
        });
        sites.chain(stub)
    }
}
