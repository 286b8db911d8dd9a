//! `ptrace(2)` of one thread, after `PTRACE_SEIZE`.
//!
//! The kernel accepts these calls only from the thread that seized. When that thread ends, for whatever
//! reason, the kernel detaches. So we trace each thread from a thread of its own, which ends when the work is
//! done.

mod signals;

use std::{
    io,
    mem::MaybeUninit,
    time::{Duration, Instant},
};

use crate::units::Pid;

/// The general registers, in the layout of `NT_PRSTATUS`.
pub type Registers = libc::user_regs_struct;

/// The numbers of the register sets (include/uapi/linux/elf.h).
const NT_PRSTATUS: libc::c_int = 1;
const NT_X86_XSTATE: libc::c_int = 0x202;
/// From include/uapi/linux/ptrace.h.
const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const PTRACE_LISTEN: libc::c_uint = 0x4208;
/// `PTRACE_EVENT_STOP`. The kernel puts this number above the signal in the status of a stop.
const EVENT_STOP: i32 = 128;
/// The bit that `PTRACE_O_TRACESYSGOOD` adds to the signal of a stop at a system call.
const SYSTEM_CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// The largest extended state that we read: AMX needs 11 KiB today.
const EXTENDED_STATE_LIMIT: usize = 64 << 10;

/// An instruction of classic BPF: `struct sock_filter` (include/uapi/linux/filter.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FilterInstruction {
    /// The operation of the instruction.
    pub code: u16,
    /// How many instructions to skip if a comparison is true.
    pub jump_true: u8,
    /// How many instructions to skip if the comparison is false.
    pub jump_false: u8,
    /// The constant of the instruction, `k`.
    pub constant: u32,
}

/// Why a traced thread is stopped, or that the thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread stopped because we asked, on its way out of the kernel, with no signal to deliver.
    Interrupted,
    /// The thread is stopped together with its process (job control).
    Group,
    /// The thread enters or leaves a system call.
    SystemCall,
    /// The thread has executed another program, and has not yet run any instruction of that program.
    Exec,
    /// The kernel is about to deliver a signal to the thread.
    Signal(i32),
    /// The thread has ended, or another thread has replaced the program.
    Ended,
}

/// How far a stopped thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// To the next signal or interruption.
    Freely,
    /// To the start or end of the next system call, at most.
    ToSystemCall,
}

/// A traced thread.
#[derive(Debug)]
pub struct Tracee {
    thread: Pid,
    /// Whether we are the parent of the thread's process. Then our own code must also see the exit, so
    /// tracing must not consume it.
    our_child: bool,
    detached: bool,
}

impl Tracee {
    /// Starts to trace a thread, without stopping it. `our_child` is true if the thread is the main thread of
    /// a child of our process.
    ///
    /// # Errors
    /// `EPERM` if another tracer traces the thread or the kernel forbids tracing, `ESRCH` if the thread has
    /// ended.
    pub fn seize(thread: Pid, our_child: bool) -> io::Result<Self> {
        Self::seize_with(thread, our_child, libc::PTRACE_O_TRACESYSGOOD)
    }

    /// Starts to trace a thread, without stopping it. From then on, the thread stops whenever it executes a
    /// program. For `our_child` see [`Tracee::seize`].
    ///
    /// # Errors
    /// See [`Tracee::seize`].
    pub fn seize_for_exec(thread: Pid, our_child: bool) -> io::Result<Self> {
        Self::seize_with(thread, our_child, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC)
    }

    fn seize_with(thread: Pid, our_child: bool, options: libc::c_int) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, thread, 0, usize::try_from(options).unwrap_or(0))?;
        Ok(Self { thread, our_child, detached: false })
    }

    /// TID of the traced thread.
    pub fn thread(&self) -> Pid {
        self.thread
    }

    /// Asks the thread to stop.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended.
    pub fn interrupt(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.thread, 0, 0)
    }

    /// Waits until the thread stops. Returns `None` if the thread does not stop before the deadline.
    ///
    /// # Errors
    /// The error of `waitid`.
    pub fn wait(&self, deadline: Instant) -> io::Result<Option<Stop>> {
        // No system call waits for a child with a time limit, so we must ask again and again. A thread that
        // only makes one system call stops within microseconds. If we slept between the questions, the thread
        // would stay stopped ten times longer than necessary.
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

    /// Waits until the thread stops, however long that takes. Returns `None` once `given_up` returns true.
    ///
    /// # Errors
    /// The error of `waitid`.
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
            // A thread that has ended would remain a zombie, because no other code waits for it.
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

    /// Lets the thread continue, and delivers `signal` if it is not 0.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped, or was killed.
    pub fn resume(&self, how: Resume, signal: i32) -> io::Result<()> {
        let operation = match how {
            Resume::Freely => libc::PTRACE_CONT,
            Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        };
        request(operation, self.thread, 0, usize::try_from(signal).unwrap_or(0))
    }

    /// Leaves the thread stopped together with its process, until someone continues the process.
    ///
    /// # Errors
    /// `EIO` if the process is not stopped, `ESRCH` if someone killed the thread.
    pub fn stay_stopped(&self) -> io::Result<()> {
        request(PTRACE_LISTEN, self.thread, 0, 0)
    }

    /// Ends the tracing of the thread, which must be stopped. The thread continues, and gets `signal` if it
    /// is not 0.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped, or was killed.
    pub fn detach(mut self, signal: i32) -> io::Result<()> {
        self.detached = true;
        request(libc::PTRACE_DETACH, self.thread, 0, usize::try_from(signal).unwrap_or(0))
    }

    /// Reads the thread's general registers.
    ///
    /// # Errors
    /// `ESRCH` if the thread is not stopped, or was killed.
    pub fn registers(&self) -> io::Result<Registers> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        let mut vector =
            libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: size_of::<Registers>() };
        self.register_set(libc::PTRACE_GETREGSET, NT_PRSTATUS, &mut vector)?;
        // SAFETY: the structure holds plain integers, and every value of these, even zero, is valid.
        Ok(unsafe { registers.assume_init() })
    }

    /// Changes the thread's general registers.
    ///
    /// # Errors
    /// See [`Tracee::registers`].
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut copy = *registers;
        let mut vector = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: size_of::<Registers>() };
        self.register_set(libc::PTRACE_SETREGSET, NT_PRSTATUS, &mut vector)
    }

    /// Reads the thread's floating-point and vector registers, in the layout of XSAVE.
    ///
    /// # Errors
    /// See [`Tracee::registers`]; `ENODEV` on processors without XSAVE.
    pub fn extended_state(&self) -> io::Result<Vec<u8>> {
        let mut state = vec![0; EXTENDED_STATE_LIMIT];
        let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        self.register_set(libc::PTRACE_GETREGSET, NT_X86_XSTATE, &mut vector)?;
        let length = vector.iov_len;
        state.truncate(length);
        Ok(state)
    }

    /// Sets the thread's floating-point and vector registers to a state that [`Tracee::extended_state`]
    /// returned.
    ///
    /// # Errors
    /// See [`Tracee::extended_state`].
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

    /// Reads one of the thread's seccomp filters. The thread's newest filter has index 0. This needs
    /// `CAP_SYS_ADMIN` in the initial user namespace, and no filter may apply to us.
    ///
    /// # Errors
    /// `ENOENT` if the thread has fewer filters, `EACCES` without the capability, `EINVAL` if the thread has
    /// no filters at all, `EIO` if the kernel cannot return filters (`CONFIG_CHECKPOINT_RESTORE`).
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
            // The call fails if the thread runs. Then the kernel detaches the thread when our own thread
            // ends.
            let _ = request(libc::PTRACE_DETACH, self.thread, 0, 0);
        }
    }
}

/// Checks whether we may call ptrace(2). The check uses a thread id that no kernel gives out.
///
/// # Errors
/// The error that a seccomp filter returns to us.
pub fn is_callable() -> io::Result<()> {
    // This number is above every PID that a kernel gives out (PID_MAX_LIMIT, 2^22).
    let Some(no_thread) = Pid::new(i32::MAX) else { return Ok(()) };
    match request(libc::PTRACE_SEIZE, no_thread, 0, 0) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

fn request(operation: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<()> {
    count(operation, thread, address, data).map(|_| ())
}

/// Like [`request`], for operations that return a number.
fn count(operation: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<usize> {
    // SAFETY: no operation that we use reads or writes more of our memory than `data` points to. `data`
    // points to a live value, and `address`, the value itself, or an earlier answer of the kernel gives its
    // size.
    let result = unsafe { libc::ptrace(operation, thread.get(), address, data) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The code and the status of a change of the thread; `None` if nothing has changed. If the thread no longer
/// exists, we report that it has ended.
fn wait_id(thread: Pid, options: libc::c_int) -> io::Result<Option<(i32, i32)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `info` is a `siginfo_t` that the call fills.
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
    // SAFETY: the memory was zeroed, and the call may have filled it. It holds only plain integers.
    let info = unsafe { info.assume_init() };
    // SAFETY: `waitid` filled in the fields for a child's change, or left zeros there.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some((info.si_code, status)))
}
