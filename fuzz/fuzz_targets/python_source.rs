//! Any bytes as a Python source file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::source(bytes));
