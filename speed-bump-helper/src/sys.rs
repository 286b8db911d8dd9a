//! The few system calls that the helper makes, without a C library.

use core::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::atomic::AtomicU32,
};

use crate::arch::{SIGNAL_RETURN, STAT_SIZE_OFFSET, number, syscall};

// include/uapi/asm-generic/mman-common.h and include/uapi/linux/mman.h
const PROT_NONE: usize = 0;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;
const MAP_SHARED: usize = 0x01;
const MAP_PRIVATE: usize = 0x02;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MREMAP_MAYMOVE: usize = 1;
const MADV_DONTFORK: usize = 10;
const MADV_WIPEONFORK: usize = 18;
// include/uapi/linux/futex.h
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
// include/uapi/asm-generic/signal-defs.h
const SIG_SETMASK: usize = 2;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
/// Bytes of the kernel's `sigset_t`.
const SIGNAL_SET_BYTES: usize = 8;
// include/uapi/linux/prctl.h
const PR_SET_NAME: usize = 15;
/// The number for no file descriptor.
const NO_FILE: usize = usize::MAX;

/// The unit that lengths are rounded to. At least the page size on every system that the helper runs on
/// (aarch64 has pages of up to 64 KiB); too large does no harm.
pub(crate) const PAGE: usize = 65536;

/// A negated errno of the last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The time is over.
    TimedOut,
    /// Woken, the word has changed, or without a reason.
    Woken,
}

/// # Safety
/// As unsafe as the call itself.
unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: as the caller promises.
    let result = unsafe { syscall(number, arguments) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

fn mapped(result: Result<usize, Errno>) -> Result<NonNull<u8>, Errno> {
    /// ENOMEM: the helper cannot use address 0.
    const NO_MEMORY: Errno = Errno(12);
    NonNull::new(result? as *mut u8).ok_or(NO_MEMORY)
}

/// Reserves addresses without memory behind them.
pub(crate) fn reserve(length: usize) -> Result<NonNull<u8>, Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    mapped(unsafe { call(number::MMAP, [0, length, PROT_NONE, flags, NO_FILE, 0]) })
}

/// Allocates zeroed memory.
pub(crate) fn allocate(length: usize) -> Result<NonNull<u8>, Errno> {
    let arguments = [0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, NO_FILE, 0];
    // SAFETY: a new mapping at an address that the kernel chooses.
    mapped(unsafe { call(number::MMAP, arguments) })
}

/// Makes allocated memory longer, and moves it if necessary; the new part is zero. No page is copied or
/// exists twice.
///
/// # Safety
/// It was allocated with this length, and if this succeeds, nothing refers to the old address any more.
pub(crate) unsafe fn grow(start: NonNull<u8>, length: usize, longer: usize) -> Result<NonNull<u8>, Errno> {
    let arguments = [start.as_ptr() as usize, length, longer, MREMAP_MAYMOVE, 0, 0];
    // SAFETY: as the caller promises.
    mapped(unsafe { call(number::MREMAP, arguments) })
}

/// Frees memory or addresses.
///
/// # Safety
/// Nothing refers to them any more.
pub(crate) unsafe fn free(start: NonNull<u8>, length: usize) {
    // SAFETY: as the caller promises. It cannot fail for a whole mapping.
    let _ = unsafe { call(number::MUNMAP, [start.as_ptr() as usize, length, 0, 0, 0, 0]) };
}

/// Maps a file over reserved addresses.
///
/// # Safety
/// The addresses are reserved, and their readers accept any content.
pub(crate) unsafe fn map_file_over(start: NonNull<u8>, length: usize, fd: i32) -> Result<(), Errno> {
    let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED);
    let arguments = [start.as_ptr() as usize, length, protection, flags, fd as usize, 0];
    // SAFETY: as the caller promises.
    unsafe { call(number::MMAP, arguments) }.map(drop)
}

/// Maps zeroed memory over reserved addresses.
///
/// # Safety
/// As for [`map_file_over`].
pub(crate) unsafe fn map_zeroes_over(start: NonNull<u8>, length: usize) -> Result<(), Errno> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    let arguments = [start.as_ptr() as usize, length, PROT_READ | PROT_WRITE, flags, NO_FILE, 0];
    // SAFETY: as the caller promises.
    unsafe { call(number::MMAP, arguments) }.map(drop)
}

/// Maps the beginning of a shared mapping a second time.
pub(crate) fn alias(start: NonNull<u8>, length: usize) -> Result<NonNull<u8>, Errno> {
    let arguments = [start.as_ptr() as usize, 0, length, MREMAP_MAYMOVE, 0, 0];
    // SAFETY: an old length of 0 leaves the old mapping as it is (mremap(2)); the kernel chooses the address
    // of the new one.
    mapped(unsafe { call(number::MREMAP, arguments) })
}

/// Makes the kernel zero the memory in forked children (Linux 4.14).
pub(crate) fn wipe_on_fork(start: NonNull<u8>, length: usize) -> Result<(), Errno> {
    let arguments = [start.as_ptr() as usize, length, MADV_WIPEONFORK, 0, 0, 0];
    // SAFETY: changes nothing in this process.
    unsafe { call(number::MADVISE, arguments) }.map(drop)
}

/// Removes the memory from forked children.
pub(crate) fn not_in_children(start: NonNull<u8>, length: usize) -> Result<(), Errno> {
    let arguments = [start.as_ptr() as usize, length, MADV_DONTFORK, 0, 0, 0];
    // SAFETY: changes nothing in this process.
    unsafe { call(number::MADVISE, arguments) }.map(drop)
}

/// Closes a descriptor.
pub(crate) fn close(fd: i32) {
    // SAFETY: touches no memory; a wrong descriptor is an error that does not matter.
    let _ = unsafe { call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// The size of a file, in bytes.
pub(crate) fn file_size(fd: i32) -> Result<u64, Errno> {
    let mut status = [0_u64; 32];
    let address = ptr::from_mut(&mut status) as usize;
    // SAFETY: the buffer is larger than `struct stat` on every system.
    unsafe { call(number::FSTAT, [fd as usize, address, 0, 0, 0, 0]) }?;
    Ok(status[STAT_SIZE_OFFSET / 8])
}

/// Waits until the word no longer has the value, for at most this long. The word may be shared with other
/// processes.
pub(crate) fn wait(word: &AtomicU32, value: u32, milliseconds: u32) -> Wait {
    wait_for(word, value, [i64::from(milliseconds / 1000), i64::from(milliseconds % 1000) * 1_000_000])
}

/// Sleeps for less than a second; less than asked for if a signal comes.
pub(crate) fn sleep(ns: u32) {
    // A wait on a word that never changes: programs that restrict their system calls allow futex(2).
    let unused = AtomicU32::new(0);
    wait_for(&unused, 0, [0, i64::from(ns)]);
}

/// The timeout is in seconds and ns.
fn wait_for(word: &AtomicU32, value: u32, timeout: [i64; 2]) -> Wait {
    /// ETIMEDOUT.
    const TIMED_OUT: Errno = Errno(110);
    let (word, timeout) = (word.as_ptr() as usize, ptr::from_ref(&timeout) as usize);
    // SAFETY: both outlive the call; `timeout` has the layout of the kernel's 64-bit timespec.
    match unsafe { call(number::FUTEX, [word, FUTEX_WAIT, value as usize, timeout, 0, 0]) } {
        Err(TIMED_OUT) => Wait::TimedOut,
        _ => Wait::Woken,
    }
}

/// Wakes all threads that wait for a change of the word.
pub(crate) fn wake(word: &AtomicU32) {
    let everybody = i32::MAX as usize;
    // SAFETY: the word outlives the call.
    let _ = unsafe { call(number::FUTEX, [word.as_ptr() as usize, FUTEX_WAKE, everybody, 0, 0, 0]) };
}

/// The signal mask of the calling thread, replaced until this is dropped.
pub(crate) struct SignalMask {
    before: u64,
}

impl SignalMask {
    /// Blocks all signals but these (bit N is signal N + 1).
    pub(crate) fn block_all_but(spared: u64) -> Result<Self, Errno> {
        let (mask, mut before) = (!spared, 0_u64);
        let (new, old) = (ptr::from_ref(&mask) as usize, ptr::from_mut(&mut before) as usize);
        // SAFETY: both have the size that the call gets.
        unsafe { call(number::RT_SIGPROCMASK, [SIG_SETMASK, new, old, SIGNAL_SET_BYTES, 0, 0]) }?;
        Ok(Self { before })
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        let mask = ptr::from_ref(&self.before) as usize;
        // SAFETY: the mask has the size that the call gets.
        let _ = unsafe { call(number::RT_SIGPROCMASK, [SIG_SETMASK, mask, 0, SIGNAL_SET_BYTES, 0, 0]) };
    }
}

/// Names the calling thread, for `ps` and `top`.
pub(crate) fn name_thread(name: &CStr) {
    let name: *const c_void = name.as_ptr().cast();
    // SAFETY: the kernel copies up to 16 bytes, or up to the NUL.
    let _ = unsafe { call(number::PRCTL, [PR_SET_NAME, name as usize, 0, 0, 0, 0]) };
}

/// A clock of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuClock {
    /// Time since boot.
    Monotonic,
    /// Processor time of all threads of the process.
    Process,
    /// Processor time of the calling thread.
    Thread,
    /// Processor time of the process's first thread.
    FirstThread,
}

/// Reads a clock, in ns. `None`: it cannot be read.
pub(crate) fn clock_ns(clock: CpuClock) -> Option<u64> {
    let number = match clock {
        CpuClock::Monotonic => 1,
        CpuClock::Process => 2,
        CpuClock::Thread => 3,
        CpuClock::FirstThread => {
            // SAFETY: takes nothing and changes nothing.
            let process = unsafe { call(number::GETPID, [0; 6]) }.ok()?;
            // CPUCLOCK_SCHED of one thread (include/linux/posix-timers.h).
            (!process << 3) | 6
        }
    };
    let mut time = [0_i64; 2];
    // SAFETY: `time` has the layout of the kernel's 64-bit timespec, and outlives the call.
    unsafe { call(number::CLOCK_GETTIME, [number, ptr::from_mut(&mut time) as usize, 0, 0, 0, 0]) }.ok()?;
    let [seconds, ns] = time.map(i64::cast_unsigned);
    Some(seconds.wrapping_mul(1_000_000_000).wrapping_add(ns))
}

/// The calling thread's id.
pub(crate) fn thread_number() -> u64 {
    // SAFETY: takes nothing and changes nothing.
    unsafe { syscall(number::GETTID, [0; 6]) as u64 }
}

/// A handler of signals, as the kernel calls it with `SA_SIGINFO`.
pub(crate) type SignalHandler = extern "C" fn(i32, *mut c_void, *mut c_void);

/// `struct sigaction` of the kernel, on x86-64 and aarch64.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct SignalAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl SignalAction {
    /// Runs the handler on the alternative stack if there is one, and restarts interrupted system calls. The
    /// signal itself is blocked meanwhile, other signals are not.
    pub(crate) fn for_handler(handler: SignalHandler) -> Self {
        let restorer = SIGNAL_RETURN.map_or(0, |function| function as usize);
        let flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | if restorer == 0 { 0 } else { SA_RESTORER };
        Self { handler: handler as usize, flags, restorer, mask: 0 }
    }

    /// Whether the signal has its default action: `SIG_DFL`.
    pub(crate) fn is_default(&self) -> bool {
        self.handler == 0
    }

    /// Whether the handler is this one.
    pub(crate) fn is(&self, handler: SignalHandler) -> bool {
        self.handler == handler as usize
    }
}

/// Whether the kernel itself sent a signal, as for BPF programs, and not a process or a file.
///
/// # Safety
/// The second argument of a signal handler.
pub(crate) unsafe fn is_from_kernel(information: *const c_void) -> bool {
    // include/uapi/asm-generic/siginfo.h
    const SI_USER: i32 = 0;
    const SI_KERNEL: i32 = 0x80;
    // SAFETY: a `siginfo_t`, on 64-bit systems; `si_pid` exists for all signals that have `SI_USER`.
    let [_signal, _error, code, _, pid] = unsafe { *information.cast::<[i32; 5]>() };
    // The second form is what remains of a real-time signal if the user's queue is full (`collect_signal` in
    // kernel/signal.c).
    code == SI_KERNEL || (code == SI_USER && pid == 0)
}

/// The process's action for a signal.
pub(crate) fn signal_action(signal: u32) -> Result<SignalAction, Errno> {
    let mut action = SignalAction::default();
    let place = ptr::from_mut(&mut action) as usize;
    // SAFETY: the buffer has the size of a `struct sigaction`, with a set of the size that the call gets.
    unsafe { call(number::RT_SIGACTION, [signal as usize, 0, place, SIGNAL_SET_BYTES, 0, 0]) }?;
    Ok(action)
}

/// Sets the process's action for a signal, and returns the former one.
pub(crate) fn set_signal_action(signal: u32, action: &SignalAction) -> Result<SignalAction, Errno> {
    let mut before = SignalAction::default();
    let (new, old) = (ptr::from_ref(action) as usize, ptr::from_mut(&mut before) as usize);
    // SAFETY: as above; the handlers that we set are async-signal-safe and never go away.
    unsafe { call(number::RT_SIGACTION, [signal as usize, new, old, SIGNAL_SET_BYTES, 0, 0]) }?;
    Ok(before)
}
