//! Any changes to a perf map while it is followed.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::perf_map(bytes));
