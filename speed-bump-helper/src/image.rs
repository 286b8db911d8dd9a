//! What the shared object needs beyond the library: a note that identifies it to a loader, and a panic
//! handler.

use core::{arch::global_asm, panic::PanicInfo};

use speed_bump_abi::control_block::VERSION;

// A loader reads this from the file or from a process's memory, without running anything: owner "speed-bump",
// type 1, the version of the control block.
global_asm!(
    ".pushsection .note.speed_bump, \"a\", @note",
    ".balign 4",
    ".4byte 992f-991f, 994f-993f, 1",
    "991: .asciz \"speed-bump\"",
    "992: .balign 4",
    "993: .4byte {version}",
    "994: .balign 4",
    ".popsection",
    version = const VERSION,
);

/// There is nothing to unwind to, and nothing may be left half done. No code of the helper is meant to panic.
/// If it does, neither its own thread nor the thread that called a Python function may go on.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    crate::arch::trap()
}
