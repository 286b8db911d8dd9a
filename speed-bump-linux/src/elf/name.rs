//! Names of functions: mangled, versioned and demangled forms, and which of several aliases comes first.

use std::{borrow::Cow, cmp::Reverse, collections::HashMap};

use speed_bump_names::demangle::demangle;

/// Where we found a name. The tables are sorted by how long names survive: `strip` keeps exported names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// `.dynsym`.
    Dynamic,
    /// `.symtab`.
    Symbols,
    /// The `.symtab` inside `.gnu_debugdata`.
    MiniDebugInfo,
    /// The `.symtab` of a separate debug file.
    DebugFile,
    /// `.gopclntab` of a Go program.
    GoTable,
}

/// Who can use a name (`STB_*`). `STB_GNU_UNIQUE` counts as global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binding {
    /// All files.
    Global,
    /// All files can use the name, unless another file defines it too.
    Weak,
    /// Its own source file only.
    Local,
}

/// The version of an exported or imported symbol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolVersion {
    /// The text, such as `GLIBC_2.14`.
    pub name: Box<str>,
    /// Whether the symbol is written `name@@version`: new programs are linked with this version.
    pub default: bool,
}

/// One name of a function.
#[derive(Clone, Debug)]
pub struct SymbolName {
    text: Box<str>,
    version: Option<SymbolVersion>,
    binding: Binding,
    table: TableKind,
}

impl SymbolName {
    /// Takes a name as in a table. In `.symtab` the version is part of the text (`memcpy@@GLIBC_2.14`).
    pub fn new(text: &[u8], version: Option<SymbolVersion>, binding: Binding, table: TableKind) -> Self {
        let text = printable(text);
        let (text, version) = match (version, text.split_once('@')) {
            (None, Some((name, version))) if !name.is_empty() => {
                let default = version.starts_with('@');
                let version = SymbolVersion { name: version.trim_start_matches('@').into(), default };
                (name.into(), Some(version))
            }
            (version, _) => (text, version),
        };
        Self { text, version, binding, table }
    }

    /// Takes a name as Go writes it. Names of Go have no version.
    pub(super) fn of_go(text: &[u8]) -> Self {
        Self { text: printable(text), version: None, binding: Binding::Local, table: TableKind::GoTable }
    }

    /// The name as in the symbol table, without a version. This replaces control characters and bytes that
    /// are not UTF-8.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The version of the name, if it has one.
    pub fn version(&self) -> Option<&SymbolVersion> {
        self.version.as_ref()
    }

    /// Who can use the name.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Where we found the name.
    pub fn table(&self) -> TableKind {
        self.table
    }

    /// The length of the name's text and version in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        self.text.len() + self.version.as_ref().map_or(0, |version| version.name.len())
    }

    /// The full name in the notation of its source language; `None` if it is not mangled.
    pub fn demangled(&self) -> Option<Box<str>> {
        demangle(&self.text).into_iter().next()
    }

    /// The names `name@version`, and for a default version also `name@@version`, because both are in use.
    fn versioned(&self) -> impl Iterator<Item = String> {
        self.version.iter().flat_map(|version| {
            let separators: &[&str] = if version.default { &["@@", "@"] } else { &["@"] };
            separators.iter().map(|separator| format!("{}{separator}{}", self.text, version.name))
        })
    }

    /// All forms that a user may write for this name: plain, with its version, demangled. The iterator makes
    /// the later, costlier forms when they are needed. We do not store them, because short names can have
    /// very long forms.
    pub fn candidates(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.candidates_where(|_| true)
    }

    /// Like [`candidates`](Self::candidates), but only demangles names for which `demangles` returns true.
    /// Demangling takes longer than all other work on a name.
    pub fn candidates_where(&self, demangles: impl Fn(&str) -> bool) -> impl Iterator<Item = Cow<'_, str>> {
        let plain = std::iter::once(Cow::Borrowed(&*self.text));
        // `flat_map` over a single element demangles only when needed.
        let wanted = std::iter::once(self).filter(move |name| demangles(&name.text));
        let demangled = wanted.flat_map(|name| demangle(&name.text));
        plain.chain(self.versioned().map(Cow::Owned)).chain(demangled.map(|form| Cow::Owned(form.into())))
    }

    /// Sorts the best name first: visible before local, exported before others, few leading underscores,
    /// strong before weak, short before long. All other fields follow, to make the order total.
    fn rank(&self) -> impl Ord + '_ {
        let underscores = self.text.len() - self.text.trim_start_matches('_').len();
        let mangled = self.text.starts_with("_Z") || self.text.starts_with("_R");
        (
            self.binding == Binding::Local,
            self.table,
            if mangled { 0 } else { underscores },
            self.binding,
            self.text.len(),
            &self.text,
            self.version.as_ref().map(|version| (Reverse(version.default), &version.name)),
        )
    }
}

/// The most versions of one name at one address that we store. Libraries have one or two.
const VERSIONS_LIMIT: usize = 64;

/// The names of one function, the best one first. There is at least one name.
#[derive(Clone, Debug)]
pub struct FunctionNames(Vec<SymbolName>);

impl FunctionNames {
    /// Sorts the names, and drops duplicates. A name is a duplicate if another table has it too, or if it
    /// occurs elsewhere with a version. Returns `None` if there are no names.
    pub(super) fn new(mut names: Vec<SymbolName>) -> Option<Self> {
        names.sort_by(|a, b| a.rank().cmp(&b.rank()));
        let mut kept: Vec<SymbolName> = Vec::with_capacity(names.len());
        // The positions of each text in `kept`. We store them because a file can give thousands of names to
        // one address.
        let mut places: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        for name in names {
            let same = places.entry(name.text.clone()).or_default();
            let known = |place: &usize| name.version.is_none() || kept[*place].version == name.version;
            if same.len() == VERSIONS_LIMIT || same.iter().any(known) {
                continue;
            }
            match same.iter().find(|place| kept[**place].version.is_none()) {
                Some(place) => kept[*place].version = name.version,
                None => {
                    same.push(kept.len());
                    kept.push(name);
                }
            }
        }
        (!kept.is_empty()).then_some(Self(kept))
    }

    /// The name that we show.
    pub fn canonical(&self) -> &SymbolName {
        &self.0[0]
    }

    /// An estimate of the memory that the names take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|name| size_of::<SymbolName>() + name.text_bytes()).sum()
    }

    /// All names, the canonical one first.
    pub fn iter(&self) -> impl Iterator<Item = &SymbolName> {
        self.0.iter()
    }

    /// All forms that a user may write for this function. See [`SymbolName::candidates`].
    pub fn candidates(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.0.iter().flat_map(SymbolName::candidates)
    }

    /// See [`SymbolName::candidates_where`].
    pub fn candidates_where(
        &self,
        demangles: impl Fn(&str) -> bool + Copy,
    ) -> impl Iterator<Item = Cow<'_, str>> {
        self.0.iter().flat_map(move |name| name.candidates_where(demangles))
    }
}

/// Makes text of a file printable: any user may have written the file, and root's terminal shows the text.
pub(super) fn printable(bytes: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(bytes);
    if text.chars().any(char::is_control) {
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn name(text: &str, version: Option<(&str, bool)>, binding: Binding, table: TableKind) -> SymbolName {
        let version = version.map(|(name, default)| SymbolVersion { name: name.into(), default });
        SymbolName::new(text.as_bytes(), version, binding, table)
    }

    #[test]
    fn versions_are_candidates() {
        let new = name("memcpy", Some(("GLIBC_2.14", true)), Binding::Global, TableKind::Dynamic);
        let all: Vec<_> = new.candidates().collect();
        assert_eq!(all, ["memcpy", "memcpy@@GLIBC_2.14", "memcpy@GLIBC_2.14"]);
        let old = name("memcpy", Some(("GLIBC_2.2.5", false)), Binding::Global, TableKind::Dynamic);
        assert_eq!(old.candidates().collect::<Vec<_>>(), ["memcpy", "memcpy@GLIBC_2.2.5"]);
        // Names as in `.symtab`.
        let text = name("memcpy@@GLIBC_2.14", None, Binding::Global, TableKind::Symbols);
        assert_eq!((text.as_str(), text.version().unwrap().default), ("memcpy", true));
        let odd = name("@", None, Binding::Local, TableKind::Symbols);
        assert_eq!((odd.as_str(), odd.version()), ("@", None));
    }

    #[test]
    fn demangled_forms_come_after_the_name() {
        let name = name("_ZN2ns1fEi", None, Binding::Global, TableKind::Dynamic);
        assert_eq!(name.candidates().collect::<Vec<_>>(), ["_ZN2ns1fEi", "ns::f(int)", "ns::f"]);
        assert_eq!(name.demangled().as_deref(), Some("ns::f(int)"));
    }

    #[test]
    fn the_best_name_is_canonical() {
        use {Binding::*, TableKind::*};
        let names = FunctionNames::new(vec![
            name("aaa_local", None, Local, Symbols),
            name("__write", Some(("GLIBC_2.2.5", true)), Global, Dynamic),
            name("write", None, Weak, Symbols),
            name("write", Some(("GLIBC_2.2.5", true)), Weak, Dynamic),
            name("hidden", None, Global, DebugFile),
        ])
        .unwrap();
        let order: Vec<_> = names.iter().map(SymbolName::as_str).collect();
        assert_eq!(order, ["write", "__write", "hidden", "aaa_local"]);
        assert!(FunctionNames::new(Vec::new()).is_none());
    }

    #[test]
    fn underscores_count_against_a_name_but_for_those_of_a_mangling() {
        use {Binding::*, TableKind::*};
        for (best, other) in [
            ("a_much_longer_name", "_f"),
            ("_f", "__f"),
            ("_Z1fv", "a_longer_name"),
            ("_RNvC1a1f", "a_longer_name"),
            ("f", "_Z1fv"),
        ] {
            let names = [other, best].map(|text| name(text, None, Global, Symbols));
            let names = FunctionNames::new(names.into()).unwrap();
            assert_eq!(names.canonical().as_str(), best);
        }
    }

    #[test]
    fn a_version_found_late_is_kept() {
        use {Binding::*, TableKind::*};
        // The strong name without a version sorts before the weak name with one.
        let names = FunctionNames::new(vec![
            name("f", None, Global, Dynamic),
            name("f", Some(("V1", true)), Weak, Dynamic),
        ])
        .unwrap();
        assert_eq!(names.iter().count(), 1);
        assert_eq!(&*names.canonical().version().unwrap().name, "V1");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(&*printable(b"a\x1b[2Jb\x00\xff"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
        assert_eq!(&*printable("naïve".as_bytes()), "naïve");
    }
}
