//! Any bytes as an ELF file that names separate debug files.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::debug_files(bytes));
