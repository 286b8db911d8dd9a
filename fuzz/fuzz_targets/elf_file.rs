//! Any bytes as an ELF file: every question gets an answer or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use speed_bump_linux::elf::{ElfFile, LoadBias, Module, resolve_indirect};
use speed_bump_units::units::VirtualAddress;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = ElfFile::from_bytes(bytes, "fuzz") else { return };
    file.build_id().ok();
    file.usdt_probes().ok();
    let Ok(functions) = file.functions() else { return };
    for function in functions.functions() {
        assert_eq!(file.segments().code_offset_of(function.address), Some(function.offset));
        assert!(function.names.candidates().count() > 0);
        assert!(functions.containing(function.address).is_some());
        file.read_code(function.address, &mut [0; 64]).ok();
    }
    // Memory that holds some address everywhere.
    let read = |address: VirtualAddress, buffer: &mut [u8]| {
        buffer.fill(address.0 as u8);
        Ok(())
    };
    for function in functions.indirect().iter().take(16) {
        let module = Module { elf: &file, bias: LoadBias(0x1000) };
        resolve_indirect(function, 0, &[module], &read).ok();
    }
});
