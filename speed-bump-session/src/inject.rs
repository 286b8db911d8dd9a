//! Loads the helper into a running process: we borrow one of its threads for a moment. The thread loads the
//! helper from a memory file, calls the helper's install function, and goes on.
//!
//! We write nothing to a disk, change no code of the process, and stop only the borrowed thread. Each step is
//! in a file. `preflight` finds what forbids injecting, `symbols` finds the symbols of the process, and
//! `resident` finds a helper that is already there. `threads`, `borrow`, `safe_point`, `calls` and `returns`
//! choose and borrow a thread. `remote_call` makes the thread run our calls. `trial` does the steps that stop
//! no thread, and returns whether we would try the others.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod address_space;
pub(crate) mod addresses;
mod borrow;
mod calls;
pub(crate) mod error;
mod filters;
mod headroom;
pub mod image;
mod injectable;
mod memory_file;
mod preflight;
mod remote_call;
mod resident;
mod returns;
mod safe_point;
mod seccomp;
pub mod stage;
mod step_times;
mod symbols;
mod task;
pub mod threads;
mod trial;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use error::InjectError;
pub use preflight::name_of;
pub use trial::{Trial, would_try};
#[cfg(any(test, fuzzing))]
pub(crate) use {seccomp::filter, symbols::exported};

use std::{
    ffi::CString,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::fs::{SealFlags, fcntl_add_seals};

use crate::{
    probe::file::ProbeFile,
    process::{MappedRange, Process, Program, mapped_file::FileIdentity},
    python::helper::words,
    sys::{ptrace::Tracee, watchdog::Watchdog},
    units::{Nanos, Pid, VirtualAddress},
};
#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
use address_space::AddressSpace;
use injectable::Image;
use memory_file::{Execution, MemoryFile};
use remote_call::{Borrowed, Saved};
use resident::Residents;
use stage::Stage;
use step_times::StepTimes;
use symbols::Symbols;
use trial::Ready;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long we search for a thread at a safe point.
    pub safe_point: Duration,
    /// How long a function that the borrowed thread calls may take if it waits for a lock.
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { safe_point: Duration::from_secs(2), call: Duration::from_secs(1) }
    }
}

/// A helper in a process, with its control block.
#[derive(Debug)]
pub struct Injected {
    /// The control block's memory file, open for reading and writing.
    pub control: File,
    /// The mapping of the helper's code in the process.
    pub text: MappedRange,
    /// The helper's image, as a file for probes.
    pub image: ProbeFile,
    /// Whether we loaded the helper just now; if not, an earlier session loaded it.
    pub fresh: bool,
    /// The thread that we borrowed.
    pub thread: Pid,
    /// How long the borrowed thread was stopped, or worked for us.
    pub stopped: Nanos,
    /// The duration of each step, in order. `stopped` includes the end of the step `borrow`, and all steps
    /// after it.
    pub steps: Vec<(&'static str, Nanos)>,
}

/// Writes the contents of a control block into an empty memory file of the process.
pub type FillControl<'a> = dyn FnMut(&File) -> io::Result<()> + Send + 'a;

/// Loads `image` into a process, unless it is there already. Makes `control` write a new control block, and
/// calls the helper with this block.
///
/// `program` is the program that the process ran when we decided to inject. `interpreters` are its files with
/// the interpreter's code: we may borrow a thread that runs there. We call `control` while the thread is
/// borrowed, so it should be quick.
///
/// # Errors
/// [`InjectError`]. Unless the error says otherwise, the process is unchanged.
pub fn inject(
    process: &Process,
    program: &Program,
    image: &[u8],
    interpreters: &[FileIdentity],
    control: &mut FillControl<'_>,
    limits: Limits,
) -> Result<Injected, InjectError> {
    let mut step_times = StepTimes::start();
    let for_python = !interpreters.is_empty();
    let looked = Ready::look(process, image, for_python, &mut step_times);
    if looked.is_err() {
        // If the process now runs another program, no other error is worth reporting.
        process.check_program(program)?;
    }
    let Ready { image: parsed, memory, symbols, residents } = looked?;
    let injection = Injection { process, image: &parsed, bytes: image, symbols, residents, step_times };
    let planned = Planned { program, interpreters };
    let work = || injection.run(&memory, planned, control, &limits);
    // We drop the watchdog when the following thread has ended, and has detached from everything that it
    // traced.
    let _watchdog = Watchdog::start();
    // We trace on a thread of our own, because the kernel detaches everything that a thread traces when that
    // thread ends.
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Injects with a thread that the caller already traces. The thread must be stopped between two instructions
/// of the program, where loading a library cannot disturb anything. We call `ready` before the thread goes
/// on. Afterwards we no longer trace the thread. The caller must be the tracing thread.
///
/// # Errors
/// [`InjectError`]. The process goes on unchanged, and we do not trace it any more.
pub fn inject_into_stopped(
    process: &Process,
    image: &[u8],
    tracee: Tracee,
    control: &mut FillControl<'_>,
    limits: Limits,
    ready: &mut dyn FnMut(Injected),
) -> Result<(), InjectError> {
    let since = Instant::now();
    let mut step_times = StepTimes::start();
    preflight::check_traced(process)?;
    headroom::check(process, false)?;
    addresses::check(process)?;
    let parsed = Image::parse(image)?;
    let symbols = symbols::find(process)?;
    step_times.step_done("symbols");
    seccomp::check(process, &tracee)?;
    let system = |what| move |source| system(process, what, source);
    let memory = AddressSpace::open(process)?;
    let saved = (|| {
        let (registers, extended) = (tracee.registers()?, tracee.extended_state()?);
        Ok(Saved { registers, extended, mask: tracee.signal_mask()? })
    })();
    let saved = saved.map_err(system("reading registers"))?;
    let code = symbols.code;
    let residents = Residents::default();
    let mut injection = Injection { process, image: &parsed, bytes: image, symbols, residents, step_times };
    let mut borrowed = Borrowed::new(process, tracee, saved, code, &memory)?;
    let thread = borrowed.thread();
    let outcome = injection.with_thread(&mut borrowed, control, &limits).map(|(loaded, control)| {
        let Loaded { text, image, fresh, .. } = loaded;
        let (stopped, steps) = (Nanos::from(since.elapsed()), injection.step_times.steps());
        ready(Injected { control, text, image, fresh, thread, stopped, steps });
    });
    let returned = borrowed.put_back();
    outcome.and(returned)
}

/// What we knew about the process before we borrowed a thread.
#[derive(Clone, Copy)]
struct Planned<'a> {
    program: &'a Program,
    interpreters: &'a [FileIdentity],
}

struct Injection<'a> {
    process: &'a Process,
    image: &'a Image,
    bytes: &'a [u8],
    symbols: Symbols,
    residents: Residents,
    step_times: StepTimes,
}

/// A helper that is loaded.
struct Loaded {
    text: MappedRange,
    attach: VirtualAddress,
    image: ProbeFile,
    fresh: bool,
}

impl Injection<'_> {
    fn run(
        mut self,
        memory: &AddressSpace,
        planned: Planned<'_>,
        control: &mut FillControl<'_>,
        limits: &Limits,
    ) -> Result<Injected, InjectError> {
        let _quiet = crate::sys::signals::Blocked::fatal();
        let (mut borrowed, since) = borrow::borrow(self.process, memory, &self.symbols, planned, limits)?;
        self.step_times.step_done("borrow");
        let thread = borrowed.thread();
        let outcome = self.with_thread(&mut borrowed, control, limits);
        let returned = borrowed.put_back();
        self.step_times.step_done("give back");
        let stopped = Nanos::from(since.elapsed());
        let (loaded, control) = outcome?;
        returned?;
        let Loaded { text, image, fresh, .. } = loaded;
        let steps = self.step_times.steps();
        tracing::debug!(?steps, "injected");
        Ok(Injected { control, text, image, fresh, thread, stopped, steps })
    }

    fn with_thread(
        &mut self,
        thread: &mut Borrowed<'_>,
        fill: &mut FillControl<'_>,
        limits: &Limits,
    ) -> Result<(Loaded, File), InjectError> {
        let loaded = match &self.residents.ours {
            Some(resident) => {
                let file = resident.file.try_clone();
                let file = file.map_err(|source| self.system("duplicating a descriptor", source))?;
                let image = self.probe_file(file)?;
                Loaded { text: resident.text, attach: resident.attach, image, fresh: false }
            }
            None => self.load(thread, limits)?,
        };
        let control = MemoryFile::make(self.process, thread, resident::CONTROL_NAME, Execution::Never)?;
        self.step_times.step_done("control file");
        if let Err(source) = fill(&control.here) {
            // We ignore an error here, because we report the first failure.
            let _ = control.close(thread);
            return Err(InjectError::Control { pid: self.pid(), source });
        }
        self.step_times.step_done("fill in");
        // The helper always closes the descriptor. So we must not close it: when the helper returns, another
        // thread may have a file of its own with this number.
        let arguments = [control.in_process, 0];
        let code = thread.call(Stage::Attach, loaded.attach, arguments, limits.call)?;
        self.step_times.step_done("attach");
        if code != 0 {
            return Err(InjectError::Helper { pid: self.pid(), code, failure: words::refusal(code) });
        }
        Ok((loaded, control.here))
    }

    /// Makes the thread load the image, unless the image is loaded already.
    fn load(&mut self, thread: &mut Borrowed<'_>, limits: &Limits) -> Result<Loaded, InjectError> {
        let file = MemoryFile::make(self.process, thread, resident::IMAGE_NAME, Execution::Allowed)?;
        self.step_times.step_done("image file");
        let loaded = self.load_file(thread, &file, limits);
        let closed = file.close(thread);
        let (text, attach) = loaded?;
        closed?;
        self.step_times.step_done("close");
        Ok(Loaded { text, attach, image: self.probe_file(file.here)?, fresh: true })
    }

    fn load_file(
        &mut self,
        thread: &mut Borrowed<'_>,
        file: &MemoryFile,
        limits: &Limits,
    ) -> Result<(MappedRange, VirtualAddress), InjectError> {
        let here = &file.here;
        here.write_all_at(self.bytes, 0)
            .map_err(|source| self.system("writing the helper's image", source))?;
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(here, seals).map_err(|errno| self.system("sealing the image", errno.into()))?;
        self.check_contents(here)?;
        self.step_times.step_done("write image");
        // If a dynamic loader already knows a path, it returns that library without reading the file. An
        // earlier helper may have had the same descriptor number. So each helper gets a different path.
        let dots = "./".repeat(self.residents.count);
        let path = format!("/proc/thread-self/fd/{dots}{}", file.in_process);
        let path = CString::new(path).unwrap_or_default();
        let path = thread.text(&path)?;
        let dlopen = self.symbols.dlopen;
        let handle = thread.call(Stage::Dlopen, dlopen.function, [path, dlopen.flags], limits.call)?;
        self.step_times.step_done("dlopen");
        let image = here.metadata().map_err(|source| self.system("examining the image", source))?;
        let image = FileIdentity::by_stat(&image);
        let regions = self.process.regions()?;
        // We know only the low half of the handle. For a valid handle, this half is zero only once in 2^28
        // times. The mappings show whether the image was loaded.
        let text = regions
            .iter()
            .find(|region| region.executable && (region.device, region.inode) == (image.device, image.inode))
            .ok_or(InjectError::Refused { pid: self.pid() })?;
        tracing::debug!(handle, start = %text.start, "the helper is loaded");
        self.step_times.step_done("find mapping");
        let text = MappedRange {
            start: text.start,
            end: text.end,
            offset: text.offset,
            executable: text.executable,
        };
        let bias = self.image.elf.segments().bias_of_mapping(text.start, text.offset, true);
        let bias = bias.ok_or_else(|| InjectError::Image("its code is mapped where it is not".to_owned()))?;
        Ok((text, bias.to_process(self.image.attach)))
    }

    /// Checks that a sealed file is exactly the image: before we sealed the file, the process could write to
    /// it too.
    fn check_contents(&self, image: &File) -> Result<(), InjectError> {
        let found = resident::is_image(image, self.bytes);
        match found.map_err(|source| self.system("reading the image back", source))? {
            true => Ok(()),
            false => Err(InjectError::Changed { pid: self.pid() }),
        }
    }

    fn probe_file(&self, file: File) -> Result<ProbeFile, InjectError> {
        let name = PathBuf::from("/memfd:speed-bump-helper");
        ProbeFile::new(file, name).map_err(|source| self.system("examining the image", source))
    }

    fn system(&self, what: &'static str, source: io::Error) -> InjectError {
        system(self.process, what, source)
    }

    fn pid(&self) -> Pid {
        self.process.pid()
    }
}

fn system(process: &Process, what: &'static str, source: io::Error) -> InjectError {
    InjectError::System { pid: process.pid(), what, source }
}
