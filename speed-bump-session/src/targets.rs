//! The targets file: lines, patterns, and which target selects a function.
//!
//! [`ParsedTargets::load`] reads a file. The kind of a line that writes none may depend on a file of the
//! process: [`ParsedTargets::decide`] is told which paths are ELF files there, and makes [`Targets`]. What
//! those select is then asked in two steps: once for a module ([`Targets::python_in`],
//! [`Targets::native_in`], [`Targets::usdt_in`]), and for every function, symbol or probe in it. The file
//! system and the process are not known here.

mod candidates;
#[cfg(test)]
mod cases;
mod changed;
mod dotted;
mod error;
pub mod exact;
mod file;
mod forms;
mod line;
mod main_module;
mod options;
mod parsed;
mod pattern;
mod rules;
mod selection;
pub mod selector;
pub mod source;

use std::{fmt, num::NonZeroU64};

use self::rules::Rules;
pub use self::{
    candidates::Candidate,
    changed::TargetChange,
    error::{LineError, LineErrors, LineProblem, MAX_FILE_BYTES, MAX_LINE_BYTES, NoTarget, TargetsError},
    parsed::ParsedTargets,
    pattern::{Pattern, PatternError},
    selection::{NativeModule, PythonModule, Selection, UsdtModule},
};
use crate::units::Nanos;
pub use speed_bump_names::TargetKind;

/// The targets of one file, in its order, and what it excludes.
#[derive(Clone, Debug)]
pub struct Targets {
    targets: Vec<Target>,
    exclusions: Vec<Exclusion>,
    /// What else the module `__main__` stands for.
    main_files: Vec<Pattern>,
    no_target: Option<NoTarget>,
    python: Rules,
    native: Rules,
    usdt: Rules,
}

/// One line that selects functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The number of the line in the file, from 1.
    pub line: usize,
    /// The line, without white space at its ends.
    pub text: String,
    /// What the line selects.
    pub kind: TargetKind,
    /// How the kind was found.
    pub kind_reason: KindReason,
    /// `[kind:]module[:provider]:name` as written, without options.
    pub pattern: String,
    /// Matched against the file: `co_filename` or the path of an ELF file.
    pub module: Pattern,
    /// Matched against the provider; there is one exactly when the kind is [`TargetKind::Usdt`].
    pub provider: Option<Pattern>,
    /// Matched against the name of the function, symbol or probe.
    pub name: Pattern,
    /// The delay per trigger, at most [`Nanos::MAX_DELAY`], when the line gives one.
    pub delay: Option<Nanos>,
    /// Every how many calls there is a trigger, when the line says it.
    pub frequency: Option<NonZeroU64>,
    /// The name for reports; no other target of the file has it.
    ///
    /// It is the pattern when the line gives none, followed by ` (line N)` when an earlier line has that id.
    pub id: String,
    /// Whether it was dropped from a session that runs: it selects nothing any more.
    pub is_dropped: bool,
}

/// One line that takes functions away from the targets of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The number of the line in the file, from 1.
    pub line: usize,
    /// The line, without white space at its ends.
    pub text: String,
    /// The kind of target that it takes functions away from.
    pub kind: TargetKind,
    /// How the kind was found.
    pub kind_reason: KindReason,
    /// As in [`Target::module`].
    pub module: Pattern,
    /// As in [`Target::provider`].
    pub provider: Option<Pattern>,
    /// As in [`Target::name`].
    pub name: Pattern,
}

/// How the kind of a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindReason {
    /// The line names it.
    Written,
    /// The module part is the path of an ELF file.
    ElfFile,
    /// The last component of the module part is `*.so` or `*.so.*`.
    SharedObjectName,
    /// Nothing speaks for another kind than Python.
    Default,
}

impl fmt::Display for KindReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Written => "as written",
            Self::ElfFile => "its module is an ELF file",
            Self::SharedObjectName => "its module is named like a shared object",
            Self::Default => "no kind written, and its module names no ELF file",
        })
    }
}

/// The place of a target among those of its file, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetIndex(pub u32);

/// The place of an exclusion among those of its file, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExclusionIndex(pub u32);

impl Target {
    /// Whether its module pattern matches a Python file, also by its dotted names where they apply.
    pub fn is_in_module(&self, file: &str) -> bool {
        let by_name = || dotted::DottedNames::of(file).iter().any(|name| self.module.matches(name));
        self.module.matches(file) || (dotted::applies(&self.module) && by_name())
    }
}

impl Targets {
    /// The targets, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (TargetIndex, &Target)> {
        // A file of MAX_FILE_BYTES cannot have more lines than a u32 counts.
        self.targets.iter().enumerate().map(|(at, target)| (TargetIndex(at as u32), target))
    }

    /// The target with this index; `None` when the index comes from another file.
    pub fn get(&self, index: TargetIndex) -> Option<&Target> {
        self.targets.get(index.0 as usize)
    }

    /// The exclusion with this index; `None` when the index comes from another file.
    pub fn exclusion(&self, index: ExclusionIndex) -> Option<&Exclusion> {
        self.exclusions.get(index.0 as usize)
    }

    /// The exclusions, in the order of the file.
    pub fn exclusions(&self) -> &[Exclusion] {
        &self.exclusions
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is no target, which whoever read them has to have allowed.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The warning to show when there is no target.
    pub fn no_target(&self) -> Option<&NoTarget> {
        self.no_target.as_ref()
    }

    /// Whether some line has this kind: what is not asked for need not be looked up in the process.
    pub fn has_kind(&self, kind: TargetKind) -> bool {
        self.targets.iter().any(|target| target.kind == kind && !target.is_dropped)
    }
}
