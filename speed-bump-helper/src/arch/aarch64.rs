//! aarch64. Every instruction has four bytes, so both forms of the stub have the same nop.

use core::{
    arch::{asm, global_asm},
    ffi::c_char,
};

/// Numbers of system calls (include/uapi/asm-generic/unistd.h).
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 57;
    pub(crate) const FSTAT: usize = 80;
    pub(crate) const FUTEX: usize = 98;
    pub(crate) const CLOCK_GETTIME: usize = 113;
    pub(crate) const RT_SIGACTION: usize = 134;
    pub(crate) const RT_SIGPROCMASK: usize = 135;
    pub(crate) const PRCTL: usize = 167;
    pub(crate) const GETPID: usize = 172;
    pub(crate) const GETTID: usize = 178;
    pub(crate) const MUNMAP: usize = 215;
    pub(crate) const MREMAP: usize = 216;
    pub(crate) const MMAP: usize = 222;
    pub(crate) const MADVISE: usize = 233;
}

/// Where `st_size` lies in `struct stat` (include/uapi/asm-generic/stat.h).
pub(crate) const STAT_SIZE_OFFSET: usize = 48;

/// A raw system call; a result in `-4095..=-1` is a negated errno.
///
/// # Safety
/// As unsafe as the call itself.
pub(crate) unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers of the kernel's calling convention.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}

/// Where a signal handler returns to: the kernel provides a place for that in the vDSO.
pub(crate) const SIGNAL_RETURN: Option<unsafe extern "C" fn()> = None;

/// The thread pointer, different for each thread of the process.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The calling thread's stack pointer.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The virtual counter, which Linux lets processes read.
#[inline]
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

// Places for probes, with the notes that <sys/sdt.h> would write.
global_asm!(
    ".pushsection .text.speed_bump_stubs, \"ax\", @progbits",
    ".balign 32",
    ".globl speed_bump_python_entry_nop",
    ".hidden speed_bump_python_entry_nop",
    ".type speed_bump_python_entry_nop, @function",
    "speed_bump_python_entry_nop: nop",
    "ret",
    ".size speed_bump_python_entry_nop, .-speed_bump_python_entry_nop",
    ".balign 32",
    ".popsection",
    ".pushsection .note.stapsdt, \"\", @note",
    ".balign 4",
    ".4byte 992f-991f, 994f-993f, 3",
    "991: .asciz \"stapsdt\"",
    "992: .balign 4",
    "993: .8byte speed_bump_python_entry_nop",
    ".8byte _.stapsdt.base",
    ".8byte 0",
    ".asciz \"speed_bump\"",
    ".asciz \"python_entry\"",
    ".asciz \"4@x0 4@x1 8@x2 8@x3 4@x4 4@x5\"",
    "994: .balign 4",
    ".popsection",
    ".pushsection .stapsdt.base, \"aGR\", @progbits, .stapsdt.base, comdat",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base: .space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
);

unsafe extern "C" {
    /// A nop and a return.
    #[link_name = "speed_bump_python_entry_nop"]
    pub(crate) safe fn stub_nop(
        function: u32,
        target: u64,
        qualname: *const c_char,
        file: *const c_char,
        line: u32,
        ticks: u32,
    );
}

pub(crate) use stub_nop as stub_nop5;

// The compiler calls these functions. Hidden: if exported, they would replace the process's own.
#[cfg(feature = "image")]
global_asm!(
    ".macro speed_bump_memory name",
    ".globl \\name",
    ".hidden \\name",
    ".type \\name, @function",
    ".balign 16",
    "\\name:",
    ".endm",
    ".pushsection .text.speed_bump_memory, \"ax\", @progbits",
    "speed_bump_memory memmove",
    // Copies forwards unless the destination begins inside the source.
    "sub x4, x0, x1",
    "cmp x4, x2",
    "b.hs memcpy",
    "2: cbz x2, 3f",
    "sub x2, x2, #1",
    "ldrb w5, [x1, x2]",
    "strb w5, [x0, x2]",
    "b 2b",
    "3: ret",
    "speed_bump_memory memcpy",
    "mov x3, #0",
    "2: cmp x3, x2",
    "b.eq 3f",
    "ldrb w5, [x1, x3]",
    "strb w5, [x0, x3]",
    "add x3, x3, #1",
    "b 2b",
    "3: ret",
    "speed_bump_memory memset",
    "mov x3, #0",
    "2: cmp x3, x2",
    "b.eq 3f",
    "strb w1, [x0, x3]",
    "add x3, x3, #1",
    "b 2b",
    "3: ret",
    "speed_bump_memory bcmp",
    "b memcmp",
    "speed_bump_memory memcmp",
    "mov x3, #0",
    "2: cmp x3, x2",
    "b.eq 3f",
    "ldrb w4, [x0, x3]",
    "ldrb w5, [x1, x3]",
    "add x3, x3, #1",
    "subs w4, w4, w5",
    "b.eq 2b",
    "mov w0, w4",
    "ret",
    "3: mov w0, #0",
    "ret",
    "speed_bump_memory strlen",
    "mov x3, #0",
    "2: ldrb w4, [x0, x3]",
    "cbz w4, 3f",
    "add x3, x3, #1",
    "b 2b",
    "3: mov x0, x3",
    "ret",
    ".popsection",
);

/// Ends the process with SIGTRAP.
#[cfg(feature = "image")]
pub(crate) fn trap() -> ! {
    // SAFETY: does not return.
    unsafe { asm!("brk #1", options(noreturn, nomem, nostack)) }
}
