//! The parsed lines of a targets file, before we decide the kind of each. If a line names no kind, a file may
//! decide whether the line is native or Python, and only a process knows that file.

use std::collections::HashMap;

use super::{
    Exclusion, KindReason, NoTarget, Target, TargetKind, Targets, changed::with_own_ids, line::LineKind,
};

/// The lines of a targets file. [`decide`](Self::decide) turns them into targets.
#[derive(Clone, Debug)]
pub struct ParsedTargets {
    pub(super) targets: Vec<Parsed<Target>>,
    pub(super) exclusions: Vec<Parsed<Exclusion>>,
    pub(super) no_target: Option<NoTarget>,
}

/// A parsed line. The line has the kind given here if no ELF file decides otherwise.
#[derive(Clone, Debug)]
pub(super) struct Parsed<T> {
    pub(super) line: T,
    /// Whether the file that the module part names decides the kind.
    pub(super) by_file: bool,
}

impl<T> Parsed<T> {
    pub(super) fn new(kind: LineKind, line: impl FnOnce(TargetKind, KindReason) -> T) -> Self {
        match kind {
            LineKind::Known(kind, reason) => Self { line: line(kind, reason), by_file: false },
            LineKind::ByFile => Self { line: line(TargetKind::Python, KindReason::Default), by_file: true },
        }
    }
}

impl ParsedTargets {
    /// The absolute paths, as written, that decide the kinds of lines. A path may occur several times.
    pub fn undecided(&self) -> impl Iterator<Item = &str> {
        let targets = self.targets.iter().filter(|of| of.by_file).map(|of| of.line.module.as_str());
        let exclusions = self.exclusions.iter().filter(|of| of.by_file).map(|of| of.line.module.as_str());
        targets.chain(exclusions)
    }

    /// Decides the kinds of the lines that `of` also has: each line gets the same kind as there.
    #[must_use]
    pub fn decided_as_in(mut self, of: &Targets) -> Self {
        let is_by_file = |reason: KindReason| matches!(reason, KindReason::ElfFile | KindReason::Default);
        let there: HashMap<&str, &Target> = of
            .iter()
            .map(|(_, target)| target)
            .filter(|target| !target.is_dropped && is_by_file(target.kind_reason))
            .map(|target| (target.pattern.as_str(), target))
            .collect();
        for Parsed { line, by_file } in self.targets.iter_mut().filter(|of| of.by_file) {
            if let Some(same) = there.get(line.pattern.as_str()) {
                (line.kind, line.kind_reason, *by_file) = (same.kind, same.kind_reason, false);
            }
        }
        self
    }

    /// Turns the lines into targets. `is_elf` returns whether an absolute path names an ELF file, as a
    /// process sees it.
    pub fn decide(self, is_elf: impl Fn(&str) -> bool) -> Targets {
        let is_native = |by_file: bool, module: &str| by_file && is_elf(module);
        let targets = self.targets.into_iter().map(|Parsed { mut line, by_file }| {
            if is_native(by_file, line.module.as_str()) {
                (line.kind, line.kind_reason) = (TargetKind::Native, KindReason::ElfFile);
            }
            line
        });
        let exclusions = self.exclusions.into_iter().map(|Parsed { mut line, by_file }| {
            if is_native(by_file, line.module.as_str()) {
                (line.kind, line.kind_reason) = (TargetKind::Native, KindReason::ElfFile);
            }
            line
        });
        let targets = Targets::new(targets.collect(), exclusions.collect(), Vec::new());
        Targets { no_target: self.no_target, ..targets }
    }

    /// Puts the targets of `others` after these. The result has the exclusions of `others`.
    pub(super) fn before(self, others: Self) -> Self {
        let first = self.targets.iter().map(|of| &of.line);
        let ids = with_own_ids(first, others.targets.iter().map(|of| &of.line));
        let others_targets = others.targets.into_iter().zip(ids).map(|(of, id)| {
            let Parsed { line, by_file } = of;
            Parsed { line: Target { id, ..line }, by_file }
        });
        let targets = self.targets.into_iter().chain(others_targets).collect();
        Self { targets, exclusions: others.exclusions, no_target: others.no_target }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_decide_the_kinds_of_absolute_paths_alone() {
        let text = "/usr/bin/app:f\n/srv/app.py:f\n*/app:f\nlib.so:f\npy:/usr/bin/app:g\n!/usr/bin/app:h\n";
        let parsed = ParsedTargets::parse("t", text.as_bytes(), false).unwrap();
        let asked: Vec<&str> = parsed.undecided().collect();
        assert_eq!(asked, ["/usr/bin/app", "/srv/app.py", "/usr/bin/app"]);
        let kinds = |is_elf: bool| {
            let targets = parsed.clone().decide(|path| is_elf && path == "/usr/bin/app");
            let kinds: Vec<_> = targets.iter().map(|(_, target)| (target.kind, target.kind_reason)).collect();
            (kinds, targets.exclusions()[0].kind)
        };
        use KindReason::{Default, ElfFile, SharedObjectName, Written};
        use TargetKind::{Native, Python};
        let rest = [(Python, Default), (Python, Default), (Native, SharedObjectName), (Python, Written)];
        let with = |first| [&[first], &rest[..]].concat();
        assert_eq!(kinds(true), (with((Native, ElfFile)), Native));
        assert_eq!(kinds(false), (with((Python, Default)), Python));
    }

    #[test]
    fn a_line_that_a_session_has_keeps_its_kind() {
        let parsed = |text: &str| ParsedTargets::parse("t", text.as_bytes(), true).unwrap();
        let session =
            parsed("/usr/bin/app:f\n/srv/job:f\npy:/srv/job:g\n").decide(|path| path == "/usr/bin/app");
        let again = parsed("/usr/bin/app:f delay=1us\n/srv/job:f\n/srv/job:g\n").decided_as_in(&session);
        assert_eq!(again.undecided().collect::<Vec<_>>(), ["/srv/job"]);
        let kinds: Vec<_> = again.decide(|_| true).iter().map(|(_, target)| target.kind).collect();
        assert_eq!(kinds, [TargetKind::Native, TargetKind::Python, TargetKind::Native]);
    }

    #[test]
    fn a_line_is_open_again_behind_others() {
        let [first, others] =
            ["native:*/a.so:f id=x\n!native:*:g\n", "/usr/bin/app:f id=x\n!/usr/bin/app:g\n"]
                .map(|text| ParsedTargets::parse("t", text.as_bytes(), false).unwrap());
        let both = first.before(others);
        assert_eq!(both.undecided().count(), 2);
        let targets = both.decide(|_| true);
        let all: Vec<_> = targets.iter().map(|(_, target)| (target.kind, target.id.as_str())).collect();
        assert_eq!(all, [(TargetKind::Native, "x"), (TargetKind::Native, "x (2)")]);
        let excluded: Vec<_> = targets.exclusions().iter().map(|of| (of.kind, of.text.as_str())).collect();
        assert_eq!(excluded, [(TargetKind::Native, "!/usr/bin/app:g")]);
    }
}
