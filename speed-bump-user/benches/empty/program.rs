//! A BPF program that does nothing: what the kernel takes to run any at all.

use std::os::fd::{AsFd as _, OwnedFd};

use aya_obj::generated::bpf_insn;
use speed_bump_linux::sys::bpf::{self, ProgramKind};

/// Loads one (`r0 = 0; exit`), and returns its BTF and itself.
pub(crate) fn load(kind: ProgramKind) -> (OwnedFd, OwnedFd) {
    let instructions = [0xb7, 0x95].map(|code| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
        off: 0,
        imm: 0,
    });
    // BTF that a program must come with: one integer and an empty string (Documentation/bpf/btf.rst).
    let (kind_int, bytes, bits) = (1 << 24, 4, 32);
    let words = [24, 0, 16, 16, 1, 0, kind_int, bytes, bits];
    let words = words.into_iter().flat_map(u32::to_le_bytes);
    let btf: Vec<u8> = [0x9f, 0xeb, 1, 0].into_iter().chain(words).chain([0]).collect();
    let btf = bpf::load_btf(&btf).unwrap();
    let program = bpf::Program {
        name: "empty",
        instructions: &instructions,
        license: c"GPL",
        btf: btf.as_fd(),
        function_info: (&[], 8),
        kind,
    };
    let program = bpf::load_program(&program).unwrap();
    (btf, program)
}
