//! Linux processes and files: safe functions for system calls, `/proc`, ELF, and the kernel's features. We
//! check and bound what a process wrote, named or opened before we use it.

pub mod bounds;
pub mod capability;
pub mod causes;
pub mod elf;
pub mod failure;
pub mod kernel;
pub mod process;
pub mod sys;
pub mod whole_file;

use speed_bump_units::units;
