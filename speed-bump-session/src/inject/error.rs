//! The reasons why we did not inject the helper.

use std::{io, path::PathBuf};

use super::{stage::Stage, threads::Tried};
use crate::{
    elf::ElfError,
    process::{MappedFileError, MemoryError, ProcessError, access::DenialReason},
    sys::memory_file::Unlike,
    units::{Bytes, Nanos, Pid},
};

/// Why we did not inject the helper. Unless the message says otherwise, the process is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// We could not inspect the process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Injecting is not implemented for this architecture.
    #[error("injection is not written for {0} yet: use an entry source that needs none (--no-inject)")]
    Machine(&'static str),
    /// A debugger already traces the process.
    #[error(
        "process {pid} is being traced by process {tracer} ({name}): a process has one tracer at a time; end \
         that one, or use --no-inject"
    )]
    Traced {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// PID of the tracer.
        tracer: Pid,
        /// Name of the tracer, from its `comm`.
        name: String,
    },
    /// The kernel forbids tracing.
    #[error("the kernel forbids tracing process {pid}: {reason}")]
    Denied {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The kernel's rule that forbids the access.
        reason: DenialReason,
    },
    /// Job control has stopped the process.
    #[error(
        "process {pid} is stopped (by SIGSTOP or its terminal), so no thread of it can run the helper: \
         continue it with `kill -CONT {pid}` first"
    )]
    Stopped {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// A control group keeps the process from running.
    #[error("process {pid} is frozen by its control group: thaw it first (cgroup.freeze, `docker unpause`)")]
    Frozen {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// Strict seccomp only allows read, write and exit.
    #[error(
        "process {pid} runs under strict seccomp: the kernel would kill it for any system call that \
         injecting needs; use --no-inject"
    )]
    SeccompStrict {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// A seccomp filter does not allow what we need.
    #[error(
        "the seccomp filter of process {pid} answers {call} with {action}, and injecting needs it: allow it \
         in the filter (container profile, SystemCallFilter=), or use --no-inject"
    )]
    SeccompForbids {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// Name of the system call, as in its manual page.
        call: &'static str,
        /// The filter's action for the call.
        action: String,
    },
    /// We cannot read the seccomp filter, and it may kill the process.
    #[error(
        "process {pid} runs under a seccomp filter that cannot be read ({source}), and a filter may kill the \
         process for a system call that injecting needs: run this as root in the machine's own namespaces \
         (CAP_SYS_ADMIN, no seccomp on ourselves), or use --no-inject"
    )]
    SeccompUnreadable {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The system's error.
        r#source: io::Error,
    },
    /// The kernel refuses a system call that we make ourselves.
    #[error(
        "process {pid}: {call} is refused to this tool ({error}), and injecting needs it: allow it in the \
         seccomp filter that the tool runs under (container profile), or use --no-inject"
    )]
    CallRefused {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// Name of the system call, as in its manual page.
        call: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The process has no proc file system, so the path to the helper's memory file would lead nowhere.
    #[error(
        "process {pid} sees no proc file system at /proc, through which its dynamic loader would find the \
         helper: mount one there, or use --no-inject"
    )]
    NoProc {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// The process has no `dlopen`.
    #[error(
        "process {pid} has no dynamic loader ({looked}): it is statically linked, and nothing can be loaded \
         into it; use --no-inject, or an interpreter that is linked dynamically"
    )]
    NoDynamicLoader {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The files that we searched.
        looked: String,
    },
    /// The process has no code from which we can build a remote call.
    #[error(
        "process {pid} maps no code that ends a remote call safely (looked in {looked}); please report this \
         C library, and use --no-inject"
    )]
    NoGadgets {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The files that we searched.
        looked: String,
    },
    /// With a shadow stack, a function must return to the address that called it.
    #[error("process {pid} runs with a shadow stack, which remote calls would violate: use --no-inject")]
    ShadowStack {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// No thread came to a safe point in time.
    #[error(
        "no thread of process {pid} came to a point where it can be borrowed safely within {limit} \
         ({tried}); nothing was changed; {}",
        .tried.advice()
    )]
    NoSafePoint {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The time limit.
        limit: Nanos,
        /// Why we borrowed no thread.
        tried: Tried,
    },
    /// The sysctl `vm.memfd_noexec` forbids executable memory files.
    #[error(
        "process {pid} may not have executable memory files (vm.memfd_noexec=2 in its PID namespace), which \
         is how the helper gets into it: set the sysctl to 1 or 0, or use --no-inject"
    )]
    NoExecutableMemfd {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// A control group is near its limit of memory.
    #[error(
        "loading the helper into process {pid} takes up to {needed} of memory, and its control group {} has \
         {left} left of its limit of {limit}: at the limit the kernel kills processes; raise the limit, or \
         use --no-inject",
        .folder.display()
    )]
    NoMemory {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The folder of the control group.
        folder: PathBuf,
        /// The memory that the control group has left.
        left: Bytes,
        /// The limit of the control group.
        limit: Bytes,
        /// The most that loading takes.
        needed: Bytes,
    },
    /// The process is near its limit of address space.
    #[error(
        "process {pid} has {left} of address space left of its limit of {limit} (ulimit -v, RLIMIT_AS), and \
         loading the helper takes {needed} with what is left to the program: raise the limit, as with \
         `prlimit --pid {pid} --as=BYTES`, or use --no-inject"
    )]
    NoAddresses {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The address space that the process has left.
        left: Bytes,
        /// Its limit.
        limit: Bytes,
        /// The address space that must be left.
        needed: Bytes,
    },
    /// The descriptor of our memory file now belongs to another file.
    #[error(
        "descriptor {descriptor} of process {pid}, where a thread of it had just made a memory file for us, \
         is {found}: another thread changed that; nothing was written. Try again if the program is known to \
         close or duplicate descriptors by number; otherwise do not trust it, or use --no-inject"
    )]
    NotOurs {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The number of the descriptor in the process.
        descriptor: u64,
        /// What the descriptor is instead.
        found: Unlike,
    },
    /// The process wrote into the helper's image.
    #[error(
        "process {pid} changed the helper's image while it was written: nothing was loaded; do not trust the \
         program, or use --no-inject"
    )]
    Changed {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// The thread does not share the process's descriptors.
    #[error(
        "thread {thread} of process {pid} has descriptors of its own, or the main thread has ended, and \
         Linux before 6.9 gives no safe way to them: use --no-inject"
    )]
    OwnDescriptors {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// TID of the borrowed thread.
        thread: Pid,
    },
    /// A system call failed in the process.
    #[error("in process {pid}, {call} failed: {source}; nothing was left behind")]
    RemoteCall {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// Name of the system call, as in its manual page.
        call: &'static str,
        /// The system's error.
        r#source: io::Error,
    },
    /// `dlopen` refused the helper's image.
    #[error(
        "the dynamic loader of process {pid} refused the helper (dlopen returned NULL): a security module \
         may forbid executable memory files, or memory or its limit of address space may be short; the \
         process goes on as before"
    )]
    Refused {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// We loaded the helper, and it refused to start.
    #[error("the helper in process {pid} refused to start: {failure}")]
    Helper {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// `speed_bump_abi::control_block::Failure`, by number.
        code: u32,
        /// The failure as text.
        failure: String,
    },
    /// The borrowed thread did not return in time.
    #[error(
        "thread {thread} of process {pid} did not come back from {stage} within {limit} ({state}); it was \
         put back where it was and goes on. {left}"
    )]
    Overdue {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// TID of the borrowed thread.
        thread: Pid,
        /// What the thread did for us.
        stage: Stage,
        /// The time limit.
        limit: Nanos,
        /// The thread's state.
        state: &'static str,
        /// What could not be undone.
        left: &'static str,
    },
    /// The borrowed thread is still working for us. The thread will finish by itself.
    #[error(
        "thread {thread} of process {pid} is still at work in {stage}, much longer than {limit}; it was let \
         go and returns to its own work when it is done, with EINTR from the system call it was in, if any; \
         a helper that it loads lies dormant"
    )]
    LeftAlone {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// TID of the borrowed thread.
        thread: Pid,
        /// What the thread does for us.
        stage: Stage,
        /// The time limit.
        limit: Nanos,
    },
    /// The borrowed thread crashed.
    #[error(
        "thread {thread} of process {pid} got signal {signal} in {stage}; it was put back where it was and \
         goes on; please report this"
    )]
    Crashed {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// TID of the borrowed thread.
        thread: Pid,
        /// What the thread did for us.
        stage: Stage,
        /// The number of the signal, as in signal(7).
        signal: i32,
    },
    /// The process ended, or executed another program.
    #[error("process {pid} ended, replaced its program (exec) or lost thread {thread} in {stage}")]
    Ended {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// TID of the borrowed thread.
        thread: Pid,
        /// What the thread did for us.
        stage: Stage,
    },
    /// Another session uses the helper in the process.
    #[error(
        "another session delays Python functions in process {pid} already (its helper is {state}). End that \
         one, or change it: `speed-bump-ebpf sessions` lists it, and `set` changes it"
    )]
    InUse {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The state of the other session's helper.
        state: &'static str,
    },
    /// An earlier session's helper has not left the process yet.
    #[error(
        "the helper of an earlier session has still to leave process {pid}, for which it needs the \
         interpreter's lock: a thread keeps that while it sleeps or computes. It leaves when the process \
         next executes Python code: send it work, and try again"
    )]
    Leaving {
        /// PID of the process that was to load the helper.
        pid: Pid,
    },
    /// We cannot use the helper's image in this tool.
    #[error("the helper's image is not usable: {0}; this build of speed-bump-ebpf is broken")]
    Image(String),
    /// We could not open a file of the process.
    #[error(transparent)]
    MappedFile(#[from] MappedFileError),
    /// We could not read a file of the process.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The process's memory could not be read.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// We could not write the control block.
    #[error("cannot fill in the control block of process {pid}: {source}")]
    Control {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// The system's error.
        r#source: io::Error,
    },
    /// A ptrace request for the thread failed.
    #[error("process {pid}: {what}: {source}")]
    System {
        /// PID of the process that was to load the helper.
        pid: Pid,
        /// What failed.
        what: &'static str,
        /// The system's error.
        r#source: io::Error,
    },
}
