//! The callers that native targets name: which of them each function of a file is.

use speed_bump_abi::native_callers::CALLERS;

use super::{
    NativeModule, Selection, Target, TargetIndex, TargetKind, Targets, caller::Callers, rules::Rules,
};

/// More different callers than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the native targets name {named} different callers (`caller=`), and there is room for {CALLERS}; name \
     several by one pattern, or use several sessions"
)]
pub struct TooManyCallers {
    /// How many callers the targets name.
    named: usize,
}

/// The callers that native targets name. They are matched as targets are.
#[derive(Clone, Debug)]
pub struct NativeCallers {
    rules: Rules,
    /// By [`TargetIndex`]: 0, or the number of the target's caller.
    of_targets: Vec<u32>,
}

impl Targets {
    /// The callers that native targets name.
    pub fn native_callers(&self) -> NativeCallers {
        let callers = Callers::of_kind(self.targets.iter(), TargetKind::Native);
        let number = |target: &Target| match target.kind {
            TargetKind::Native => callers.number(target.caller.as_ref()),
            TargetKind::Python | TargetKind::Usdt => 0,
        };
        let of_targets = self.targets.iter().map(number).collect();
        // One for each number, whose targets may all be dropped.
        let as_target = |(number, _)| {
            let mut named = self.targets.iter().filter(|target| is_named(target, number, &callers));
            let first = named.next()?;
            let is_dropped = first.is_dropped && named.all(|target| target.is_dropped);
            Some(Target { is_dropped, ..first.as_caller()? })
        };
        let as_targets: Vec<Target> = callers.iter().filter_map(as_target).collect();
        NativeCallers { rules: Rules::new(TargetKind::Native, &as_targets, &[], &[]), of_targets }
    }

    /// Fails if native targets name more callers than a session has room for.
    ///
    /// # Errors
    /// How many callers they name.
    pub fn check_native_callers(&self) -> Result<(), TooManyCallers> {
        let named = Callers::of_kind(self.targets.iter(), TargetKind::Native).len();
        if named > CALLERS as usize { Err(TooManyCallers { named }) } else { Ok(()) }
    }
}

fn is_named(target: &Target, number: u32, callers: &Callers<'_>) -> bool {
    target.kind == TargetKind::Native && callers.number(target.caller.as_ref()) == number
}

impl NativeCallers {
    /// The number of a target's caller, from 1 on; 0: it is for all calls, or no native target.
    pub fn number(&self, target: TargetIndex) -> u32 {
        self.of_targets.get(target.0 as usize).copied().unwrap_or(0)
    }

    /// The callers that may be functions of the ELF file at `path`. [`bits`] turns a selection of this module
    /// into the callers.
    pub fn native_in(&self, path: &str) -> NativeModule<'_> {
        NativeModule(self.rules.in_module(path))
    }
}

/// The callers that a function is, by bit: the lowest bit is the caller with number 1.
pub fn bits(selection: &Selection) -> u32 {
    let callers = selection.winner.iter().chain(&selection.shadowed);
    callers.fold(0, |bits, caller| bits | bit(caller.0.saturating_add(1)))
}

/// The bit of a caller with this number; 0: none.
pub fn bit(number: u32) -> u32 {
    number.checked_sub(1).and_then(|bit| 1_u32.checked_shl(bit)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::targets::{TargetChange, source::TargetSource};

    fn targets(lines: &[&str]) -> Targets {
        TargetSource::lines("test", lines).read(false).unwrap().decide(|_| false)
    }

    fn bits_of(callers: &NativeCallers, path: &str, names: &[&str]) -> Vec<u32> {
        let found = callers.native_in(path).select_all(names.iter().map(|name| (*name, [*name])));
        let of = |name: &&str| found.iter().find(|(symbol, _)| symbol == name);
        names.iter().map(|name| of(name).map_or(0, |(_, selection)| bits(selection))).collect()
    }

    const LINES: [&str; 6] = [
        "native:*/a.so:burn caller=hot",
        "py:*/a.py:burn caller=other",
        "native:*/b.so:burn caller=*/b.so:h*",
        "native:*/b.so:fuel caller=hot",
        "!native:*/b.so:hot",
        "native:*/a.so:burn",
    ];

    #[test]
    fn a_function_may_be_several_callers_and_exclusions_are_for_targets() {
        let callers = targets(&LINES).native_callers();
        assert_eq!([0, 1, 2, 3, 4, 9].map(|at| callers.number(TargetIndex(at))), [1, 0, 2, 1, 0, 0]);
        let names = ["hot", "heat", "cold", "other"];
        assert_eq!(bits_of(&callers, "/x/b.so", &names), [3, 2, 0, 0]);
        assert_eq!(bits_of(&callers, "/x/a.so", &names), [1, 0, 0, 0]);
    }

    #[test]
    fn callers_keep_their_numbers_when_targets_are_dropped() {
        let drop = |at: &[u32]| TargetChange {
            add: Vec::new(),
            drop: at.iter().copied().map(TargetIndex).collect(),
        };
        let names = ["hot", "heat"];
        let one = targets(&LINES).changed(&drop(&[0])).native_callers();
        assert_eq!(bits_of(&one, "/x/b.so", &names), [3, 2], "another target has the caller");
        let both = targets(&LINES).changed(&drop(&[0, 3])).native_callers();
        assert_eq!(bits_of(&both, "/x/b.so", &names), [2, 2]);
        assert_eq!([0, 2].map(|at| both.number(TargetIndex(at))), [1, 2]);
    }

    #[test]
    fn there_is_room_for_32_callers() {
        let lines: Vec<String> = (0..33).map(|at| format!("native:*/a.so:f caller=c{at}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(targets(&lines).check_native_callers(), Err(TooManyCallers { named: 33 }));
        let targets = targets(&lines[..32]);
        assert_eq!(targets.check_native_callers(), Ok(()));
        assert_eq!(bits_of(&targets.native_callers(), "/a.so", &["c31"]), [1 << 31]);
        assert_eq!([0, 1, 32, 33, u32::MAX].map(bit), [0, 1, 1 << 31, 0, 0]);
    }
}
