//! `ptrace(2)` of one thread, in the mode of `PTRACE_SEIZE`.
//!
//! The kernel accepts these calls only from the thread that seized, and detaches when that thread ends, for
//! whatever reason. So all tracing of a thread happens in a thread of its own, which ends with the work.

mod signals;

use std::{
    io,
    mem::MaybeUninit,
    time::{Duration, Instant},
};

use crate::units::Pid;

/// General registers, as `NT_PRSTATUS` has them.
pub type Registers = libc::user_regs_struct;

/// Register sets (include/uapi/linux/elf.h).
const NT_PRSTATUS: libc::c_int = 1;
const NT_X86_XSTATE: libc::c_int = 0x202;
/// include/uapi/linux/ptrace.h
const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const PTRACE_LISTEN: libc::c_uint = 0x4208;
/// `PTRACE_EVENT_STOP`, above the signal in the status of a stop.
const EVENT_STOP: i32 = 128;
/// The bit that `PTRACE_O_TRACESYSGOOD` adds to the signal of a stop at a system call.
const SYSTEM_CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// Largest size of the extended state: AMX needs 11 KiB today.
const EXTENDED_STATE_LIMIT: usize = 64 << 10;

/// An instruction of classic BPF: `struct sock_filter` (include/uapi/linux/filter.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FilterInstruction {
    /// Its operation.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Its constant, `k`.
    pub constant: u32,
}

/// Why a traced thread is stopped, or that it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It stopped on our request, on its way out of the kernel, with no signal to deliver.
    Interrupted,
    /// It is stopped with its whole process (job control).
    Group,
    /// It enters or leaves a system call.
    SystemCall,
    /// It has executed another program, and has not run any of its instructions.
    Exec,
    /// A signal is about to be delivered to it.
    Signal(i32),
    /// It has ended, or another thread has replaced the program.
    Ended,
}

/// How far a stopped thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// To the next signal or interruption.
    Freely,
    /// To the next entry or exit of a system call, at most.
    ToSystemCall,
}

/// A traced thread.
#[derive(Debug)]
pub struct Tracee {
    thread: Pid,
    /// Whether we, as its parent, must also see its exit, so that we must not reap it here.
    our_child: bool,
    detached: bool,
}

impl Tracee {
    /// Starts tracing a thread, without stopping it. `our_child`: it is the main thread of a child of our
    /// process.
    ///
    /// # Errors
    /// `EPERM` if another tracer has it or the kernel forbids it, `ESRCH` if it has ended.
    pub fn seize(thread: Pid, our_child: bool) -> io::Result<Self> {
        Self::seize_with(thread, our_child, libc::PTRACE_O_TRACESYSGOOD)
    }

    /// Starts tracing a thread, without stopping it; it will stop whenever it executes a program.
    /// `our_child`: as for [`Tracee::seize`].
    ///
    /// # Errors
    /// As [`Tracee::seize`].
    pub fn seize_for_exec(thread: Pid, our_child: bool) -> io::Result<Self> {
        Self::seize_with(thread, our_child, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC)
    }

    fn seize_with(thread: Pid, our_child: bool, options: libc::c_int) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, thread, 0, usize::try_from(options).unwrap_or(0))?;
        Ok(Self { thread, our_child, detached: false })
    }

    /// TID of the thread that is traced.
    pub fn thread(&self) -> Pid {
        self.thread
    }

    /// Asks it to stop.
    ///
    /// # Errors
    /// `ESRCH` if it has ended.
    pub fn interrupt(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.thread, 0, 0)
    }

    /// Waits for its next stop; `None` if there is none before the deadline.
    ///
    /// # Errors
    /// What `waitid` returns.
    pub fn wait(&self, deadline: Instant) -> io::Result<Option<Stop>> {
        // No system call waits for a child with a time limit. A thread that only has a system call to make
        // stops within microseconds; if we slept, it would stand still ten times as long as necessary.
        let patience = Instant::now() + Duration::from_micros(300);
        loop {
            if let Some(stop) = self.look()? {
                return Ok(Some(stop));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            if now < patience {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Waits for its next stop, however long that takes; `None` once `given_up` returns true.
    ///
    /// # Errors
    /// What `waitid` returns.
    pub fn wait_long(&self, given_up: impl Fn() -> bool) -> io::Result<Option<Stop>> {
        const LONGEST: Duration = Duration::from_millis(5);
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(stop) = self.look()? {
                return Ok(Some(stop));
            }
            if given_up() {
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 5 / 4).min(LONGEST);
        }
    }

    fn look(&self) -> io::Result<Option<Stop>> {
        let looking = libc::WNOHANG | libc::__WALL | libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        let Some((code, status)) = wait_id(self.thread, looking)? else { return Ok(None) };
        if code != libc::CLD_TRAPPED && code != libc::CLD_STOPPED {
            // A thread that has ended would stay as a zombie, since no other code waits for it.
            if !self.our_child {
                wait_id(self.thread, libc::WNOHANG | libc::__WALL | libc::WEXITED)?;
            }
            return Ok(Some(Stop::Ended));
        }
        if wait_id(self.thread, libc::WNOHANG | libc::__WALL | libc::WSTOPPED)?.is_none() {
            return Ok(None);
        }
        Ok(Some(match (status >> 8, status & 0xff) {
            (EVENT_STOP, libc::SIGTRAP) => Stop::Interrupted,
            (EVENT_STOP, _) => Stop::Group,
            (libc::PTRACE_EVENT_EXEC, libc::SIGTRAP) => Stop::Exec,
            (_, SYSTEM_CALL_STOP) => Stop::SystemCall,
            (_, signal) => Stop::Signal(signal),
        }))
    }

    /// Lets it run on, and delivers a signal if that is not 0.
    ///
    /// # Errors
    /// `ESRCH` if it is not stopped, or was killed.
    pub fn resume(&self, how: Resume, signal: i32) -> io::Result<()> {
        let operation = match how {
            Resume::Freely => libc::PTRACE_CONT,
            Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        };
        request(operation, self.thread, 0, usize::try_from(signal).unwrap_or(0))
    }

    /// Leaves it stopped together with its process, until the process is continued.
    ///
    /// # Errors
    /// `EIO` if its process is not stopped, `ESRCH` if it was killed.
    pub fn stay_stopped(&self) -> io::Result<()> {
        request(PTRACE_LISTEN, self.thread, 0, 0)
    }

    /// Stops tracing it. It must be stopped; it runs on, and gets a signal if that is not 0.
    ///
    /// # Errors
    /// `ESRCH` if it is not stopped, or was killed.
    pub fn detach(mut self, signal: i32) -> io::Result<()> {
        self.detached = true;
        request(libc::PTRACE_DETACH, self.thread, 0, usize::try_from(signal).unwrap_or(0))
    }

    /// Its general registers.
    ///
    /// # Errors
    /// `ESRCH` if it is not stopped, or was killed.
    pub fn registers(&self) -> io::Result<Registers> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        let mut vector =
            libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: size_of::<Registers>() };
        self.register_set(libc::PTRACE_GETREGSET, NT_PRSTATUS, &mut vector)?;
        // SAFETY: plain integers, of which every value, zero too, is valid.
        Ok(unsafe { registers.assume_init() })
    }

    /// Changes its general registers.
    ///
    /// # Errors
    /// As [`Tracee::registers`].
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut copy = *registers;
        let mut vector = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: size_of::<Registers>() };
        self.register_set(libc::PTRACE_SETREGSET, NT_PRSTATUS, &mut vector)
    }

    /// Its floating-point and vector registers, in the layout of XSAVE.
    ///
    /// # Errors
    /// As [`Tracee::registers`]; `ENODEV` on processors without XSAVE.
    pub fn extended_state(&self) -> io::Result<Vec<u8>> {
        let mut state = vec![0; EXTENDED_STATE_LIMIT];
        let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        self.register_set(libc::PTRACE_GETREGSET, NT_X86_XSTATE, &mut vector)?;
        let length = vector.iov_len;
        state.truncate(length);
        Ok(state)
    }

    /// Changes its floating-point and vector registers to what [`Tracee::extended_state`] gave.
    ///
    /// # Errors
    /// As [`Tracee::extended_state`].
    pub fn set_extended_state(&self, state: &[u8]) -> io::Result<()> {
        let mut copy = state.to_vec();
        let mut vector = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
        self.register_set(libc::PTRACE_SETREGSET, NT_X86_XSTATE, &mut vector)
    }

    fn register_set(
        &self,
        operation: libc::c_uint,
        set: libc::c_int,
        vector: &mut libc::iovec,
    ) -> io::Result<()> {
        let set = usize::try_from(set).unwrap_or(0);
        request(operation, self.thread, set, std::ptr::from_mut(vector) as usize)
    }

    /// One of its seccomp filters, the last installed first. Needs `CAP_SYS_ADMIN` in the initial user
    /// namespace; no filter may apply to us.
    ///
    /// # Errors
    /// `ENOENT` beyond the last, `EACCES` without the right, `EINVAL` for a thread without filters, `EIO` if
    /// the kernel cannot (`CONFIG_CHECKPOINT_RESTORE`).
    pub fn seccomp_filter(&self, index: usize) -> io::Result<Vec<FilterInstruction>> {
        let length = count(PTRACE_SECCOMP_GET_FILTER, self.thread, index, 0)?;
        let mut program = vec![FilterInstruction::default(); length];
        count(PTRACE_SECCOMP_GET_FILTER, self.thread, index, program.as_mut_ptr() as usize)?;
        Ok(program)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.detached {
            // Fails if the thread runs; the kernel detaches it when our own thread ends.
            let _ = request(libc::PTRACE_DETACH, self.thread, 0, 0);
        }
    }
}

/// Checks whether we may call ptrace(2), with a thread id that no kernel gives out.
///
/// # Errors
/// The error of a seccomp filter that applies to us.
pub fn is_callable() -> io::Result<()> {
    // Above every PID that a kernel gives out (PID_MAX_LIMIT, 2^22).
    let Some(no_thread) = Pid::new(i32::MAX) else { return Ok(()) };
    match request(libc::PTRACE_SEIZE, no_thread, 0, 0) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

fn request(operation: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<()> {
    count(operation, thread, address, data).map(|_| ())
}

/// As [`request`], for operations whose result is a number.
fn count(operation: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<usize> {
    // SAFETY: every operation used here reads or writes at most what its caller's `data` points to: a live
    // value of the size that `address`, the value itself, or the kernel's earlier answer gives. None touches
    // other memory of ours.
    let result = unsafe { libc::ptrace(operation, thread.get(), address, data) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The code and the status of a change; `None` if there is none. A thread that no longer exists has ended.
fn wait_id(thread: Pid, options: libc::c_int) -> io::Result<Option<(i32, i32)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `info` is a `siginfo_t` for the call to fill.
        let result =
            unsafe { libc::waitid(libc::P_PID, thread.get().cast_unsigned(), info.as_mut_ptr(), options) };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(Some((libc::CLD_KILLED, 0))),
            _ => return Err(error),
        }
    }
    // SAFETY: zeroed or filled, and plain integers both ways.
    let info = unsafe { info.assume_init() };
    // SAFETY: `waitid` filled in the fields of a child's change, or left zeros.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some((info.si_code, status)))
}
