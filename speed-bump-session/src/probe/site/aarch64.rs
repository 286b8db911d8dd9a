//! Sites on AArch64: always the entry. These kernels simulate a few instructions and single-step all others.
//! None of the simulated instructions is common at the start of a function. To choose better we need a
//! machine to measure on.

use super::{Analysis, Candidate, Exactness, FunctionCode, LineEnd, SiteKind, SiteRefusal};

pub(super) fn analyse(function: &FunctionCode<'_>) -> Result<Analysis, SiteRefusal> {
    let bytes = function.map.bytes_at(function.entry.0, 4);
    let Some(word) = bytes.first_chunk::<4>() else {
        return Err(SiteRefusal::OutsideCode(function.entry));
    };
    let entry = Candidate {
        address: function.entry,
        offset: 0,
        kind: SiteKind::SingleStep,
        instruction: format!(".inst {:#010x}", u32::from_le_bytes(*word)),
        stack_delta: None,
        excluded: None,
        exactness: Exactness::Unproven,
    };
    Ok(Analysis { candidates: vec![entry], end: LineEnd::Architecture, jump_to_entry: None })
}
