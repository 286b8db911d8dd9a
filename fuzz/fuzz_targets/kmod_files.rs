//! Any bytes as the kernel module's list of targets, and as another tool's note of its own.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::kmod_files(bytes));
