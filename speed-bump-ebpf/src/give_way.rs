//! Letting others have the processor while a program spins.
//!
//! A kernel that is not fully preemptible runs nothing else on the processor of a spinning program, where a
//! slower function would have given way at once. So the program checks whether another task waits, and calls
//! a kernel function that lets others run on its way: reading the task's own memory, page by page
//! (`__get_user_pages`, mm/gup.c, calls `cond_resched`). Only sleepable programs may do that; the loader says
//! whether this one is. What passes meanwhile is a gap in the spin, as it would be in a function.

use core::ffi::c_void;

use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel,
    generated::{bpf_copy_from_user_task, bpf_task_pt_regs},
};

use crate::arch;

/// Whether the programs are loaded as ones that may sleep.
#[unsafe(no_mangle)]
static MAY_SLEEP: u32 = 0;

/// Whether this program may sleep.
#[inline(always)]
pub fn may_sleep() -> bool {
    // SAFETY: a constant of this object; the loader may have replaced its value.
    unsafe { core::ptr::read_volatile(&raw const MAY_SLEEP) != 0 }
}

/// With less than this left of a spin, in ns, the program does not let others run: coming back may take a
/// little longer than that.
const NOT_WITHIN_NS: u64 = 5_000;
/// The program checks once in this many turns.
const TURNS: u64 = 16;

/// What the kernel asks of a task on its way back to user mode (`thread_info.flags`, which both architectures
/// have at the very beginning of `task_struct`). Which bit stands for what differs between kernels.
#[derive(Clone, Copy)]
pub struct Asked(u64);

impl Asked {
    pub const NOTHING: Self = Self(0);

    /// Lets others run, if the kernel asks anything that it did not ask before.
    #[inline(always)]
    pub fn give_way(&mut self, turn: u64, left_ns: u64) {
        if !may_sleep() || turn % TURNS != 0 || left_ns < NOT_WITHIN_NS {
            return;
        }
        if asked() & !self.0 != 0 {
            let_run();
            self.0 = asked();
        }
    }
}

#[inline(always)]
fn asked() -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(bpf_get_current_task() as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn let_run() {
    let mut byte = 0_u8;
    // SAFETY: the task is the current one; the helpers check addresses, and `byte` takes one byte.
    unsafe {
        let task = bpf_get_current_task_btf();
        let registers = bpf_task_pt_regs(task) as u64;
        // Any address that the task has mapped will do.
        if let Ok(stack) = bpf_probe_read_kernel((registers + arch::STACK_POINTER_OFFSET) as *const u64) {
            bpf_copy_from_user_task((&raw mut byte).cast(), 1, stack as *const c_void, task, 0);
        }
    }
}
