//! Any bytes as the symbol table that is packed into an ELF file, `.gnu_debugdata`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| speed_bump_session::fuzzing::mini_debug_info(bytes));
