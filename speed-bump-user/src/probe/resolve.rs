//! Resolving: from targets and a process to a plan. Attaches nothing and changes nothing.
//!
//! What a file offers is worked out once and remembered by inode: children that exec the same programs, and
//! processes that share libraries, cost a look-up.

pub mod native;
pub mod python;

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    fs::File,
    io,
    sync::Arc,
};

use crate::{
    calibrate::Calibration,
    elf::{ElfError, ElfFile},
    probe::{
        file::{FileId, ProbeFile},
        plan::{Plan, PythonPlan, Remark},
    },
    process::{MappedFile, MappedFileError, Mappings, Process, ProcessError},
    python::EntrySource,
    targets::{TargetKind, Targets},
};
use native::FileSelection;

/// Why a process could not be resolved at all.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Its mappings could not be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Why a mapped file could not be looked into.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] MappedFileError),
    /// It could not be examined.
    #[error("cannot examine it: {0}")]
    Io(#[from] io::Error),
    /// It is no ELF file that we can read.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// Resolves processes against one set of targets.
pub struct Resolver {
    targets: Arc<Targets>,
    calibration: Calibration,
    entry: Option<EntrySource>,
    files: RefCell<HashMap<FileId, Arc<FileSelection>>>,
}

impl Resolver {
    /// A resolver; `entry` overrides the choice of how Python calls become visible.
    pub fn new(targets: Arc<Targets>, calibration: Calibration, entry: Option<EntrySource>) -> Self {
        Self { targets, calibration, entry, files: RefCell::default() }
    }

    /// The targets.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// What probes cost here.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Works out what the targets select in a process.
    ///
    /// # Errors
    /// The process cannot be looked into. What is wrong with one file is a remark of the plan.
    pub fn plan(&self, process: &Process) -> Result<Plan, ResolveError> {
        let mut plan = Plan {
            functions: Vec::new(),
            sites: Vec::new(),
            python: PythonPlan::NotAsked,
            remarks: Vec::new(),
        };
        let mappings = process.mappings()?;
        if self.asks(TargetKind::Native) || self.asks(TargetKind::Usdt) {
            for mapped in &mappings.files {
                self.plan_file(process, &mappings, mapped, &mut plan);
            }
        }
        if self.asks(TargetKind::Python) {
            self.plan_python(process, &mappings, &mut plan)?;
        }
        Ok(plan)
    }

    fn asks(&self, kind: TargetKind) -> bool {
        self.targets.iter().any(|target| target.kind == kind)
    }

    /// Adds what the native and USDT targets select in one file.
    fn plan_file(&self, process: &Process, mappings: &Mappings, mapped: &MappedFile, plan: &mut Plan) {
        let path = mapped.path_in_process.to_string_lossy();
        let (native, usdt) = (self.targets.native_in(&path), self.targets.usdt_in(&path));
        if native.is_empty() && usdt.is_empty() {
            return;
        }
        match self.selection(process, mapped) {
            Ok(selection) => {
                selection.add_to(plan);
                selection.add_indirect(process, mappings, plan);
            }
            Err(error) => {
                let concerned: BTreeSet<_> = native.targets().chain(usdt.targets()).collect();
                for target in concerned {
                    plan.remarks.push(Remark {
                        target: Some(target),
                        text: format!("nothing in {} can be selected: {error}", mapped.path_in_process.display()),
                    });
                }
            }
        }
    }

    /// What the targets select in a file, from memory if it was asked before.
    fn selection(&self, process: &Process, mapped: &MappedFile) -> Result<Arc<FileSelection>, FileError> {
        let file = probe_file(process, mapped)?;
        if let Some(known) = self.files.borrow().get(&file.id()) {
            return Ok(Arc::clone(known));
        }
        let id = file.id();
        let selection = Arc::new(FileSelection::new(self, process, Arc::new(file))?);
        self.files.borrow_mut().insert(id, Arc::clone(&selection));
        Ok(selection)
    }
}

/// Opens the very file that the process maps.
fn probe_file(process: &Process, mapped: &MappedFile) -> Result<ProbeFile, FileError> {
    let file: File = mapped.open(process)?.into_file();
    Ok(ProbeFile::new(file, mapped.path_in_process.clone())?)
}

/// The ELF view of a file that is held open.
fn elf_of(file: &ProbeFile) -> Result<ElfFile, FileError> {
    Ok(ElfFile::from_file(file.file().try_clone()?, file.path())?)
}
