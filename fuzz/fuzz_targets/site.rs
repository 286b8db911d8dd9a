//! Any bytes as machine code, for the choice of a probe site.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::site(bytes));
