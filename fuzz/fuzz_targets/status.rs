//! Any bytes as /proc/PID/status and /proc/PID/stat.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::status(bytes));
