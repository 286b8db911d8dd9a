//! Linux processes and files: system calls behind safe functions, `/proc`, ELF, the kernel's features. What a
//! process wrote, named or opened is checked and bounded before it is used.

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
