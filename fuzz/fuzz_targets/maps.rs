//! Any bytes as /proc/PID/maps.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::maps(bytes));
