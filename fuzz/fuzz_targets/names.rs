//! Any bytes as the name of a symbol: it is demangled within bounds, and nothing of it controls a terminal.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::names(bytes));
