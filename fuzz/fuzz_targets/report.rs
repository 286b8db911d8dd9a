//! Any bytes as the JSON of a sweep or a session, in all forms of a report.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::report(bytes));
