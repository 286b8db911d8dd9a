//! Any bytes as the notes of an ELF file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::notes(bytes));
