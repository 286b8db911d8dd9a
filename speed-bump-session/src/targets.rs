//! The targets file: its lines, their patterns, and which target selects a function.
//!
//! [`ParsedTargets::load`] reads a file. If a line gives no kind, a file of the process may decide the kind.
//! The caller of [`ParsedTargets::decide`] says which paths are ELF files there, and gets [`Targets`].
//! Selecting takes two steps: first for a module ([`Targets::python_in`], [`Targets::native_in`],
//! [`Targets::usdt_in`]), then for every function, symbol or probe in it. This module does not know the file
//! system or the process.

mod caller;
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
pub mod native_callers;
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
    caller::Caller,
    candidates::Candidate,
    changed::TargetChange,
    error::{LineError, LineErrors, LineProblem, MAX_FILE_BYTES, MAX_LINE_BYTES, NoTarget, TargetsError},
    parsed::ParsedTargets,
    pattern::{Pattern, PatternError},
    selection::{NativeModule, PythonModule, Selection, UsdtModule},
};
use crate::units::Nanos;
pub use speed_bump_names::TargetKind;

/// The targets of one file in the order of their lines, and its exclusions.
#[derive(Clone, Debug)]
pub struct Targets {
    targets: Vec<Target>,
    exclusions: Vec<Exclusion>,
    /// Patterns for the files that the module `__main__` stands for.
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
    /// The line, without white space at either end.
    pub text: String,
    /// What the line selects.
    pub kind: TargetKind,
    /// What determined the kind.
    pub kind_reason: KindReason,
    /// `[kind:]module[:provider]:name` as written, without options.
    pub pattern: String,
    /// The pattern for the file: `co_filename`, or the path of an ELF file.
    pub module: Pattern,
    /// The pattern for the provider; present exactly if the kind is [`TargetKind::Usdt`].
    pub provider: Option<Pattern>,
    /// The pattern for the name of the function, symbol or probe.
    pub name: Pattern,
    /// The delay per trigger, at most [`Nanos::MAX_DELAY`], if the line gives one.
    pub delay: Option<Nanos>,
    /// How many calls there are per trigger, if the line says so.
    pub frequency: Option<NonZeroU64>,
    /// If the target only selects calls from some functions, selects these functions. `None` if the target
    /// selects calls from everywhere.
    pub caller: Option<Caller>,
    /// The name in reports. No two targets of the file have the same name.
    ///
    /// If the line gives no id, the id is the pattern and the caller. ` (line N)` follows if an earlier line
    /// has that id.
    pub id: String,
    /// Whether someone dropped the target from a running session. If so, the target selects nothing.
    pub is_dropped: bool,
}

/// A line that excludes functions from targets of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusion {
    /// The number of the line in the file, from 1.
    pub line: usize,
    /// The line, without white space at either end.
    pub text: String,
    /// The kind of the targets. The exclusion removes functions from these targets.
    pub kind: TargetKind,
    /// What determined the kind.
    pub kind_reason: KindReason,
    /// See [`Target::module`].
    pub module: Pattern,
    /// See [`Target::provider`].
    pub provider: Option<Pattern>,
    /// See [`Target::name`].
    pub name: Pattern,
}

/// What determined the kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindReason {
    /// The line names the kind.
    Written,
    /// The module part is the path of an ELF file.
    ElfFile,
    /// The last component of the module part is `*.so` or `*.so.*`.
    SharedObjectName,
    /// Nothing decides the kind, so it is Python.
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

/// The position of a target in its file, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetIndex(pub u32);

/// The position of an exclusion in its file, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExclusionIndex(pub u32);

impl Target {
    /// The pattern for callers, as written; `None` if the target selects calls from everywhere.
    pub fn caller_pattern(&self) -> Option<&str> {
        self.caller.as_ref().map(|caller| caller.pattern.as_str())
    }

    /// The pattern as written, and the option `caller=` if there is one.
    pub fn pattern_and_caller(&self) -> String {
        match self.caller_pattern() {
            Some(caller) => format!("{} caller={caller}", self.pattern),
            None => self.pattern.clone(),
        }
    }

    /// Whether the module pattern matches a Python file. We compare the pattern with the file's path, and, if
    /// the pattern allows this, with its dotted names.
    pub fn is_in_module(&self, file: &str) -> bool {
        let by_name = || dotted::DottedNames::new(file).iter().any(|name| self.module.matches(name));
        self.module.matches(file) || (dotted::applies(&self.module) && by_name())
    }
}

impl Targets {
    /// The targets, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (TargetIndex, &Target)> {
        // A file of at most MAX_FILE_BYTES has fewer lines than a u32 can count.
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

    /// Whether there is no target. The caller of the parser must have allowed that.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The warning to show when there is no target.
    pub fn no_target(&self) -> Option<&NoTarget> {
        self.no_target.as_ref()
    }

    /// Whether some line has this kind. If not, we need not search the process for this kind.
    pub fn has_kind(&self, kind: TargetKind) -> bool {
        self.targets.iter().any(|target| target.kind == kind && !target.is_dropped)
    }
}
