//! Resolving: makes a plan from targets and a process. Attaches nothing and changes nothing.
//!
//! We find the selection in a file once, and remember it by inode. So children that execute the same programs
//! only cost a look-up, and so do processes that share libraries.

mod callers;
mod compiled;
mod copies;
mod hugify;
mod indirect;
pub(crate) mod kinds;
mod known_functions;
mod moved;
mod native;
mod nearest;
pub mod python;
mod stepped;
pub mod symbols;
mod timing;
mod usdt;

pub use compiled::compiled;
pub use copies::copies;
pub use known_functions::KnownFunctions;
pub use nearest::nearest;

use std::{cell::RefCell, collections::HashMap, io, sync::Arc};

use crate::{
    bounds::PLAN_BYTES,
    elf::{Effort, ElfError, ElfErrorKind, ElfFile, Exhausted},
    engine::bpf::Form,
    probe::cost::{CostTable, Costs},
    probe::{
        file::{FileId, ProbeFile},
        plan::{Plan, Remark},
        site::SiteKind,
    },
    process::{MappedFile, MappedFileError, Mappings, Process, ProcessError, mapped_file::FileIdentity},
    python::{
        entry_source::{EntryChoice, EntrySource, Injection},
        interpreter::Interpreter,
    },
    targets::{TargetIndex, TargetKind, Targets, native_callers::NativeCallers},
    units::Nanos,
};
use callers::CallersInFile;
use kinds::DoubtsTold;
use native::FileSelection;

/// The most files whose selection we remember. We keep each file open, and a process could map new files for
/// ever.
const FILES_KNOWN: usize = 512;
/// The most files for which we remember whether they contain an interpreter.
const INTERPRETERS_KNOWN: usize = 65_536;

/// Why we could not inspect a mapped file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// We could not open the file.
    #[error(transparent)]
    Open(#[from] MappedFileError),
    /// The file could not be read.
    #[error("cannot examine it: {0}")]
    Io(io::Error),
    /// The file is not an ELF file that we understand.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

impl FileError {
    /// Whether we miss calls in the file: the process runs the file, but no path leads to it, or we had no
    /// time to read it.
    pub fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Open(error) => matches!(error, MappedFileError::CopiedUp { .. }),
            Self::Elf(error) => matches!(error.kind, ElfErrorKind::Exhausted(Exhausted::Time(_))),
            Self::Io(_) => false,
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Makes plans for processes, all with the same targets.
pub struct Resolver {
    targets: Arc<Targets>,
    costs: Costs,
    entry: EntryChoice,
    may_inject: bool,
    /// Whether we time native functions.
    times_calls: bool,
    /// The selection in each file. The key is the file, the file's number in mappings, and whether the
    /// process has a shadow stack, which forbids some sites.
    files: RefCell<HashMap<(FileId, FileIdentity, bool), Arc<FileSelection>>>,
    interpreters: RefCell<HashMap<FileId, Option<Interpreter>>>,
    /// The callers that native targets name.
    callers: NativeCallers,
    /// Those in files.
    caller_files: RefCell<HashMap<(FileId, FileIdentity), Arc<CallersInFile>>>,
    known: KnownFunctions,
    doubts_remarked: DoubtsTold,
    doubts_told: DoubtsTold,
    effort: Effort,
    /// The time for explaining why targets select nothing. This time does not count as time for reading.
    explaining: Effort,
}

impl Resolver {
    /// A resolver. `entry` and `may_inject` limit the choice of the entry source.
    pub fn new(targets: Arc<Targets>, costs: Costs, entry: EntryChoice, may_inject: bool) -> Self {
        let (files, interpreters, caller_files, known, effort, explaining) = Default::default();
        let callers = targets.native_callers();
        let (doubts_remarked, doubts_told) = Default::default();
        Self {
            targets,
            costs,
            entry,
            may_inject,
            times_calls: false,
            files,
            interpreters,
            callers,
            caller_files,
            known,
            doubts_remarked,
            doubts_told,
            effort,
            explaining,
        }
    }

    /// Takes the functions of files from `known`, if they are there.
    #[must_use]
    pub fn knowing(mut self, known: &KnownFunctions) -> Self {
        self.known = known.clone();
        self
    }

    /// Plans the timing of native calls, if this kernel's programs can do that.
    #[must_use]
    pub fn timing_calls(mut self, times: bool) -> Self {
        self.times_calls = times && self.form().times_calls();
        self
    }

    /// Whether we time native functions.
    pub fn times_calls(&self) -> bool {
        self.times_calls
    }

    /// Whether we may inject the helper, and there are targets for it.
    pub fn may_inject(&self) -> bool {
        let may_be_chosen = matches!(self.entry, EntryChoice::Auto | EntryChoice::Only(EntrySource::Helper));
        self.may_inject && may_be_chosen && self.targets.has_kind(TargetKind::Python)
    }

    /// The form of the helper's stub that costs less here. If we do not know the costs, we attach nothing to
    /// the stub, so the form does not matter.
    pub fn stub(&self) -> SiteKind {
        self.costs.known().map_or(SiteKind::Nop, CostTable::stub)
    }

    /// Why a site of this kind would kill forked children; `None` if it would not.
    fn deadly(&self, kind: SiteKind) -> Option<String> {
        (!self.calibration().survives_forks(kind)).then(|| {
            "it can only be probed at a 5-byte nop, which this kernel rewrites to a call that kills forked \
             children"
                .to_owned()
        })
    }

    /// The targets of the plans.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The targets, for sharing.
    pub fn shared_targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// Makes plans with other targets from now on.
    pub fn set_targets(&mut self, targets: Arc<Targets>) {
        self.callers = targets.native_callers();
        self.targets = targets;
        self.files.get_mut().clear();
        self.caller_files.get_mut().clear();
        self.doubts_remarked.forget();
        self.doubts_told.forget();
    }

    /// The time that is left for reading files, in all processes.
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// The time that is left for reading files to explain why targets select nothing.
    pub fn explaining(&self) -> &Effort {
        &self.explaining
    }

    /// The cost of probes here. Measures the cost now if we do not know it.
    pub fn calibration(&self) -> &CostTable {
        self.costs.table()
    }

    /// The costs, if we know them.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The costs, for changing them.
    pub fn costs_mut(&mut self) -> &mut Costs {
        &mut self.costs
    }

    /// The form of the BPF programs on this machine.
    pub fn form(&self) -> Form {
        self.costs.form()
    }

    /// The cost of a signal, if we can signal helpers.
    pub fn signal(&self) -> Option<Nanos> {
        self.costs.known().and_then(CostTable::signal)
    }

    /// Finds what the targets select in a process.
    ///
    /// # Errors
    /// We cannot inspect the process. If we cannot read a single file, this is no error, but a remark in the
    /// plan.
    pub fn plan(&self, process: &Process) -> Result<Plan, ProcessError> {
        self.plan_at_start(process, None)
    }

    /// Finds how the Python functions of a process become visible if the helper does not work there.
    ///
    /// # Errors
    /// See [`plan`](Self::plan).
    pub fn plan_without_helper(&self, process: &Process, why: &str) -> Result<Plan, ProcessError> {
        let mut plan = Plan::empty();
        if self.targets.has_kind(TargetKind::Python) {
            self.plan_python(process, &process.mappings()?, Injection::Refused(why), None, &mut plan)?;
        }
        process.is_still_there()?;
        Ok(plan)
    }

    /// Finds what the targets select in a process that has just executed its program. If `of_relatives` is
    /// [`EntrySource::PerfMap`], the interpreters of the process's relatives use trampolines. Then the
    /// process's own interpreter may still switch trampolines on.
    ///
    /// # Errors
    /// See [`plan`](Self::plan).
    pub fn plan_at_start(
        &self,
        process: &Process,
        of_relatives: Option<EntrySource>,
    ) -> Result<Plan, ProcessError> {
        let mut plan = Plan::empty();
        plan.program = Some(process.program()?);
        let mappings = process.mappings()?;
        if self.targets.has_kind(TargetKind::Native) || self.targets.has_kind(TargetKind::Usdt) {
            let shadow_stack = process.status()?.shadow_stack;
            for mapped in mappings.files.iter().chain(&mappings.moved) {
                self.plan_file(process, &mappings, mapped, shadow_stack, &mut plan);
            }
            self.plan_callers(process, &mappings, &mut plan);
        }
        if self.targets.has_kind(TargetKind::Python) {
            let injection = if self.may_inject { Injection::Allowed } else { Injection::Forbidden };
            self.plan_python(process, &mappings, injection, of_relatives, &mut plan)?;
        }
        process.is_still_there()?;
        plan.kinds_in_doubt = self.kinds_in_doubt(process);
        let new = plan.kinds_in_doubt.iter().filter(|doubt| self.doubts_remarked.is_new(doubt));
        plan.remarks.extend(new.map(|doubt| doubt.remark.clone()));
        Ok(plan)
    }

    /// Adds what native and USDT targets select in one file.
    fn plan_file(
        &self,
        process: &Process,
        mappings: &Mappings,
        mapped: &MappedFile,
        shadow_stack: bool,
        plan: &mut Plan,
    ) {
        let path = mapped.path_in_process.to_string_lossy();
        if self.targets.native_in(&path).is_empty() && self.targets.usdt_in(&path).is_empty() {
            return;
        }
        match self.selection(process, mapped, shadow_stack) {
            Ok(selection) if !plan.take_room(selection.bytes()) => {
                let text = format!(
                    "nothing is selected in {path}: the targets select too much with what is selected in \
                     other files; narrow them"
                );
                plan.remarks.extend(
                    self.native_targets_of(&path)
                        .map(|target| Remark { target: Some(target), text: text.clone() }),
                );
            }
            Ok(selection) => {
                let near = hugify::is_near(process, mapped, selection.hugifies);
                if near.is_none() {
                    selection.add_to(plan, mapped);
                }
                selection.add_indirect(process, mappings, &self.effort, plan);
                let moved = moved::remarks(&selection, process, mapped, mappings, near.as_deref());
                plan.out_of_reach.extend(moved.iter().cloned());
                plan.remarks.extend(moved);
            }
            Err(error) => {
                let text = format!("nothing can be selected in {path}: {error}");
                let remarks = self
                    .native_targets_of(&path)
                    .map(|target| Remark { target: Some(target), text: text.clone() });
                let remarks: Vec<Remark> = remarks.collect();
                if error.is_out_of_reach() {
                    plan.out_of_reach.extend(remarks.iter().cloned());
                }
                plan.remarks.extend(remarks);
            }
        }
    }

    /// The native and USDT targets whose module part matches a path.
    fn native_targets_of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = TargetIndex> + 'a {
        self.targets
            .iter()
            .filter(move |(_, target)| target.kind != TargetKind::Python && target.module.matches(path))
            .map(|(index, _)| index)
    }

    /// What the targets select in a file. Remembers the selection after the first call.
    fn selection(
        &self,
        process: &Process,
        mapped: &MappedFile,
        shadow_stack: bool,
    ) -> Result<Arc<FileSelection>, FileError> {
        let file = Arc::new(probe_file(process, mapped)?);
        let key = (file.id(), file.identity(), shadow_stack);
        if let Some(known) = self.files.borrow().get(&key) {
            return Ok(Arc::clone(known));
        }
        let selection = self.effort.read(|| FileSelection::new(self, process, &file, shadow_stack));
        let selection = Arc::new(selection.map_err(|why| unread(&file, why))??);
        let mut files = self.files.borrow_mut();
        let bytes: usize = files.values().map(|selection| selection.bytes()).sum();
        if files.len() == FILES_KNOWN || bytes + selection.bytes() > PLAN_BYTES {
            files.clear();
        }
        files.insert(key, Arc::clone(&selection));
        Ok(selection)
    }
}

/// The error for a file that we do not read because other files took too much time.
fn unread(file: &ProbeFile, why: Exhausted) -> ElfError {
    ElfError { path: file.path().to_owned(), kind: why.into() }
}

/// Opens exactly the file that the process maps.
fn probe_file(process: &Process, mapped: &MappedFile) -> Result<ProbeFile, FileError> {
    Ok(ProbeFile::mapped(&mapped.open(process)?, mapped)?)
}

/// Reads an open file as ELF.
fn elf_of(file: &ProbeFile) -> Result<ElfFile, FileError> {
    Ok(ElfFile::from_file(file.file().try_clone()?, file.path())?)
}
