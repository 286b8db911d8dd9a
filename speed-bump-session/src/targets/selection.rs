//! Which target selects a function: asked once for a file, then for every name in it.

use std::collections::HashSet;

use super::{ExclusionIndex, TargetIndex, Targets, rules::RulesInModule};

/// What the targets make of one function, symbol or probe. The first line that selects it wins; an exclusion
/// wins over all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The target whose delay, frequency and id apply; `None` when nothing selects it, or an exclusion does.
    pub winner: Option<TargetIndex>,
    /// The targets that match too and do not apply, in the order of the file: those after the winner, or all
    /// of them when it is excluded.
    pub shadowed: Vec<TargetIndex>,
    /// The first exclusion that matches, when it takes the function away from a target.
    pub excluded_by: Option<ExclusionIndex>,
}

impl Selection {
    /// Whether the target is the last that was found to match.
    pub(super) fn ends_with(&self, target: TargetIndex) -> bool {
        self.shadowed.last().or(self.winner.as_ref()) == Some(&target)
    }
}

impl Targets {
    /// The targets that can select a Python function in the file that `co_filename` calls `file`.
    pub fn python_in(&self, file: &str) -> PythonModule<'_> {
        PythonModule(self.python.in_module(file))
    }

    /// The targets that can select a native function in the ELF file at `path`, as the process sees it.
    pub fn native_in(&self, path: &str) -> NativeModule<'_> {
        NativeModule(self.native.in_module(path))
    }

    /// The targets that can select a USDT probe in the ELF file at `path`, as the process sees it.
    pub fn usdt_in(&self, path: &str) -> UsdtModule<'_> {
        UsdtModule(self.usdt.in_module(path))
    }
}

/// The targets that can select a function in one Python file.
#[derive(Clone, Debug)]
pub struct PythonModule<'t>(RulesInModule<'t>);

impl PythonModule<'_> {
    /// Whether no target selects anything here, so that there is no need to ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What becomes of the function that `co_qualname` calls `qualname`.
    pub fn select(&self, qualname: &str) -> Selection {
        self.0.decide(self.0.matching(&self.0.rules.names, qualname))
    }

    /// What becomes of a function of which only `co_name` is known, as in the arguments of
    /// `python:function__entry`.
    ///
    /// Only the last component of each name pattern is matched: what follows its last `.`, where a `.` within
    /// `[...]` does not count; all of a pattern without `.`. So this guesses, in both directions, and whoever
    /// uses it has to say so:
    /// - `A.f` also selects `B.f`, `A.*` and `*.<locals>.*` select every function of the file, and `!A.f`
    ///   excludes `B.f`;
    /// - `*Attention*` does not select `SelfAttention.forward`, because its last component is `*Attention*`
    ///   as a whole, and `*<locals>*` selects nothing.
    pub fn select_by_last_component(&self, co_name: &str) -> Selection {
        self.0.decide(self.0.matching(&self.0.rules.last_components, co_name))
    }
}

/// The targets that can select a symbol of one ELF file.
#[derive(Clone, Debug)]
pub struct NativeModule<'t>(pub(super) RulesInModule<'t>);

impl NativeModule<'_> {
    /// Whether no target selects anything here, so that there is no need to ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What becomes of each symbol of the file, each with all of its names: mangled, demangled in any form,
    /// aliases. Symbols that no line is about are left out.
    ///
    /// A line whose name is a name of some symbol to the letter is about that name: `f[abi:cxx11](int)` is no
    /// class of characters then. Only where no symbol is called so is it a pattern. So all symbols of a file
    /// have to be asked for at once.
    ///
    /// A name may end in `@VERSION` or `@@VERSION`. A pattern without `@` is matched against the name before
    /// that. A pattern with `@` is matched against the name with its version too, after one `@` and after
    /// two: `@@` says that the version is the default one, which is nothing that the user of a process has to
    /// know.
    pub fn select_all<S, N: AsRef<str>>(
        &self,
        symbols: impl IntoIterator<Item = (S, impl IntoIterator<Item = N>)>,
    ) -> Vec<(S, Selection)> {
        let mut literal = HashSet::new();
        let mut matched = Vec::new();
        for (symbol, names) in symbols {
            let lines = self.lines_about(names);
            literal.extend(lines.literally.iter().copied());
            if !lines.literally.is_empty() || !lines.as_pattern.is_empty() {
                matched.push((symbol, lines));
            }
        }
        let decided = matched.into_iter().map(|(symbol, mut lines)| {
            lines.as_pattern.retain(|line| !literal.contains(line));
            lines.as_pattern.append(&mut lines.literally);
            (symbol, self.0.decide(lines.as_pattern))
        });
        decided.filter(|(_, selection)| *selection != Selection::default()).collect()
    }

    /// What becomes of a symbol of a file that has no other, as far as is known.
    pub fn select<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Selection {
        self.select_all([((), names)]).pop().map(|((), selection)| selection).unwrap_or_default()
    }

    /// The lines that one symbol has to do with.
    fn lines_about<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> LinesAbout {
        let rules = self.0.rules;
        let mut about = LinesAbout::default();
        for name in names {
            let name = name.as_ref();
            about.literally.extend(self.0.written(&rules.names, name));
            let Some((base, version)) = split_version(name) else {
                about.as_pattern.extend(self.0.matching(&rules.names, name));
                continue;
            };
            about.as_pattern.extend(self.0.matching(&rules.names, base));
            if !rules.versioned_names.is_empty() {
                for at in ["@", "@@"] {
                    let name = format!("{base}{at}{version}");
                    about.as_pattern.extend(self.0.matching(&rules.versioned_names, &name));
                }
            }
        }
        about
    }
}

/// The lines that one symbol has to do with, each as often as it has names that are like it.
#[derive(Debug, Default)]
struct LinesAbout {
    /// A name of it is what the line says.
    literally: Vec<usize>,
    /// A name of it matches the line's pattern.
    as_pattern: Vec<usize>,
}

/// The targets that can select a USDT probe of one ELF file.
#[derive(Clone, Debug)]
pub struct UsdtModule<'t>(RulesInModule<'t>);

impl UsdtModule<'_> {
    /// Whether no target selects anything here, so that there is no need to ask.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What becomes of the probe.
    pub fn select(&self, provider: &str, name: &str) -> Selection {
        let mut lines = self.0.matching(&self.0.rules.names, name);
        lines.retain(|&line| self.0.rules.providers.matches(line, provider));
        self.0.decide(lines)
    }
}

/// `memcpy@@GLIBC_2.14` is `memcpy` and `GLIBC_2.14`; a name that starts with `@` has no version.
fn split_version(name: &str) -> Option<(&str, &str)> {
    let (base, version) = name.split_once('@').filter(|(base, _)| !base.is_empty())?;
    Some((base, version.strip_prefix('@').unwrap_or(version)))
}

#[cfg(test)]
mod tests;
