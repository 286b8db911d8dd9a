//! Finds the target that selects a function: first for a file, then for every name in it.

use std::collections::HashSet;

use super::{ExclusionIndex, TargetIndex, Targets, rules::RulesInModule};

/// The effect of the targets on one function, symbol or probe. If several targets select a call, the first
/// one wins. An exclusion overrides all targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The target whose delay, frequency and id apply; `None` if no target selects the function, or an
    /// exclusion matches it.
    pub winner: Option<TargetIndex>,
    /// If the winner only selects calls from some functions, these are the targets for other calls, in the
    /// order in which we try them.
    pub for_other_callers: Vec<TargetIndex>,
    /// The other matching targets, in the order of the file: an earlier target takes their calls, or an
    /// exclusion takes all calls.
    pub shadowed: Vec<TargetIndex>,
    /// The first exclusion that matches, if a target would select the function without it.
    pub excluded_by: Option<ExclusionIndex>,
}

impl Targets {
    /// The target for a function whose callers we do not know. This is also `None` if the target only selects
    /// calls from some functions, because we cannot tell the calls apart.
    pub fn for_all_callers(&self, selection: &Selection) -> Option<TargetIndex> {
        selection.winner.filter(|winner| self.get(*winner).is_some_and(|target| target.caller.is_none()))
    }

    /// The targets that can select a Python function in the file with this `co_filename`.
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
    /// Whether no target can select a function in this file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The selection of the function with this `co_qualname`.
    pub fn select(&self, qualname: &str) -> Selection {
        self.0.decide(self.0.matching(&self.0.rules.names, qualname))
    }

    /// The selection of a function if we only know its `co_name`, for example from the arguments of
    /// `python:function__entry`.
    ///
    /// Compares the name with the last component of each name pattern: the part after its last `.`, where a
    /// `.` within `[...]` does not count. We compare a pattern without `.` as a whole. So this is a guess,
    /// which can select too much or too little, and the caller must tell the user:
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
    /// Whether no target can select a symbol in this file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The selection of each symbol of the file. Each symbol comes with all of its names: mangled, demangled
    /// in any form, aliases. Leaves out symbols that no line matches.
    ///
    /// If some symbol has exactly the name that a line gives, the line means that symbol: `f[abi:cxx11](int)`
    /// then has no class of characters. The line is a pattern only if no symbol has that name. So the caller
    /// must pass all symbols of a file at once.
    ///
    /// A name may end in `@VERSION` or `@@VERSION`. We compare a pattern without `@` with the part before the
    /// version. A pattern with `@` may also match the name and its version, with `@` or `@@` between them.
    /// `@@` marks the default version, and the user need not know which version that is.
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

    /// The selection of one symbol, as if it were the only symbol of its file.
    pub fn select<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Selection {
        self.select_all([((), names)]).pop().map(|((), selection)| selection).unwrap_or_default()
    }

    /// The lines that match a symbol.
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

/// The lines that match a symbol. A line occurs once for every name that it matches.
#[derive(Debug, Default)]
struct LinesAbout {
    /// Lines whose text equals a name of the symbol.
    literally: Vec<usize>,
    /// Lines whose pattern matches a name of the symbol.
    as_pattern: Vec<usize>,
}

/// The targets that can select a USDT probe of one ELF file.
#[derive(Clone, Debug)]
pub struct UsdtModule<'t>(RulesInModule<'t>);

impl UsdtModule<'_> {
    /// Whether no target can select a probe in this file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The selection of the probe.
    pub fn select(&self, provider: &str, name: &str) -> Selection {
        let mut lines = self.0.matching(&self.0.rules.names, name);
        lines.retain(|&line| self.0.rules.providers.matches(line, provider));
        self.0.decide(lines)
    }
}

/// Splits a name and its version: `memcpy@@GLIBC_2.14` is `memcpy` and `GLIBC_2.14`. A name that starts with
/// `@` has no version.
fn split_version(name: &str) -> Option<(&str, &str)> {
    let (base, version) = name.split_once('@').filter(|(base, _)| !base.is_empty())?;
    Some((base, version.strip_prefix('@').unwrap_or(version)))
}

#[cfg(test)]
mod tests;
