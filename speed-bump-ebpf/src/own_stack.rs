//! Keeping the variables of a call on the stack of the task that makes it.
//!
//! Since 6.13 the kernel may give a program of this type a stack of its own, one for each processor, where
//! its frame takes 64 bytes or more (kernel/bpf/verifier.c, `bpf_enable_priv_stack`): it takes such programs
//! for ones that never run twice at once on a processor. That holds for kprobes. But a program at a uprobe
//! can be preempted, the sooner the longer it spins, by a task that then runs the same program: each goes on
//! with the other's variables, pointers included. (Seen on 7.2: calls of one function were counted as delays
//! of another.) The kernel leaves a program alone that has a tail call, wherever it is: it looks for the
//! instruction, before it drops what can never be reached. So we need no map of programs to jump to. Programs
//! that may sleep could not have one.

use core::ptr;

use aya_ebpf::{EbpfContext as _, helpers::generated::bpf_tail_call, programs::ProbeContext};

/// Always 0, which the verifier knows and the compiler does not.
#[unsafe(no_mangle)]
static NEVER: u32 = 0;

/// Has the kernel run the calling program on the task's stack. Does nothing when it runs, and costs no
/// instruction.
#[inline(always)]
pub fn insist(context: &ProbeContext) {
    // SAFETY: a constant of this object.
    if unsafe { ptr::read_volatile(&raw const NEVER) } != 0 {
        // SAFETY: never reached.
        unsafe { bpf_tail_call(context.as_ptr(), ptr::null_mut(), 0) };
    }
}
