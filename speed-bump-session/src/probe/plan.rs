//! A plan: the functions that targets select in one program image, and the sites of their probes.
//!
//! Resolving makes plans and attaches nothing. The session attaches what its plans contain, and resolves
//! nothing itself.

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
    /// A uprobe at the locations of a USDT probe, including CPython's `function__entry`.
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

/// A function that a target selects, with the facts that reports show. If functions of several processes have
/// the same facts, we count them as one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SelectedFunction {
    /// The target that selects the function.
    pub target: TargetIndex,
    /// The symbol, the qualified name, or `provider:name`.
    pub name: String,
    /// The function's file, as the process sees it.
    pub file: PathBuf,
    /// The line of the definition, if known.
    pub line: Option<u32>,
}

/// A place where calls of a function end.
#[derive(Clone, Copy, Debug)]
pub struct PlannedExit {
    /// Offset of the probed instruction in the file, in bytes.
    pub offset: FileOffset,
    /// The kind of the instruction, which decides the cost.
    pub kind: SiteKind,
    /// The condition under which the instruction leaves the function.
    pub condition: Condition,
}

/// Whether we time calls at a site.
#[derive(Clone, Debug, Default)]
pub enum Timing {
    /// Nobody requested timing, or it has no meaning at this site.
    #[default]
    NotAsked,
    /// We time the calls, which end at these places.
    Exits(Vec<PlannedExit>),
    /// We cannot time calls, for this reason.
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
    /// The open file of the site.
    pub file: Arc<ProbeFile>,
    /// The offset in the file.
    pub offset: FileOffset,
    /// The USDT semaphore to raise.
    pub semaphore: Option<FileOffset>,
    /// The position of the function in [`Plan::functions`]; `None` if the site serves several functions.
    pub function: Option<usize>,
    /// The program that runs there.
    pub program: UprobeProgram,
    /// For a function with targets for some callers alone: the number of this target's caller, or 0 for all
    /// other callers. Such a function has a site for each of its targets, at the same offset, in the order in
    /// which we try them.
    pub caller: Option<u32>,
    /// The kind of the instruction, which decides the cost.
    pub kind: SiteKind,
    /// The instruction, disassembled.
    pub instruction: String,
    /// The distance from the stack pointer at the site to the return address, in bytes. Only for `perf-map`
    /// and for timed calls.
    pub stack_delta: u32,
    /// The locations of the probe's arguments; only for `function__entry`.
    pub arguments: [ArgumentSpec; 3],
    /// Why the function has no cheaper site, or another remark.
    pub remark: Option<String>,
    /// Whether and how we time calls.
    pub timing: Timing,
}

/// A function with all its names.
#[derive(Clone, Debug)]
pub struct PlannedFunction {
    /// The function as reports name it.
    pub selected: SelectedFunction,
    /// The function's other names: aliases, demangled forms.
    pub aliases: Vec<String>,
    /// Other symbols of the same code, as the file writes them.
    pub symbols: Vec<String>,
    /// How the function's calls become visible.
    pub entry: Entry,
    /// Later lines of the targets file that also match the function.
    pub shadowed: Vec<TargetIndex>,
}

/// How the process's Python functions become visible.
#[derive(Clone, Debug)]
pub enum PythonPlan {
    /// No target names Python functions.
    NotAsked,
    /// Calls become visible through an entry source.
    Source {
        /// The entry source.
        source: EntrySource,
        /// The interpreter's version.
        version: PythonVersion,
        /// For the helper: the instruction in the stub that calls will execute. This instruction decides the
        /// cost. It is not in the list of sites, because the helper is not in the process yet.
        stub: Option<SiteKind>,
    },
    /// We cannot make calls visible. The text has the reason and the way out.
    Impossible(String),
}

/// A remark about a target: why it selects nothing, or less than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The target; `None` if the remark is about the whole process.
    pub target: Option<TargetIndex>,
    /// The text.
    pub text: String,
}

/// A remark about a target's kind: the files below this root directory would have given the target another
/// kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The text.
    pub remark: Remark,
    /// The numbers of the root's mount and of its directory in that mount, if known.
    pub(crate) root: Option<(u64, u64)>,
}

/// The code of the callers that native targets name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerCode {
    /// The ranges of their code, sorted and without overlap.
    pub ranges: Arc<[CallerRange]>,
    /// The callers that were found, as bits.
    pub found: u32,
}

/// What the targets select in one program image.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program for which we made the plan; absent in an empty plan.
    pub program: Option<Program>,
    /// The functions that we know now. Python functions may come later.
    pub functions: Vec<PlannedFunction>,
    /// The sites to attach to.
    pub sites: Vec<PlannedSite>,
    /// Where the callers lie that native targets name; only if a site needs to know.
    pub callers: Option<CallerCode>,
    /// How Python functions become visible.
    pub python: PythonPlan,
    /// Other remarks.
    pub remarks: Vec<Remark>,
    /// Remarks on files that targets name and the process runs, but that we cannot read or open by any path.
    /// We would not count calls in these files.
    pub out_of_reach: Vec<Remark>,
    /// Targets to which the files of this process would have given another kind.
    pub kinds_in_doubt: Vec<Doubt>,
    /// An estimate of the memory that the plan takes, in bytes.
    bytes: usize,
}

impl PlannedFunction {
    /// An estimate of the memory that the function and its sites take, in bytes.
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

    /// Takes room in [`PLAN_BYTES`]. Returns `false`, and takes none, if too little is left.
    pub(super) fn take_room(&mut self, bytes: usize) -> bool {
        let taken = self.bytes.saturating_add(bytes);
        let fits = taken <= PLAN_BYTES;
        self.bytes = if fits { taken } else { self.bytes };
        fits
    }

    /// Whether we should inject the helper into the process.
    pub fn wants_helper(&self) -> bool {
        matches!(self.python, PythonPlan::Source { source: EntrySource::Helper, .. })
    }

    /// Adds what another plan selects in the same process. The entry source of the other plan replaces ours.
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

    /// Drops the sites of Python functions.
    pub fn keep_symbols(&mut self) {
        self.sites.retain(|site| site.function.is_some());
        self.python = PythonPlan::NotAsked;
    }

    /// The remarks on the process as a whole: why its Python functions may be missing.
    pub fn remarks_on_process(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().filter(|remark| remark.target.is_none()).map(|remark| remark.text.as_str())
    }

    /// Whether we can make Python functions of the process visible.
    pub fn has_python(&self) -> bool {
        matches!(self.python, PythonPlan::Source { .. })
    }

    /// Whether this target selects anything.
    pub fn selects(&self, target: TargetIndex) -> bool {
        self.functions.iter().any(|function| function.selected.target == target)
    }

    /// All targets that select anything.
    pub fn selecting(&self) -> HashSet<TargetIndex> {
        self.functions.iter().map(|function| function.selected.target).collect()
    }

    /// Whether a target selects anything, or would select something if earlier targets did not take its
    /// functions.
    pub fn would_select(&self, target: TargetIndex) -> bool {
        self.selects(target) || self.functions.iter().any(|function| function.shadowed.contains(&target))
    }

    /// Whether a target selects nothing here, and a remark says that its file is out of reach.
    pub fn is_out_of_reach(&self, target: TargetIndex) -> bool {
        !self.would_select(target) && self.out_of_reach.iter().any(|remark| remark.target == Some(target))
    }

    /// The number of the plan's probes.
    pub fn probes(&self) -> usize {
        self.sites.iter().map(|site| 1 + site.timing.exits().len()).sum()
    }

    /// The functions whose calls we cannot time although the user requested it, and the reason.
    pub fn untimed(&self) -> impl Iterator<Item = (&SelectedFunction, &str)> {
        self.sites.iter().filter_map(|site| match &site.timing {
            Timing::Impossible(why) => Some((&self.functions.get(site.function?)?.selected, why.as_str())),
            Timing::NotAsked | Timing::Exits(_) => None,
        })
    }

    /// The kinds of the sites at which a target's calls become visible. `kind` is the target's kind.
    pub fn kinds_of(&self, target: TargetIndex, kind: TargetKind) -> impl Iterator<Item = SiteKind> {
        let stub = match self.python {
            PythonPlan::Source { stub, .. } if kind == TargetKind::Python => stub,
            _ => None,
        };
        let sites = self.sites.iter().filter_map(move |site| {
            let concerns = match site.function {
                Some(position) => self.functions.get(position)?.selected.target == target,
                // This site serves all Python functions.
                None => kind == TargetKind::Python,
            };
            concerns.then_some(site.kind)
        });
        sites.chain(stub)
    }
}
