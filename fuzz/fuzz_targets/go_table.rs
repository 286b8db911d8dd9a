//! Any bytes as the table of a Go program's functions, `.gopclntab`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::go_table(bytes));
