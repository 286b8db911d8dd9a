//! Any text as the arguments of a USDT note: each argument gets a specification or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use speed_bump_linux::elf::{Machine, usdt::parse_arguments};

fuzz_target!(|text: &str| {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        for argument in parse_arguments(machine, text) {
            if let Ok(spec) = argument.spec {
                assert!(matches!(spec.size.unsigned_abs(), 1 | 2 | 4 | 8), "{}", argument.text);
                // struct pt_regs has 21 registers of 8 bytes.
                assert!(spec.register <= 160 && spec.register % 8 == 0, "{}", argument.text);
            }
        }
    }
});
