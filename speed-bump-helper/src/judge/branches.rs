//! Functions whose targets are for some callers alone (`caller=`): which of the targets a call counts for.
//!
//! Such a function has a number for each of these targets, in the order of the file, up to the first that is
//! for all callers. The block chains them ([`Branch`](speed_bump_abi::control_block::Branch)). A caller keeps
//! its bit for the whole session, so a forked child that has yet to put a new selector to use reads the same.

use core::sync::atomic::Ordering;

use speed_bump_abi::control_block::notice;
use speed_bump_selector::layout::CALLERS;

use super::{Judge, Place};
use crate::{
    block::Block,
    python::{code::Code, text::Utf8},
};

/// Chains a function's numbers, each with the caller that it is for. `None` in place of a number: the table
/// is full, which is reported to the user.
pub(super) fn link(block: Block, first: (u32, u32), others: impl Iterator<Item = (Option<u32>, u32)>) {
    let set_next = |number: u32, next: u32| {
        if let Some(branch) = block.branch(number) {
            branch.next.store(next, Ordering::Relaxed);
        }
    };
    let set_caller = |number: u32, caller: u32| {
        if let Some(branch) = block.branch(number) {
            branch.caller.store(caller, Ordering::Relaxed);
        }
    };
    let (mut last, caller) = first;
    set_caller(last, caller);
    for (number, caller) in others {
        let Some(number) = number else { break };
        set_caller(number, caller);
        set_next(last, number.wrapping_add(1));
        last = number;
    }
    set_next(last, 0);
}

/// The number that a call counts for, of a function with this first number. `callers`: the bits of the
/// calling function. `None`: no target is for this call.
pub(crate) fn find(block: Block, first: u32, callers: u32) -> Option<u32> {
    let mut number = first;
    // One for each caller, and one for all: more are not chained.
    for _ in 0..=CALLERS {
        let branch = block.branch(number)?;
        let caller = branch.caller.load(Ordering::Relaxed);
        if caller == 0 || callers.checked_shr(caller.wrapping_sub(1)).unwrap_or(0) & 1 == 1 {
            return Some(number);
        }
        number = branch.next.load(Ordering::Relaxed).checked_sub(1)?;
    }
    None
}

impl Judge {
    /// Which callers that targets name (`caller=`) the function of a calling frame is, a bit for each caller.
    /// `None` if that is not known yet.
    #[inline]
    pub(crate) fn known_as_caller(&self, code: Code<'_>) -> Option<u32> {
        self.noted_at(Place::Caller, code)
    }

    /// Like [`known_as_caller`](Self::known_as_caller), for code that was not judged yet. `search` finds the
    /// qualified name where code does not hold it. May clear the exception that is set.
    #[cold]
    pub(crate) fn judge_as_caller<'gil>(
        &self,
        block: Block,
        code: Code<'gil>,
        search: impl FnOnce(Code<'gil>) -> Option<Utf8<'gil>>,
    ) -> u32 {
        // We do this before we run anything that could make calls from this code.
        self.note_as_caller(block, code, 0);
        let (Some(file), Some(name)) = (code.file(), code.name()) else { return 0 };
        let module = self.selector.in_module(file.text());
        let own = code.qualname();
        let bits = match &own {
            Some(qualname) => module.as_caller(qualname.text()),
            // A module or a class: its code holds the name.
            None if !code.is_function() => module.as_caller(name.text()),
            None if !module.may_call(name.text()) => 0,
            None => {
                let found = search(code);
                if found.is_none() {
                    block.notice(notice::NAME_UNSURE);
                }
                module.as_caller(found.as_ref().map_or(name.text(), Utf8::text))
            }
        };
        self.note_as_caller(block, code, bits);
        bits
    }

    /// Remembers which callers of targets a function is.
    pub(super) fn note_as_caller(&self, block: Block, code: Code<'_>, bits: u32) {
        let found = &block.head().callers_found;
        if u64::from(bits) & !found.load(Ordering::Relaxed) != 0 {
            found.fetch_or(bits.into(), Ordering::AcqRel);
        }
        self.note_at(Place::Caller, code, bits);
    }
}
