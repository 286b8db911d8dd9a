//! Programs that we have not loaded yet. Some kernels give programs no cookie. There, each site gets its own
//! copy of the program, and the copy contains the site's number.

use std::{
    ffi::CString,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use aya_obj::generated::bpf_insn;

use crate::sys::bpf::{self, LoadError, ProgramKind, UprobeAttachType};

/// `BPF_JMP | BPF_CALL`, `BPF_ALU64 | BPF_MOV | BPF_K`, and `BPF_STX | BPF_ATOMIC` in both sizes
/// (Documentation/bpf/standardization/instruction-set.rst).
const CALL: u8 = 0x85;
const MOVE_CONSTANT: u8 = 0xb7;
const ATOMIC: [u8; 2] = [0xc3, 0xdb];
/// `BPF_FETCH`: the atomic operation returns the old value.
const FETCH: i32 = 1;
/// `BPF_FUNC_get_attach_cookie` (include/uapi/linux/bpf.h).
const GET_COOKIE: i32 = 174;

/// A program that we have not loaded yet.
pub(super) struct Original {
    pub(super) name: &'static str,
    pub(super) instructions: Vec<bpf_insn>,
    pub(super) license: CString,
    pub(super) btf: Arc<OwnedFd>,
    pub(super) function_info: (Vec<u8>, usize),
}

impl Original {
    /// Loads the program unchanged.
    pub(super) fn load(&self, kind: ProgramKind) -> Result<OwnedFd, LoadError> {
        self.load_instructions(&self.instructions, kind)
    }

    /// Loads a copy of the program for one site.
    pub(super) fn load_for(&self, site: u32) -> Result<OwnedFd, LoadError> {
        let kind = ProgramKind::Uprobe(UprobeAttachType::PerfEvent);
        self.load_instructions(&for_site(&self.instructions, site), kind)
    }

    fn load_instructions(&self, instructions: &[bpf_insn], kind: ProgramKind) -> Result<OwnedFd, LoadError> {
        let (records, size) = &self.function_info;
        bpf::load_program(&bpf::Program {
            name: self.name,
            instructions,
            license: &self.license,
            btf: self.btf.as_fd(),
            function_info: (records, *size),
            kind,
        })
    }
}

/// The program, with two changes. A site's number replaces the call that gets the site's cookie. Instructions
/// that are newer than cookies get an older form.
fn for_site(instructions: &[bpf_insn], site: u32) -> Vec<bpf_insn> {
    let mut copy = instructions.to_vec();
    for instruction in &mut copy {
        if instruction.code == CALL && instruction.src_reg() == 0 && instruction.imm == GET_COOKIE {
            // The cookie of this site in the first process. Copied programs do not use the upper half of the
            // cookie. Like the result of the call, the cookie is in register 0.
            instruction.code = MOVE_CONSTANT;
            instruction.set_dst_reg(0);
            instruction.imm = site.cast_signed();
        }
        if ATOMIC.contains(&instruction.code) {
            // Only `frequency` needs the old value, and we refuse a `frequency` on these kernels.
            instruction.imm &= !FETCH;
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u8, source: u8, imm: i32) -> bpf_insn {
        let mut instruction =
            bpf_insn { code, imm, off: 0, _bitfield_align_1: [], _bitfield_1: Default::default() };
        instruction.set_src_reg(source);
        instruction
    }

    #[test]
    fn a_copy_has_its_sites_number_and_fetches_nothing() {
        const PSEUDO_CALL: u8 = 1;
        let original = [
            instruction(CALL, 0, GET_COOKIE),
            instruction(CALL, PSEUDO_CALL, GET_COOKIE),
            instruction(CALL, 0, 5),
            instruction(ATOMIC[1], 2, FETCH),
            instruction(ATOMIC[0], 2, 0),
        ];
        let copy: Vec<_> =
            for_site(&original, 70_000).iter().map(|it| (it.code, it.src_reg(), it.imm)).collect();
        let expected = [
            (MOVE_CONSTANT, 0, 70_000),
            (CALL, PSEUDO_CALL, GET_COOKIE),
            (CALL, 0, 5),
            (ATOMIC[1], 2, 0),
            (ATOMIC[0], 2, 0),
        ];
        assert_eq!(copy, expected);
    }
}
