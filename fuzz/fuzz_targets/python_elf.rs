//! Any bytes as an ELF file that may hold a CPython.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::python_elf(bytes));
