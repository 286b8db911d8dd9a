//! x86-64.

use core::{
    arch::{asm, global_asm},
    ffi::c_char,
};

/// Numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl).
pub(crate) mod number {
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const FSTAT: usize = 5;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const MUNMAP: usize = 11;
    pub(crate) const RT_SIGACTION: usize = 13;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const MREMAP: usize = 25;
    pub(crate) const MADVISE: usize = 28;
    pub(crate) const GETPID: usize = 39;
    pub(crate) const PRCTL: usize = 157;
    pub(crate) const GETTID: usize = 186;
    pub(crate) const FUTEX: usize = 202;
    pub(crate) const CLOCK_GETTIME: usize = 228;
}

/// Where `st_size` lies in `struct stat` (arch/x86/include/uapi/asm/stat.h).
pub(crate) const STAT_SIZE_OFFSET: usize = 48;

/// A raw system call; a result in `-4095..=-1` is a negated errno.
///
/// # Safety
/// As unsafe as the call itself.
pub(crate) unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the registers of the kernel's calling convention; besides the result, rcx and r11 change.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The calling thread's stack pointer.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let pointer;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The thread pointer, different for each thread of the process. It points to a word that holds its own
/// address (ELF Handling For Thread-Local Storage, variant II).
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: reads a word that every thread of a C library has there.
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// The time stamp counter. The loader measures its rate. It may jump when the thread moves to another
/// processor.
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a counter. No process that runs Python forbids that (`PR_SET_TSC`), since the C library's
    // clock reads it too.
    unsafe { core::arch::x86_64::_rdtsc() }
}

// Places for probes, each a function of its own: since Linux 6.18 a probe on a five-byte nop becomes a call,
// which pushes below the stack pointer and would overwrite a caller's red zone. Each starts on a 32-byte
// boundary, so that no instruction crosses a cache line. The notes are those that <sys/sdt.h> would write.
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
    ".globl speed_bump_python_entry_nop5",
    ".hidden speed_bump_python_entry_nop5",
    ".type speed_bump_python_entry_nop5, @function",
    "speed_bump_python_entry_nop5: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "ret",
    ".size speed_bump_python_entry_nop5, .-speed_bump_python_entry_nop5",
    ".balign 32",
    ".popsection",
    ".macro speed_bump_note place",
    ".pushsection .note.stapsdt, \"\", @note",
    ".balign 4",
    ".4byte 992f-991f, 994f-993f, 3",
    "991: .asciz \"stapsdt\"",
    "992: .balign 4",
    "993: .8byte \\place",
    ".8byte _.stapsdt.base",
    ".8byte 0",
    ".asciz \"speed_bump\"",
    ".asciz \"python_entry\"",
    ".asciz \"4@%edi 4@%esi 8@%rdx 8@%rcx 4@%r8d 4@%r9d\"",
    "994: .balign 4",
    ".popsection",
    ".endm",
    "speed_bump_note speed_bump_python_entry_nop",
    "speed_bump_note speed_bump_python_entry_nop5",
    ".pushsection .stapsdt.base, \"aGR\", @progbits, .stapsdt.base, comdat",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base: .space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
);

// The kernel makes a signal handler return here, and finds its frame by the stack pointer.
global_asm!(
    ".pushsection .text.speed_bump_signal_return, \"ax\", @progbits",
    ".globl speed_bump_signal_return",
    ".hidden speed_bump_signal_return",
    ".type speed_bump_signal_return, @function",
    // Unwinders look up the byte before the return address.
    "nop",
    "speed_bump_signal_return: mov eax, 15",
    "syscall",
    ".size speed_bump_signal_return, .-speed_bump_signal_return",
    ".popsection",
);

unsafe extern "C" {
    fn speed_bump_signal_return();
}

/// Where a signal handler returns to (`SA_RESTORER`); x86-64 requires it.
pub(crate) const SIGNAL_RETURN: Option<unsafe extern "C" fn()> = Some(speed_bump_signal_return);

unsafe extern "C" {
    /// A one-byte nop and a return.
    #[link_name = "speed_bump_python_entry_nop"]
    pub(crate) safe fn stub_nop(
        function: u32,
        target: u64,
        qualname: *const c_char,
        file: *const c_char,
        line: u32,
        ticks: u32,
    );
    /// A five-byte nop and a return.
    #[link_name = "speed_bump_python_entry_nop5"]
    pub(crate) safe fn stub_nop5(
        function: u32,
        target: u64,
        qualname: *const c_char,
        file: *const c_char,
        line: u32,
        ticks: u32,
    );
}

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
    "speed_bump_memory memcpy",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "speed_bump_memory memmove",
    "mov rax, rdi",
    "mov rcx, rdx",
    // Copies forwards unless the destination begins inside the source.
    "mov r8, rdi",
    "sub r8, rsi",
    "cmp r8, rdx",
    "jb 2f",
    "rep movsb",
    "ret",
    "2: lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "speed_bump_memory memset",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "speed_bump_memory memcmp",
    "xor ecx, ecx",
    "2: cmp rcx, rdx",
    "je 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r8d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r8d",
    "je 2b",
    "ret",
    "3: xor eax, eax",
    "ret",
    "speed_bump_memory bcmp",
    "jmp memcmp",
    "speed_bump_memory strlen",
    "xor eax, eax",
    "2: cmp byte ptr [rdi + rax], 0",
    "je 3f",
    "inc rax",
    "jmp 2b",
    "3: ret",
    ".popsection",
);

/// Ends the process with SIGILL.
#[cfg(feature = "image")]
pub(crate) fn trap() -> ! {
    // SAFETY: does not return.
    unsafe { asm!("ud2", options(noreturn, nomem, nostack)) }
}
