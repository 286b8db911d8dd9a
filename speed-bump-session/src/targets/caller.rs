//! The option `caller=`: a target that selects only calls from certain functions.

use std::collections::HashMap;

use super::{Target, TargetIndex, TargetKind, Targets, error::LineProblem, pattern::Pattern};

/// Selects functions. A target with `caller=` only selects calls from these functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `[module:]name` as written.
    pub pattern: String,
    /// The pattern for the file, as in [`Target::module`].
    pub module: Pattern,
    /// The pattern for the name, as in [`Target::name`].
    pub name: Pattern,
}

impl Caller {
    /// Reads the text after `caller=`: `MODULE:NAME` or `NAME`.
    pub(super) fn read(written: &str) -> Result<Self, LineProblem> {
        let (module, name) = match separator(written) {
            Some(at) => (written.get(..at).unwrap_or_default(), written.get(at + 1..).unwrap_or_default()),
            None => ("*", written),
        };
        let is_kind = TargetKind::ALL.into_iter().any(|kind| kind.prefix() == module);
        if module.is_empty() || name.is_empty() || is_kind || written.contains(char::is_control) {
            return Err(LineProblem::Caller { written: written.to_owned() });
        }
        Ok(Self { pattern: written.to_owned(), module: Pattern::new(module)?, name: Pattern::new(name)? })
    }
}

/// The position of the `:` between module and name: the first `:` that is not part of a `::`, as in C++'s
/// `ns::f`.
fn separator(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = rest.find(':')?;
        let colons = rest.bytes().skip(at).take_while(|byte| *byte == b':').count();
        if colons != 2 {
            return Some(from + at);
        }
        from += at + colons;
    }
}

/// The different callers that targets of one kind name, each with a number, from 1 on.
///
/// Dropped targets of a session keep their positions. So each caller keeps its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Callers<'t> {
    callers: Vec<&'t Caller>,
    numbers: HashMap<&'t str, u32>,
}

impl<'t> Callers<'t> {
    pub(super) fn of_kind(targets: impl Iterator<Item = &'t Target>, kind: TargetKind) -> Self {
        let mut callers = Self::default();
        for target in targets.filter(|target| target.kind == kind) {
            // A file has fewer lines than a u32 can count.
            let next = callers.callers.len() as u32 + 1;
            if let Some(caller) = &target.caller
                && *callers.numbers.entry(caller.pattern.as_str()).or_insert(next) == next
            {
                callers.callers.push(caller);
            }
        }
        callers
    }

    /// The number of a target's caller; 0: the target selects calls from everywhere.
    pub(super) fn number(&self, caller: Option<&Caller>) -> u32 {
        caller.and_then(|caller| self.numbers.get(caller.pattern.as_str()).copied()).unwrap_or(0)
    }

    /// The callers, each with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &'t Caller)> {
        (1..).zip(self.callers.iter().copied())
    }

    pub(super) fn len(&self) -> usize {
        self.callers.len()
    }
}

impl Targets {
    /// The targets of this kind whose caller was not found. `found` has a bit for the number of each caller
    /// that was found. Leaves out callers whose pattern matches `<module>`, because no list of functions
    /// contains `<module>`.
    pub fn without_caller(&self, kind: TargetKind, found: u64) -> Vec<TargetIndex> {
        let callers = Callers::of_kind(self.targets.iter(), kind);
        let is_found = |number: u32| found.checked_shr(number.wrapping_sub(1)).unwrap_or(0) & 1 == 1;
        let is_missing = |target: &Target| {
            let caller = target.caller.as_ref().filter(|caller| !caller.name.matches("<module>"));
            caller.is_some_and(|caller| !is_found(callers.number(Some(caller))))
        };
        let asked = |target: &Target| target.kind == kind && !target.is_dropped;
        let missing = self.iter().filter(|(_, target)| asked(target) && is_missing(target));
        missing.map(|(index, _)| index).collect()
    }
}

impl Target {
    /// The candidates that are most similar to the target's caller, as [`Target::nearest`] gives them for the
    /// target. Empty if the target names no caller.
    pub(crate) fn nearest_callers<'c>(
        &self,
        functions: impl IntoIterator<Item = (&'c str, &'c str)>,
        limit: usize,
    ) -> Vec<String> {
        self.as_caller().map(|caller| caller.nearest(functions, limit)).unwrap_or_default()
    }

    /// A target that selects the callers of this target; `None` if this target is for all callers.
    pub(crate) fn as_caller(&self) -> Option<Self> {
        let Caller { pattern, module, name } = self.caller.clone()?;
        Some(Self { pattern, module, name, caller: None, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_caller_is_a_name_or_a_module_and_a_name() {
        for (written, module, name) in [
            ("handle", "*", "handle"),
            ("*/app.py:handle", "*/app.py", "handle"),
            ("__main__:A.<locals>.*", "__main__", "A.<locals>.*"),
            ("ns::f", "*", "ns::f"),
            ("*/service:ns::f", "*/service", "ns::f"),
            ("a.so:::f", "a.so", "::f"),
            ("<module>", "*", "<module>"),
            ("*", "*", "*"),
            ("native::f", "*", "native::f"),
        ] {
            let caller = Caller::read(written).unwrap();
            assert_eq!((caller.module.as_str(), caller.name.as_str()), (module, name), "{written}");
            assert_eq!(caller.pattern, written);
        }
        for written in ["", ":", ":f", "m:", "py:f", "native:*/a.so:f", "usdt:p:n", "a\u{7}"] {
            let problem = Caller::read(written).unwrap_err();
            assert!(matches!(problem, LineProblem::Caller { .. }), "{written:?}: {problem:?}");
        }
    }
}
