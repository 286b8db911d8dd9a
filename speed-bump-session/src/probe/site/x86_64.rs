//! Sites on x86-64: decodes straight from the entry, and finds the reasons against each instruction.

mod branches;
mod exits;
mod frame;
mod instructions;
mod treatment;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, Mnemonic, NasmFormatter};

pub(super) use self::exits::exits;
use self::{branches::Branches, frame::Frame, treatment::Encoding};
use super::{
    Analysis, Candidate, Exactness, Exclusion, FunctionCode, KernelRefusal, LineEnd, SiteKind, SiteRefusal,
};
use crate::units::VirtualAddress;

/// The most instructions from the entry on that we consider: no prologue is longer.
const LINE_LIMIT: usize = 64;
/// The most bytes that an instruction can have (Intel SDM, volume 2, 2.3.11).
const LONGEST_INSTRUCTION: usize = 15;
/// The number of bytes to decode: for these instructions and the next one.
const LINE_BYTES: usize = (LINE_LIMIT + 1) * LONGEST_INSTRUCTION;

/// An instruction on the line from the entry, with facts that depend on its position.
struct Step<'a> {
    instruction: Instruction,
    encoding: Option<Encoding<'a>>,
    frame: Frame,
    /// Whether the instruction saves a register for the caller.
    saves: bool,
}

/// Finds the candidates of a function.
pub(super) fn analyse(function: &FunctionCode<'_>) -> Result<Analysis, SiteRefusal> {
    let bytes = function.map.bytes_at(function.entry.0, LINE_BYTES);
    let (line, end) = straight_line(function, &bytes)?;
    let branches = match (function.size.unwrap_or(0), line.last()) {
        (size @ 1.., Some(last)) => Branches::find(function, size, last.instruction.next_ip()),
        _ => Branches::default(),
    };
    let anchor = anchor(&line, &branches);
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_hex_prefix("0x");
    formatter.options_mut().set_hex_suffix("");
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    let candidates = line
        .iter()
        .map(|step| {
            let instruction = &step.instruction;
            let mut text = String::new();
            formatter.format(instruction, &mut text);
            let kind =
                step.encoding.as_ref().map_or(SiteKind::SingleStep, |encoding| encoding.kind(instruction));
            Candidate {
                address: VirtualAddress(instruction.ip()),
                offset: u32::try_from(instruction.ip() - function.entry.0).unwrap_or(u32::MAX),
                kind,
                instruction: text,
                stack_delta: step.frame.depth(),
                excluded: exclusion(step, function, &branches, anchor),
                exactness: exactness(step, function, &branches, anchor),
            }
        })
        .collect();
    Ok(Analysis { candidates, end, jump_to_entry: branches.to_entry().map(VirtualAddress) })
}

/// Decodes from the entry to the first transfer of control.
fn straight_line<'a>(
    function: &FunctionCode<'_>,
    bytes: &'a [u8],
) -> Result<(Vec<Step<'a>>, LineEnd), SiteRefusal> {
    let entry = function.entry.0;
    if bytes.is_empty() {
        return Err(SiteRefusal::OutsideCode(function.entry));
    }
    let size = function.size.unwrap_or(0);
    let next_symbol = function.map.next_symbol(entry);
    let mut decoder = Decoder::with_ip(64, bytes, entry, DecoderOptions::NONE);
    let mut line: Vec<Step<'_>> = Vec::new();
    let mut frame = Frame::default();
    let end = loop {
        let (position, address) = (decoder.position(), decoder.ip());
        // The entry itself is always a candidate.
        if position > 0 {
            if size == 0 {
                break LineEnd::SizeUnknown;
            }
            if position as u64 >= size || !decoder.can_decode() {
                break LineEnd::FunctionEnd;
            }
            if line.len() == LINE_LIMIT {
                break LineEnd::Limit;
            }
        }
        let instruction = decoder.decode();
        if position > 0 {
            if let Some(symbol) = next_symbol.filter(|symbol| *symbol < instruction.next_ip()) {
                break LineEnd::Symbol(VirtualAddress(symbol));
            }
            if instruction.is_invalid() {
                break LineEnd::Undecodable(VirtualAddress(address));
            }
        }
        let encoding = (!instruction.is_invalid())
            .then(|| bytes.get(position..decoder.position()).and_then(Encoding::read))
            .flatten();
        let saves = frame.saves(&instruction);
        line.push(Step { instruction, encoding, frame: frame.clone(), saves });
        if instruction.is_invalid() {
            break LineEnd::Undecodable(VirtualAddress(address));
        }
        // HLT faults in user mode, so the code after it does not execute.
        if instruction.flow_control() != FlowControl::Next || instruction.mnemonic() == Mnemonic::Hlt {
            let mut text = String::new();
            NasmFormatter::new().format_mnemonic(&instruction, &mut text);
            break LineEnd::Transfer(text);
        }
        frame.run(&instruction);
    };
    Ok((line, end))
}

/// The last push that saves a register for the caller. `None` if a known branch lands at or before this push,
/// so that the push may execute twice in a call.
fn anchor(line: &[Step<'_>], branches: &Branches) -> Option<u64> {
    let last = line.iter().rev().find(|step| step.saves)?.instruction.ip();
    branches.first_target().is_none_or(|(target, _)| target > last).then_some(last)
}

/// Why an instruction on the line cannot be a site; `None` if it can.
fn exclusion(
    step: &Step<'_>,
    function: &FunctionCode<'_>,
    branches: &Branches,
    anchor: Option<u64>,
) -> Option<Exclusion> {
    let instruction = &step.instruction;
    let (address, entry) = (instruction.ip(), function.entry.0);
    let Some(encoding) = &step.encoding else {
        return Some(KernelRefusal::Undecodable.into());
    };
    if let Some(refusal) = encoding.refusal(instruction) {
        return Some(refusal.into());
    }
    if encoding.traps_repeatedly() {
        return Some(Exclusion::TrapsRepeatedly);
    }
    if function.shadow_stack && instruction.mnemonic() == Mnemonic::Call {
        return Some(Exclusion::ShadowStack);
    }
    let rewritten = encoding.may_be_rewritten(instruction);
    if rewritten && step.frame.red_zone_used() {
        return Some(Exclusion::RedZone);
    }
    // If the kernel does not rewrite the instruction, a branch into the middle of the instruction does no
    // harm: it executes other code.
    let last_byte = if rewritten { instruction.next_ip() - 1 } else { address };
    let reached = branches.first_target().filter(|(target, _)| *target <= last_byte);
    let symbol = function.map.next_symbol(entry).filter(|symbol| *symbol <= last_byte);
    if let Some((to, from)) = reached.or(symbol.map(|symbol| (symbol, symbol))) {
        return Some(Exclusion::Reached { from: VirtualAddress(from), to: VirtualAddress(to) });
    }
    let proven = address == entry || anchored(step, anchor);
    branches.doubt().filter(|_| !proven).map(Exclusion::Unproven)
}

/// Whether each call executes an instruction exactly once, if nothing excludes it.
fn exactness(
    step: &Step<'_>,
    function: &FunctionCode<'_>,
    branches: &Branches,
    anchor: Option<u64>,
) -> Exactness {
    let all_known = branches.doubt().is_none() && function.size.unwrap_or(0) > 0;
    if branches.to_entry().is_some() {
        Exactness::Repeats
    } else if all_known || anchored(step, anchor) {
        Exactness::Once
    } else {
        Exactness::Unproven
    }
}

fn anchored(step: &Step<'_>, anchor: Option<u64>) -> bool {
    anchor.is_some_and(|anchor| step.instruction.ip() <= anchor)
}

#[cfg(test)]
mod tests;
