//! A borrowed thread: we make it run system calls and functions, and give it back.
//!
//! Before we make the thread run, we put its own state into a signal frame on its stack. The frame stays
//! there until we give the thread back. If this tool is killed in between, the kernel detaches from the
//! thread. The thread then finishes what we made it do, and returns through the frame. At worst the program
//! sees a system call that failed with `EINTR`.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{InjectError, address_space::AddressSpace, arch, stage::Stage, threads};
use crate::{
    process::Process,
    sys::ptrace::{Registers, Resume, Stop, Tracee},
    units::{Pid, VirtualAddress},
};

/// Signals for faults of the thread itself. All other signals wait until we give the thread back.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
/// How long a system call that does not block may take: much longer than it ever takes normally.
const SYSTEM_CALL_LIMIT: Duration = Duration::from_secs(5);
/// If the thread still works, and does not wait for a lock, we multiply its limit by this.
const PATIENCE: u32 = 5;

/// The thread's state, which we restore later.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) registers: Registers,
    pub(super) extended: Vec<u8>,
    pub(super) mask: u64,
}

/// Where the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Stopped on its way out of the kernel, where system calls continue.
    LeavingKernel,
    /// Stopped at a system call.
    AtSystemCall,
    /// Running.
    Running,
    /// The thread has ended, or we have let it go.
    Gone,
}

/// A thread that makes calls for us.
#[derive(Debug)]
pub(super) struct Borrowed<'p> {
    process: &'p Process,
    tracee: Tracee,
    saved: Saved,
    frame: arch::Frame,
    code: arch::Code,
    memory: &'p AddressSpace,
    place: Place,
    /// What we make the thread do.
    stage: Stage,
    /// Signals that came meanwhile although most are blocked. The process gets them later.
    held: Vec<i32>,
}

impl<'p> Borrowed<'p> {
    /// Prepares a thread that was stopped on its way out of the kernel. The thread must not have run since.
    pub(super) fn new(
        process: &'p Process,
        tracee: Tracee,
        saved: Saved,
        code: arch::Code,
        memory: &'p AddressSpace,
    ) -> Result<Self, InjectError> {
        let frame = arch::Frame::new(&saved.registers, &saved.extended, saved.mask);
        let (place, stage) = (Place::LeavingKernel, Stage::Borrow);
        let borrowed = Self { process, tracee, saved, frame, code, memory, place, stage, held: Vec::new() };
        borrowed.write(borrowed.frame.context(), borrowed.frame.bytes())?;
        Ok(borrowed)
    }

    /// The thread.
    pub(super) fn thread(&self) -> Pid {
        self.tracee.thread()
    }

    /// Whether we can make the thread do something.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.place, Place::LeavingKernel | Place::AtSystemCall)
    }

    /// Makes the thread make a system call that does not block. Returns an error number as a negative value,
    /// like the kernel.
    pub(super) fn system_call(
        &mut self,
        name: &'static str,
        number: u64,
        arguments: [u64; 6],
    ) -> Result<i64, InjectError> {
        self.stage = Stage::SystemCall(name);
        let (registers, words) = arch::system_call(&self.code, &self.frame, number, arguments);
        self.start(registers, &words)?;
        let deadline = Instant::now() + SYSTEM_CALL_LIMIT;
        for _entry_and_exit in 0..2 {
            self.run_to_system_call(deadline)?.ok_or_else(|| self.overdue(SYSTEM_CALL_LIMIT))?;
        }
        let registers = self.registers()?;
        Ok(arch::result(&registers))
    }

    /// Like [`Borrowed::system_call`], but returns an error number as an error.
    pub(super) fn checked_system_call(
        &mut self,
        name: &'static str,
        number: u64,
        arguments: [u64; 6],
    ) -> Result<u64, InjectError> {
        let result = self.system_call(name, number, arguments)?;
        u64::try_from(result).map_err(|_| InjectError::RemoteCall {
            pid: self.process.pid(),
            call: name,
            source: io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(0)),
        })
    }

    /// Makes the thread call a function with two integer arguments. Returns the low half of the function's
    /// result.
    pub(super) fn call(
        &mut self,
        stage: Stage,
        function: VirtualAddress,
        arguments: [u64; 2],
        limit: Duration,
    ) -> Result<u32, InjectError> {
        self.stage = stage;
        let (registers, words) = arch::function_call(&self.code, &self.frame, function, arguments);
        self.start(registers, &words)?;
        let started = Instant::now();
        loop {
            if self.run_to_system_call(Instant::now() + limit)?.is_none() {
                let waits = threads::waits_in(self.process, self.thread());
                let locked = waits.is_some_and(|call| call.number == libc::SYS_futex as u64);
                if locked || started.elapsed() > limit * PATIENCE {
                    return Err(self.give_up(limit, locked));
                }
                continue;
            }
            let mut registers = self.registers()?;
            if let Some(result) = arch::function_result(&self.code, &self.frame, &registers) {
                // The thread must not go back yet, so we replace `rt_sigreturn` by a call without effect.
                arch::replace_call(&self.code, &mut registers, arch::number::CLOSE, u64::MAX);
                self.set_registers(&registers)?;
                let deadline = Instant::now() + SYSTEM_CALL_LIMIT;
                self.run_to_system_call(deadline)?.ok_or_else(|| self.overdue(limit))?;
                return Ok(result);
            }
        }
    }

    /// Writes a short text into the thread's memory, for its calls, and returns the address.
    pub(super) fn text(&self, text: &std::ffi::CStr) -> Result<u64, InjectError> {
        let place = self.frame.scratch();
        self.write(place, text.to_bytes_with_nul())?;
        Ok(place.0)
    }

    /// Restores the thread's state, and detaches.
    pub(super) fn put_back(mut self) -> Result<(), InjectError> {
        self.stage = Stage::Return;
        let result = self.leave_kernel().and_then(|()| self.restore());
        let Self { process, tracee, place, held, .. } = self;
        let result = result.and_then(|()| match place {
            Place::Gone => Ok(()),
            _ => tracee.detach(0).map_err(|source| super::system(process, "giving the thread back", source)),
        });
        for signal in held {
            resend(process, signal);
        }
        result
    }

    /// Makes the thread stop on its way out of the kernel. Only from there does a system call continue.
    fn leave_kernel(&mut self) -> Result<(), InjectError> {
        if matches!(self.place, Place::LeavingKernel | Place::Gone) {
            return Ok(());
        }
        self.interrupt()?;
        if self.place == Place::AtSystemCall {
            self.resume(Resume::Freely)?;
        }
        let deadline = Instant::now() + SYSTEM_CALL_LIMIT;
        while self.place != Place::LeavingKernel {
            match self.wait(deadline)? {
                Some(Stop::SystemCall) => {
                    // After any stop, the kernel forgets our request for a stop, so we repeat it.
                    self.interrupt()?;
                    self.resume(Resume::Freely)?;
                }
                Some(Stop::Signal(signal)) => self.hold(signal),
                Some(Stop::Interrupted | Stop::Group | Stop::Exec) => {}
                Some(Stop::Ended) => return Err(self.ended()),
                None => return Err(self.overdue(SYSTEM_CALL_LIMIT)),
            }
        }
        Ok(())
    }

    fn restore(&self) -> Result<(), InjectError> {
        if self.place == Place::Gone {
            return Ok(());
        }
        // Sets the registers last: until then the thread would return through its signal frame.
        self.tracee
            .set_signal_mask(self.saved.mask)
            .and_then(|()| self.tracee.set_extended_state(&self.saved.extended))
            .and_then(|()| self.tracee.set_registers(&self.saved.registers))
            .map_err(|source| self.failure("restoring registers", source))
    }

    /// Gives up waiting for a function to return.
    fn give_up(&mut self, limit: Duration, locked: bool) -> InjectError {
        let (pid, thread, stage) = (self.process.pid(), self.thread(), self.stage);
        let limit = limit.into();
        if !locked {
            // If we broke off a working dynamic loader, its lock would stay taken for ever. If we detach, the
            // thread finishes and returns through its signal frame.
            self.place = Place::Gone;
            return InjectError::LeftAlone { pid, thread, stage, limit };
        }
        // The thread must not go on waiting: the owner of the lock may wait for a lock of this thread, such
        // as the GIL.
        if let Err(error) = self.leave_kernel() {
            return error;
        }
        InjectError::Overdue { pid, thread, stage, limit, state: "waiting for a lock", left: stage.leaves() }
    }

    fn start(&mut self, registers: Registers, words: &[u64]) -> Result<(), InjectError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (_, stack) = arch::position(&registers);
        self.write(stack, &bytes)?;
        let first = self.place == Place::LeavingKernel;
        self.set_registers(&registers)?;
        if first {
            // We set the mask after the registers. If we set it first, the thread could return through its
            // own state, which unblocks the signals.
            let mask = FAULTS.iter().fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)));
            let set = self.tracee.set_signal_mask(mask);
            set.map_err(|source| self.failure("blocking signals", source))?;
        }
        Ok(())
    }

    /// Lets the thread run to the next entry or exit of a system call. Returns `None` if the time is over.
    fn run_to_system_call(&mut self, deadline: Instant) -> Result<Option<()>, InjectError> {
        loop {
            if self.place != Place::Running {
                self.resume(Resume::ToSystemCall)?;
            }
            match self.wait(deadline)? {
                None => return Ok(None),
                Some(Stop::SystemCall) => return Ok(Some(())),
                Some(Stop::Ended) => return Err(self.ended()),
                // The other threads of the process stop. This thread joins them when we give it back.
                Some(Stop::Group | Stop::Interrupted | Stop::Exec) => {}
                Some(Stop::Signal(signal)) => {
                    if FAULTS.contains(&signal) && !self.tracee.signal_was_sent().unwrap_or(false) {
                        let (pid, thread, stage) = (self.process.pid(), self.thread(), self.stage);
                        return Err(InjectError::Crashed { pid, thread, stage, signal });
                    }
                    self.hold(signal);
                }
            }
        }
    }

    fn hold(&mut self, signal: i32) {
        self.held.push(signal);
    }

    fn interrupt(&self) -> Result<(), InjectError> {
        self.tracee.interrupt().map_err(|source| self.failure("interrupting a thread", source))
    }

    fn resume(&mut self, how: Resume) -> Result<(), InjectError> {
        let resumed = self.tracee.resume(how, 0);
        resumed.map_err(|source| self.failure("resuming a thread", source))?;
        self.place = Place::Running;
        Ok(())
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Stop>, InjectError> {
        let stop =
            self.tracee.wait(deadline).map_err(|source| self.failure("waiting for a thread", source))?;
        self.place = match stop {
            None => Place::Running,
            Some(Stop::SystemCall) => Place::AtSystemCall,
            Some(Stop::Ended) => Place::Gone,
            Some(Stop::Interrupted | Stop::Group | Stop::Signal(_) | Stop::Exec) => Place::LeavingKernel,
        };
        Ok(stop)
    }

    fn registers(&self) -> Result<Registers, InjectError> {
        self.tracee.registers().map_err(|source| self.failure("reading registers", source))
    }

    fn set_registers(&self, registers: &Registers) -> Result<(), InjectError> {
        self.tracee.set_registers(registers).map_err(|source| self.failure("setting registers", source))
    }

    fn write(&self, address: VirtualAddress, bytes: &[u8]) -> Result<(), InjectError> {
        let written = self.memory.write(address, bytes);
        written.map_err(|source| self.failure("writing to the stack of a thread", source))
    }

    fn ended(&self) -> InjectError {
        InjectError::Ended { pid: self.process.pid(), thread: self.thread(), stage: self.stage }
    }

    fn overdue(&self, limit: Duration) -> InjectError {
        let (pid, thread, limit) = (self.process.pid(), self.thread(), limit.into());
        InjectError::LeftAlone { pid, thread, stage: self.stage, limit }
    }

    fn failure(&self, what: &'static str, source: io::Error) -> InjectError {
        // If this fails for a thread that we stopped, something has killed the thread. Then its memory is
        // gone, too.
        if source.raw_os_error() == Some(libc::ESRCH) || source.kind() == io::ErrorKind::WriteZero {
            return self.ended();
        }
        super::system(self.process, what, source)
    }
}

/// Sends the process a signal that we have held back. The process does not see who sent the signal first.
fn resend(process: &Process, signal: i32) {
    let Some(signal) = rustix::process::Signal::from_named_raw(signal) else { return };
    // This fails only if the process has ended.
    let _ = rustix::process::pidfd_send_signal(process, signal);
}
