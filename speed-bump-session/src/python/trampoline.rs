//! Perf trampolines: the address to which the evaluator returns identifies the function exactly.
//!
//! A trampoline is a copy of one assembly template that calls the evaluator and returns
//! (Python/asm_trampoline.S). The template differs between releases and builds, so we decode the end of its
//! call from the process's own memory.

use std::io;

use super::perf_map::PerfMapEntry;
use crate::units::VirtualAddress;

/// The longest trampoline that we decode, in bytes. CPython's trampolines have 11 or 12 bytes on x86-64.
const SIZE_LIMIT: u64 = 256;

/// Why the bytes at an address are not a trampoline that we understand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrampolineError {
    /// The trampoline's memory could not be read.
    #[error("cannot read the trampoline of {name} at {address}: {source}; has the process unmapped it?")]
    Unreadable {
        /// The function's name.
        name: String,
        /// The trampoline's address.
        address: VirtualAddress,
        /// The reader's error.
        r#source: io::Error,
    },
    /// The trampoline does not have exactly one indirect call.
    #[error(
        "{size} bytes at {address}, said to be the trampoline of {name}, hold {calls} indirect calls instead \
         of one: the perf map is wrong, or this CPython's trampolines are new to us"
    )]
    NotOneCall {
        /// The function's name.
        name: String,
        /// The trampoline's address.
        address: VirtualAddress,
        /// The trampoline's length in the perf map.
        size: u64,
        /// The number of indirect calls in the trampoline.
        calls: usize,
    },
    /// The trampoline is not a straight run of instructions.
    #[error(
        "the bytes at {address}, said to be the trampoline of {name}, are not its code: the perf map is wrong"
    )]
    NotCode {
        /// The function's name.
        name: String,
        /// The trampoline's address.
        address: VirtualAddress,
    },
    /// The BPF program can find the return address only on x86-64.
    #[cfg(not(target_arch = "x86_64"))]
    #[error("perf trampolines are read on x86-64 only, so far; USDT and native targets work")]
    Architecture,
}

/// Finds return addresses. Remembers the template of the first trampoline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trampolines {
    template: Option<Template>,
}

/// The code that the trampolines of a process share.
#[derive(Clone, Debug)]
struct Template {
    code: Vec<u8>,
    return_offset: u64,
}

impl Trampolines {
    /// The return address at the top of the stack when this trampoline enters the evaluator.
    ///
    /// `read` fills its buffer from the process's memory.
    ///
    /// # Errors
    /// We cannot read the bytes, or they are not a trampoline.
    pub(crate) fn return_address(
        &mut self,
        entry: &PerfMapEntry,
        read: impl FnOnce(VirtualAddress, &mut [u8]) -> io::Result<()>,
    ) -> Result<VirtualAddress, TrampolineError> {
        let (address, name) = (entry.address, || entry.qualname.clone());
        if entry.size > SIZE_LIMIT {
            return Err(TrampolineError::NotCode { name: name(), address });
        }
        let mut code = vec![0; usize::try_from(entry.size).unwrap_or_default()];
        read(address, &mut code).map_err(|source| TrampolineError::Unreadable {
            name: name(),
            address,
            source,
        })?;
        let return_offset = match &self.template {
            Some(template) if template.code == code => template.return_offset,
            _ => {
                let return_offset = return_offset(&code).map_err(|problem| match problem {
                    Problem::NotCode => TrampolineError::NotCode { name: name(), address },
                    Problem::Calls(calls) => {
                        TrampolineError::NotOneCall { name: name(), address, size: entry.size, calls }
                    }
                    #[cfg(not(target_arch = "x86_64"))]
                    Problem::Architecture => TrampolineError::Architecture,
                })?;
                self.template = Some(Template { code, return_offset });
                return_offset
            }
        };
        address
            .0
            .checked_add(return_offset)
            .map(VirtualAddress)
            .ok_or_else(|| TrampolineError::NotCode { name: name(), address })
    }
}

/// Why a piece of code is not a trampoline.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    NotCode,
    Calls(usize),
    #[cfg(not(target_arch = "x86_64"))]
    Architecture,
}

/// The offset of the end of the only indirect call. We accept only straight-line code up to a return. Then
/// every path through the trampoline makes this call.
#[cfg(target_arch = "x86_64")]
fn return_offset(code: &[u8]) -> Result<u64, Problem> {
    use iced_x86::{Decoder, DecoderOptions, FlowControl};

    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let (mut ends, mut returns) = (Vec::new(), false);
    while decoder.can_decode() && !returns {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Problem::NotCode);
        }
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::IndirectCall => ends.push(instruction.next_ip()),
            FlowControl::Return => returns = true,
            _ => return Err(Problem::NotCode),
        }
    }
    match ends[..] {
        [end] if returns => Ok(end),
        [_] => Err(Problem::NotCode),
        _ => Err(Problem::Calls(ends.len())),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn return_offset(_code: &[u8]) -> Result<u64, Problem> {
    Err(Problem::Architecture)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
