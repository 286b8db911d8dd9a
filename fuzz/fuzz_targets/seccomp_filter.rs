//! Any bytes as a seccomp filter.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::seccomp_filter(bytes));
