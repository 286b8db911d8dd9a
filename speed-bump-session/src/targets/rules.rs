//! All lines of one kind, with an index. The index finds the lines that match a file, and then a name in the
//! file, without trying each line.

use std::borrow::Cow;

use super::{
    Exclusion, ExclusionIndex, Selection, Target, TargetIndex, TargetKind,
    caller::Callers,
    dotted,
    dotted::DottedNames,
    main_module::modules,
    pattern::{Pattern, PatternSet},
};

/// The lines of one kind: first the targets, then the exclusions, each in the order of the file.
///
/// A line's number is its position in this order. A line for `__main__` has an additional number for each
/// file.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    outcomes: Vec<Outcome>,
    modules: Column,
    /// Module patterns that we also compare with dotted names (Python only).
    dotted: Column,
    pub(super) providers: Column,
    pub(super) names: Column,
    /// Name patterns with `@`, which we also compare with the version of a symbol.
    pub(super) versioned_names: Column,
    /// The last component of name patterns, for Python functions whose qualified name is unknown.
    pub(super) last_components: Column,
}

/// The effect of a matching line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The target, and the number of its caller. 0 means that the target selects calls from everywhere.
    Selects(TargetIndex, u32),
    Excludes(ExclusionIndex),
}

impl Rules {
    pub(super) fn new(
        kind: TargetKind,
        targets: &[Target],
        exclusions: &[Exclusion],
        main_files: &[Pattern],
    ) -> Self {
        let python = kind == TargetKind::Python;
        let native = kind == TargetKind::Native;
        let main_files = if python { main_files } else { &[] };
        let callers = Callers::of_kind(targets.iter(), kind);
        let mut outcomes = Vec::new();
        let mut lines: Vec<Columns<'_>> = Vec::new();
        let of_kind = |(_, target): &(u32, &Target)| target.kind == kind && !target.is_dropped;
        for (index, target) in (0..).zip(targets).filter(of_kind) {
            for module in modules(&target.module, main_files) {
                let caller = callers.number(target.caller.as_ref());
                outcomes.push(Outcome::Selects(TargetIndex(index), caller));
                lines.push((module, target.provider.as_ref(), &target.name));
            }
        }
        for (index, exclusion) in (0..).zip(exclusions).filter(|(_, exclusion)| exclusion.kind == kind) {
            for module in modules(&exclusion.module, main_files) {
                outcomes.push(Outcome::Excludes(ExclusionIndex(index)));
                lines.push((module, exclusion.provider.as_ref(), &exclusion.name));
            }
        }
        let last_component = |name: &Pattern| name.last_component().ok().map(Cow::into_owned);
        let column = |of: &dyn Fn(&Columns<'_>) -> Option<Pattern>| Column::new(lines.iter().map(of));
        Self {
            outcomes,
            modules: column(&|(module, ..)| Some((*module).clone())),
            dotted: column(&|(module, ..)| (python && dotted::applies(module)).then(|| (*module).clone())),
            providers: column(&|(_, provider, _)| provider.cloned()),
            names: column(&|(.., name)| Some((*name).clone())),
            versioned_names: column(&|(.., name)| {
                (native && name.as_str().contains('@')).then(|| (*name).clone())
            }),
            last_components: column(&|(.., name)| if python { last_component(name) } else { None }),
        }
    }

    /// The lines whose module pattern matches a file. We compare the pattern with the file's path, and, if
    /// the pattern allows this, with its dotted names.
    pub(super) fn in_module(&self, path: &str) -> RulesInModule<'_> {
        let mut lines: Vec<usize> = self.modules.matching(path).collect();
        if !self.dotted.is_empty() {
            for name in DottedNames::new(path).iter() {
                lines.extend(self.dotted.matching(name));
            }
        }
        lines.sort_unstable();
        lines.dedup();
        let mut present = Vec::new();
        if lines.len() > RulesInModule::FEW {
            present = vec![false; self.outcomes.len()];
            for &line in &lines {
                if let Some(present) = present.get_mut(line) {
                    *present = true;
                }
            }
        }
        RulesInModule { rules: self, lines, present }
    }
}

/// The patterns of a line: module, provider and name.
type Columns<'a> = (&'a Pattern, Option<&'a Pattern>, &'a Pattern);

/// One pattern of every line: for example, all name patterns.
#[derive(Clone, Debug)]
pub(super) struct Column {
    set: PatternSet,
    /// The pattern of each line; `None` if the line has none in this column.
    pattern_of: Vec<Option<usize>>,
    /// The lines that have each pattern.
    lines_of: Vec<Vec<usize>>,
}

impl Column {
    fn new(patterns: impl Iterator<Item = Option<Pattern>>) -> Self {
        let patterns: Vec<Option<Pattern>> = patterns.collect();
        let (set, numbers) = PatternSet::new(patterns.iter().flatten());
        let mut numbers = numbers.into_iter();
        let pattern_of: Vec<Option<usize>> =
            patterns.iter().map(|pattern| pattern.as_ref().and_then(|_| numbers.next())).collect();
        let mut lines_of = vec![Vec::new(); set.len()];
        for (line, pattern) in pattern_of.iter().enumerate() {
            if let Some(lines) = pattern.and_then(|pattern| lines_of.get_mut(pattern)) {
                lines.push(line);
            }
        }
        Self { set, pattern_of, lines_of }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set.len() == 0
    }

    fn matching(&self, text: &str) -> impl Iterator<Item = usize> {
        let patterns = self.set.matching(text).into_iter();
        patterns.filter_map(|pattern| self.lines_of.get(pattern)).flatten().copied()
    }

    /// The pattern of a line in this column, if it has one.
    fn pattern(&self, line: usize) -> Option<&Pattern> {
        self.pattern_of.get(line).copied().flatten().and_then(|pattern| self.set.get(pattern))
    }

    /// The lines whose pattern has exactly this text.
    fn written(&self, text: &str) -> impl Iterator<Item = usize> {
        let pattern = self.set.written(text);
        pattern.and_then(|pattern| self.lines_of.get(pattern)).into_iter().flatten().copied()
    }

    pub(super) fn matches(&self, line: usize, text: &str) -> bool {
        self.pattern_of.get(line).copied().flatten().is_some_and(|pattern| self.set.matches(pattern, text))
    }
}

/// The lines whose module pattern matches one file.
#[derive(Clone, Debug)]
pub(super) struct RulesInModule<'t> {
    pub(super) rules: &'t Rules,
    /// The numbers of the lines, ascending, each once.
    lines: Vec<usize>,
    /// For each line of the kind, whether the line is in `lines`. Empty if there are few lines.
    present: Vec<bool>,
}

impl RulesInModule<'_> {
    /// Up to this number of lines, we try each line: this is faster than the index of all lines.
    const FEW: usize = 16;

    /// Whether there is no target among the lines.
    pub(super) fn is_empty(&self) -> bool {
        // Targets have lower numbers than exclusions.
        let first = self.lines.first().and_then(|&line| self.rules.outcomes.get(line));
        !matches!(first, Some(Outcome::Selects(..)))
    }

    /// The name patterns of these lines.
    pub(super) fn names(&self) -> impl Iterator<Item = &Pattern> {
        self.lines.iter().filter_map(|line| self.rules.names.pattern(*line))
    }

    /// The lines of this module whose pattern in `column` matches `text`, in no particular order.
    pub(super) fn matching(&self, column: &Column, text: &str) -> Vec<usize> {
        if self.present.is_empty() {
            return self.lines.iter().copied().filter(|&line| column.matches(line, text)).collect();
        }
        column.matching(text).filter(|&line| self.present.get(line) == Some(&true)).collect()
    }

    /// The lines of this module whose pattern in `column` is exactly `text`. We ignore white space at the
    /// ends of `text`, because a line cannot have it there.
    pub(super) fn written(&self, column: &Column, text: &str) -> Vec<usize> {
        let is_present = |line: &usize| match self.present.as_slice() {
            [] => self.lines.binary_search(line).is_ok(),
            present => present.get(*line) == Some(&true),
        };
        column.written(text.trim()).filter(is_present).collect()
    }

    /// The selection if these lines match.
    pub(super) fn decide(&self, mut lines: Vec<usize>) -> Selection {
        lines.sort_unstable();
        lines.dedup();
        let mut selection = Selection::default();
        let mut before = None;
        // The callers for which an earlier target selects the calls; 0 means all calls.
        let mut taken = Vec::new();
        for outcome in lines.into_iter().filter_map(|line| self.rules.outcomes.get(line)) {
            match *outcome {
                // A line may match twice: by its own module, and by a file that `__main__` stands for. These
                // matches have adjacent numbers.
                Outcome::Selects(target, _) if before == Some(target) => {}
                Outcome::Selects(target, caller) => {
                    before = Some(target);
                    if taken.contains(&0) || taken.contains(&caller) {
                        selection.shadowed.push(target);
                    } else if selection.winner.is_none() {
                        selection.winner = Some(target);
                    } else {
                        selection.for_other_callers.push(target);
                    }
                    taken.push(caller);
                }
                Outcome::Excludes(exclusion) => {
                    // Exclusions come last, so we have seen all targets by now.
                    if let Some(winner) = selection.winner.take() {
                        selection.shadowed.push(winner);
                        selection.shadowed.append(&mut selection.for_other_callers);
                        selection.shadowed.sort_unstable();
                        selection.excluded_by = Some(exclusion);
                    }
                    break;
                }
            }
        }
        selection
    }
}
