//! Decides the kinds of lines that give no kind. Only the files that the session's processes see decide this.
//!
//! Each line has one kind in the whole session. Processes with their own mounts may see different files at
//! one path. We report a process whose files would have given the line another kind.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};

use super::Resolver;
use crate::{
    elf::ElfFile,
    probe::plan::{Doubt, Remark},
    process::Process,
    sys::below::{LastLink, OpenError, open_below},
    targets::{KindReason, ParsedTargets, Target, TargetIndex, Targets},
};

/// The most remarks that we remember, so that we report each only once. A session of containers has some
/// dozens.
const REMARKS_KNOWN: usize = 4_096;

/// The root directory of a process, below which we look up paths.
struct View {
    root: OwnedFd,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Elf,
    /// A regular file that is not ELF.
    Other,
    /// There is no readable file.
    Nothing,
}

/// The identity of a root directory: the number of its mount, and its own number in that mount.
type RootId = (u64, u64);

/// The targets that we have reported, each with the root directory that would have given it another kind.
#[derive(Debug, Default)]
pub(super) struct DoubtsTold(RefCell<HashSet<(RootId, TargetIndex)>>);

impl View {
    fn open(process: &Process) -> Option<Self> {
        let root = process.open_entry("root", OFlags::PATH | OFlags::DIRECTORY).ok()?;
        Some(Self { root: root.into() })
    }

    /// Our own root, for a program that we start.
    fn own() -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Some(Self { root: open("/", flags, Mode::empty()).ok()? })
    }

    /// `None` before Linux 5.8, which does not give the number of a mount.
    fn id(&self) -> Option<RootId> {
        let wanted = StatxFlags::MNT_ID | StatxFlags::INO;
        let found = statx(self.root.as_fd(), "", AtFlags::EMPTY_PATH, wanted).ok()?;
        let has_both = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
        has_both.then_some((found.stx_mnt_id, found.stx_ino))
    }

    fn look(&self, path: &str) -> Seen {
        match open_below(self.root.as_fd(), Path::new(path), LastLink::Follow) {
            Ok(file) => ElfFile::from_file(file, path).map_or(Seen::Other, |_| Seen::Elf),
            Err(OpenError::Special(_) | OpenError::MadeUp(_) | OpenError::System(_)) => Seen::Nothing,
        }
    }
}

/// Decides the kinds of lines. If the module part is an absolute path, the files decide: the line is native
/// if one of these processes sees an ELF file at this path. Returns `None` if a line depends on that, and
/// there are no processes.
pub(crate) fn decide<'p>(
    parsed: ParsedTargets,
    processes: impl IntoIterator<Item = &'p Process>,
) -> Option<Targets> {
    if parsed.undecided().next().is_none() {
        return Some(parsed.decide(|_| false));
    }
    let mut processes = processes.into_iter().peekable();
    processes.peek()?;
    Some(decide_by(parsed, &different(processes.filter_map(View::open))))
}

/// Decides the kinds of lines for a command that has not started. The command will start with our own root.
pub(crate) fn decide_for_command(parsed: ParsedTargets) -> Targets {
    decide_by(parsed, View::own().as_slice())
}

fn decide_by(parsed: ParsedTargets, views: &[View]) -> Targets {
    let paths: HashSet<String> = parsed.undecided().map(str::to_owned).collect();
    let is_elf = |path: &str| views.iter().any(|view| view.look(path) == Seen::Elf);
    let elf: HashSet<String> = paths.into_iter().filter(|path| is_elf(path)).collect();
    parsed.decide(|path| elf.contains(path))
}

/// One view for each root directory.
fn different(views: impl Iterator<Item = View>) -> Vec<View> {
    let mut roots = HashSet::new();
    views.filter(|view| view.id().is_none_or(|id| roots.insert(id))).collect()
}

/// Whether the file that its module part names decided a target's kind.
fn is_by_file(target: &Target) -> bool {
    match target.kind_reason {
        KindReason::ElfFile => true,
        KindReason::Default => target.module.as_str().starts_with('/'),
        KindReason::Written | KindReason::SharedObjectName => false,
    }
}

/// Remarks on targets that would have another kind if we had looked at the files of one of these processes.
pub(crate) fn doubts(targets: &Targets, processes: &[&Process]) -> Vec<Remark> {
    let told = DoubtsTold::default();
    let doubts = processes.iter().flat_map(|process| doubts_of(targets, process));
    doubts.filter(|doubt| told.is_new(doubt)).map(|doubt| doubt.remark).collect()
}

fn doubts_of(targets: &Targets, process: &Process) -> Vec<Doubt> {
    let mut by_file =
        targets.iter().filter(|(_, target)| !target.is_dropped && is_by_file(target)).peekable();
    if by_file.peek().is_none() {
        return Vec::new();
    }
    let Some(view) = View::open(process) else { return Vec::new() };
    let root = view.id();
    let mut seen: HashMap<&str, Seen> = HashMap::new();
    let remarks = by_file.filter_map(|(index, target)| {
        let path = target.module.as_str();
        let there = match (target.kind_reason, *seen.entry(path).or_insert_with(|| view.look(path))) {
            (KindReason::ElfFile, Seen::Other) => "no ELF file",
            (KindReason::Default, Seen::Elf) => "an ELF file",
            _ => return None,
        };
        let text = format!(
            "process {}: {path} is {there} there, but `{}` is {} for the whole session; write py: or native: \
             in front of it, or a line for each",
            process.pid(),
            target.pattern,
            match target.kind_reason {
                KindReason::ElfFile => "native, since the path is an ELF file in another process,",
                _ => "Python, since the path was no ELF file in the first processes,",
            }
        );
        Some(Doubt { remark: Remark { target: Some(index), text }, root })
    });
    remarks.collect()
}

impl DoubtsTold {
    /// Whether we have not yet reported the target for this root.
    pub(super) fn is_new(&self, doubt: &Doubt) -> bool {
        let (Some(root), Some(target)) = (doubt.root, doubt.remark.target) else { return true };
        let mut told = self.0.borrow_mut();
        if told.len() == REMARKS_KNOWN {
            told.clear();
        }
        told.insert((root, target))
    }

    /// Forgets what we have reported, because the targets change.
    pub(super) fn forget(&mut self) {
        self.0.get_mut().clear();
    }
}

impl Resolver {
    /// Whether to report a doubt now. We report it once for all processes with the same root. Call this only
    /// to report, because the caller may discard a plan.
    pub(crate) fn tells(&self, doubt: &Doubt) -> bool {
        self.doubts_told.is_new(doubt)
    }

    /// Remarks on targets to which the files of this process would have given another kind.
    pub(super) fn kinds_in_doubt(&self, process: &Process) -> Vec<Doubt> {
        doubts_of(&self.targets, process)
    }
}
