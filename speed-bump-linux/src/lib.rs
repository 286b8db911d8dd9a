//! Linux processes and files: safe functions for system calls, `/proc`, ELF, and the kernel's features. What
//! a process wrote, named or opened is checked and bounded before it is used.

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
