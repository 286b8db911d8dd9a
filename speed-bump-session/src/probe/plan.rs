//! A plan: what the targets select in one process image, and where to put the probes for it.
//!
//! Made by resolving, which attaches nothing; consumed by the session, which resolves nothing.

use std::{collections::HashSet, fmt, path::PathBuf, sync::Arc};

use serde::Serialize;
use speed_bump_abi::{ArgumentSpec, Condition};

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

/// A function that a target selected, as reports name it. Functions of several processes that agree in all
/// of this are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SelectedFunction {
    /// The target that selected it.
    pub target: TargetIndex,
    /// Symbol, qualified name, or `provider:name`.
    pub name: String,
    /// The file that it lies in, as the process sees it.
    pub file: PathBuf,
    /// The line of its definition, where known.
    pub line: Option<u32>,
}

/// A place where a function is left.
#[derive(Clone, Copy, Debug)]
pub struct PlannedExit {
    /// Offset of the probed instruction in the file, in bytes.
    pub offset: FileOffset,
    /// The instruction there, which decides the cost.
    pub kind: SiteKind,
    /// When it leaves the function.
    pub condition: Condition,
}

/// Whether calls that are seen at a site are timed.
#[derive(Clone, Debug, Default)]
pub enum Timing {
    /// Nobody asked for it, or it has no meaning there.
    #[default]
    NotAsked,
    /// They end here.
    Exits(Vec<PlannedExit>),
    /// They are not, for this reason.
    Impossible(String),
}

impl Timing {
    /// Where timed calls end.
    pub fn exits(&self) -> &[PlannedExit] {
        match self {
            Self::Exits(exits) => exits,
            Self::NotAsked | Self::Impossible(_) => &[],
        }
    }
}

/// One place for a probe.
#[derive(Clone, Debug)]
pub struct PlannedSite {
    /// File that the site lies in, open.
    pub file: Arc<ProbeFile>,
    /// Offset of the probed instruction in the file, in bytes.
    pub offset: FileOffset,
    /// The USDT semaphore to raise.
    pub semaphore: Option<FileOffset>,
    /// Position in [`Plan::functions`]; `None` where each call names its function.
    pub function: Option<usize>,
    /// The program to run there.
    pub program: UprobeProgram,
    /// The instruction there, which decides the cost.
    pub kind: SiteKind,
    /// The instruction, disassembled.
    pub instruction: String,
    /// Bytes between the stack pointer there and the return address; needed by `perf-map` and where calls are
    /// timed.
    pub stack_delta: u32,
    /// Where the probe's arguments are; needed by `function__entry` alone.
    pub arguments: [ArgumentSpec; 3],
    /// Why no cheaper site was taken, or what else there is to say of it.
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
    /// Later lines of the targets file that would have selected it as well.
    pub shadowed: Vec<TargetIndex>,
}

/// How Python functions of the process become visible.
#[derive(Clone, Debug)]
pub enum PythonPlan {
    /// No target asks for Python functions.
    NotAsked,
    /// Through this source.
    Source {
        /// How calls become visible.
        source: EntrySource,
        /// The interpreter's version.
        version: PythonVersion,
        /// Through the helper: the instruction of the stub that calls will run into, which decides the cost.
        /// It is in none of the sites, as the helper is not in the process yet.
        stub: Option<SiteKind>,
    },
    /// Not at all; says why and what to do.
    Impossible(String),
}

/// Something worth telling about a target: why it selects nothing, or less than it seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The target it is about, or the process as a whole.
    pub target: Option<TargetIndex>,
    /// What there is to say.
    pub text: String,
}

/// That a target would have another kind by the files below a root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What there is to say.
    pub remark: Remark,
    /// The numbers of the root's mount and of its directory there, where they are known.
    pub(crate) root: Option<(u64, u64)>,
}

/// What the targets select in one process image.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program that it was made for; absent from a plan of nothing.
    pub program: Option<Program>,
    /// Functions known now. Python functions may appear later.
    pub functions: Vec<PlannedFunction>,
    /// Where to attach.
    pub sites: Vec<PlannedSite>,
    /// The way to Python functions.
    pub python: PythonPlan,
    /// What else there is to say.
    pub remarks: Vec<Remark>,
    /// Files that the process runs and targets name, but that nothing leads to: calls in them would not be
    /// counted.
    pub out_of_reach: Vec<Remark>,
    /// Targets that would have another kind by the files that this process sees.
    pub kinds_in_doubt: Vec<Doubt>,
    /// How much memory all this takes, roughly, in bytes.
    bytes: usize,
}

impl PlannedFunction {
    /// How much memory it takes with its sites, roughly, in bytes.
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
    /// A plan that selects nothing.
    pub fn empty() -> Self {
        Self {
            program: None,
            functions: Vec::new(),
            sites: Vec::new(),
            python: PythonPlan::NotAsked,
            remarks: Vec::new(),
            out_of_reach: Vec::new(),
            kinds_in_doubt: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes room for so many bytes, if there is as much left of [`PLAN_BYTES`].
    pub(super) fn take_room(&mut self, bytes: usize) -> bool {
        let taken = self.bytes.saturating_add(bytes);
        let fits = taken <= PLAN_BYTES;
        self.bytes = if fits { taken } else { self.bytes };
        fits
    }

    /// Whether the helper is to be brought into the process.
    pub fn wants_helper(&self) -> bool {
        matches!(self.python, PythonPlan::Source { source: EntrySource::Helper, .. })
    }

    /// Adds what another plan for the same process selects; its way to Python functions takes the place of
    /// ours.
    pub fn add(&mut self, other: Self) {
        let before = self.functions.len();
        self.functions.extend(other.functions);
        self.sites.extend(other.sites.into_iter().map(|mut site| {
            site.function = site.function.map(|position| position + before);
            site
        }));
        self.python = other.python;
        self.remarks.extend(other.remarks);
        self.out_of_reach.extend(other.out_of_reach);
        self.kinds_in_doubt.extend(other.kinds_in_doubt);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Drops the way to Python functions.
    pub fn keep_symbols(&mut self) {
        self.sites.retain(|site| site.function.is_some());
        self.python = PythonPlan::NotAsked;
    }

    /// What there is to say of the process as a whole: why its Python functions may be missing.
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

    /// Whether a target selects nothing here, and names a file that nothing leads to.
    pub fn is_out_of_reach(&self, target: TargetIndex) -> bool {
        !self.would_select(target) && self.out_of_reach.iter().any(|remark| remark.target == Some(target))
    }

    /// How many probes it takes.
    pub fn probes(&self) -> usize {
        self.sites.iter().map(|site| 1 + site.timing.exits().len()).sum()
    }

    /// The functions whose calls are not timed though that was asked for, and why.
    pub fn untimed(&self) -> impl Iterator<Item = (&SelectedFunction, &str)> {
        self.sites.iter().filter_map(|site| match &site.timing {
            Timing::Impossible(why) => Some((&self.functions.get(site.function?)?.selected, why.as_str())),
            Timing::NotAsked | Timing::Exits(_) => None,
        })
    }

    /// The kinds of the sites at which calls of a target of this kind become visible.
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
