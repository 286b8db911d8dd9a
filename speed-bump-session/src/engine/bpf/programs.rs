//! The BPF programs: which program runs at a site, and which programs follow processes.

use std::{
    cell::OnceCell,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::{EngineError, Form, copies::Original};
use crate::sys::bpf::{self, ProgramKind};

/// The programs for uprobes. They differ in how they find the function of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UprobeProgram {
    /// The site identifies the function: for native functions and USDT probes.
    Site,
    /// The return address identifies the function: for CPython with `-X perf`. This address lies in the
    /// function's trampoline.
    Trampoline,
    /// The probe's arguments identify the function: for CPython's `function__entry`.
    PythonUsdt,
    /// Registers identify the function: for the helper's stub in a Python process.
    PythonHelper,
    /// Runs at the exits of a timed native function. This variant comes before `SiteTimed`. So we attach the
    /// exits first, and see the end of every call whose start we saw.
    SiteLeft,
    /// The site identifies the function: for native functions with timed calls.
    SiteTimed,
    /// By the site and the return address: native functions with targets for some callers alone.
    SiteCallers,
    /// [`Self::SiteCallers`], for functions whose calls are timed.
    SiteCallersTimed,
}

impl UprobeProgram {
    /// All programs, in order.
    pub(super) const ALL: [Self; 8] = [
        Self::Site,
        Self::Trampoline,
        Self::PythonUsdt,
        Self::PythonHelper,
        Self::SiteLeft,
        Self::SiteTimed,
        Self::SiteCallers,
        Self::SiteCallersTimed,
    ];
}

/// A loaded program for uprobes.
#[derive(Debug)]
pub enum SiteProgram<'a> {
    /// A program for all sites: a cookie identifies the site.
    Shared(BorrowedFd<'a>),
    /// A program for one site only.
    Own(OwnedFd),
}

/// The programs of an object, before we load them. Two are missing if only the helper can cover Python, and
/// another three if the programs cannot time calls.
pub(super) struct Originals {
    pub(super) site: Original,
    pub(super) trampoline: Option<Original>,
    pub(super) python_usdt: Option<Original>,
    pub(super) python_helper: Original,
    pub(super) site_left: Option<Original>,
    pub(super) site_timed: Option<Original>,
    pub(super) site_callers: Original,
    pub(super) site_callers_timed: Option<Original>,
    pub(super) fork: Original,
    pub(super) exec: Original,
}

/// The programs of an object. We load each program when we first need it, because the kernel takes
/// milliseconds to check a program.
pub(super) struct Programs {
    form: Form,
    originals: Originals,
    loaded: [OnceCell<OwnedFd>; UprobeProgram::ALL.len()],
    /// The maps. They must stay open, because programs contain the numbers of their descriptors.
    _maps: Vec<OwnedFd>,
    options: Options,
}

/// Additional features of the programs for sites.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Whether the programs yield the processor when others want it.
    pub(super) may_sleep: bool,
    /// Whether the programs log their decisions.
    pub(super) logs: bool,
}

impl Programs {
    pub(super) fn new(form: Form, originals: Originals, maps: Vec<OwnedFd>, options: Options) -> Self {
        Self { form, originals, loaded: Default::default(), _maps: maps, options }
    }

    fn original(&self, program: UprobeProgram) -> Option<&Original> {
        match program {
            UprobeProgram::Site => Some(&self.originals.site),
            UprobeProgram::Trampoline => self.originals.trampoline.as_ref(),
            UprobeProgram::PythonUsdt => self.originals.python_usdt.as_ref(),
            UprobeProgram::PythonHelper => Some(&self.originals.python_helper),
            UprobeProgram::SiteLeft => self.originals.site_left.as_ref(),
            UprobeProgram::SiteTimed => self.originals.site_timed.as_ref(),
            UprobeProgram::SiteCallers => Some(&self.originals.site_callers),
            UprobeProgram::SiteCallersTimed => self.originals.site_callers_timed.as_ref(),
        }
    }

    /// Loads a program that all sites share, unless this has been done already.
    pub(super) fn load(&self, program: UprobeProgram) -> Result<(), EngineError> {
        let Some(loaded) = self.loaded.get(program as usize) else { return Ok(()) };
        if self.form == Form::Copied || loaded.get().is_some() {
            return Ok(());
        }
        let Some(original) = self.original(program) else { return Ok(()) };
        let attach_type = self.form.attach_type();
        let kind = if self.options.may_sleep { ProgramKind::SleepingUprobe } else { ProgramKind::Uprobe };
        let new = original.load(kind(attach_type));
        let logs = self.options.logs;
        let new = new.map_err(|error| EngineError::Load { name: original.name, error, logs })?;
        // The cell was empty, and no other thread can have set it.
        let _ = loaded.set(new);
        Ok(())
    }

    /// The program to attach to a site.
    pub(super) fn program(&self, program: UprobeProgram, site: u32) -> io::Result<SiteProgram<'_>> {
        let lacking = || io::Error::from(io::ErrorKind::Unsupported);
        if self.form == Form::Copied {
            let copy = self.original(program).ok_or_else(lacking)?.load_for(site).map_err(|refused| {
                tracing::warn!("the kernel refused a BPF program: {refused}");
                refused.error
            })?;
            return Ok(SiteProgram::Own(copy));
        }
        let loaded = self.loaded.get(program as usize).and_then(OnceCell::get);
        loaded.map(|loaded| SiteProgram::Shared(loaded.as_fd())).ok_or_else(lacking)
    }

    /// Announces forks and execs, as long as the returned descriptors are open.
    pub(super) fn follow(&self) -> Result<[OwnedFd; 2], EngineError> {
        let link = |original: &Original, tracepoint| {
            let attach = || {
                let program = original.load(ProgramKind::RawTracepoint)?;
                Ok(bpf::open_raw_tracepoint(program.as_fd(), tracepoint)?)
            };
            attach().map_err(|error| EngineError::Follow { name: original.name, error })
        };
        Ok([
            link(&self.originals.fork, c"sched_process_fork")?,
            link(&self.originals.exec, c"sched_process_exec")?,
        ])
    }
}
