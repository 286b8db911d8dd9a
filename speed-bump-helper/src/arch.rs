//! Code for each processor architecture: system calls, the stubs, and the memory functions that the compiler
//! calls.

#[cfg(target_arch = "aarch64")]
#[path = "arch/aarch64.rs"]
mod current;
#[cfg(target_arch = "x86_64")]
#[path = "arch/x86_64.rs"]
mod current;

#[cfg(feature = "image")]
pub(crate) use current::trap;
pub(crate) use current::{
    SIGNAL_RETURN, STAT_SIZE_OFFSET, number, stack_pointer, stub_nop, stub_nop5, syscall, thread_pointer,
    ticks,
};
