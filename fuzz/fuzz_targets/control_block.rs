//! Any writes, by a hostile process, to the control block that it shares with the tool.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::control_block(bytes));
