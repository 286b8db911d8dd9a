//! Decides for which mangled names a line may match a demangled form.
//!
//! Demangling all names of a large library takes seconds. Most lines name one function exactly, as the lines
//! of a sweep do. A demangled form consists of identifiers, and of words that have other characters around
//! them. The mangled name contains each identifier unchanged. So if a form is one identifier, the mangled
//! name contains it. If a form begins with `_Z` or `_R`, the mangled name contains an identifier that begins
//! so.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;

use super::selection::NativeModule;

/// Prefixes of mangled names of C++ and Rust.
const MANGLED: [&str; 2] = ["_Z", "_R"];

/// Texts that a mangled name must contain if a line matches one of its demangled forms.
#[derive(Clone, Debug)]
pub struct Forms {
    /// Finds these texts in a name; `None`: a line may match any form.
    parts: Option<AhoCorasick>,
}

impl NativeModule<'_> {
    /// The demangled forms that lines may match.
    pub fn forms(&self) -> Forms {
        let parts: Option<BTreeSet<&str>> = self.0.names().map(|name| part(name.exact()?)).collect();
        // One automaton searches for all lines, because there may be a thousand.
        Forms { parts: parts.and_then(|parts| AhoCorasick::new(parts).ok()) }
    }
}

impl Forms {
    /// Whether a line may match a demangled form of this name.
    pub fn may_matter(&self, mangled: &str) -> bool {
        let Some(parts) = &self.parts else { return true };
        // We leave out the first letter of the name's own prefix: otherwise we would find the prefix in every
        // name.
        let rest = mangled.get(1..).unwrap_or_default();
        MANGLED.iter().any(|prefix| mangled.starts_with(prefix)) && parts.is_match(rest)
    }
}

/// A text that a mangled name must contain if one of its demangled forms is `text`; `None` if unknown.
fn part(text: &str) -> Option<&str> {
    if let Some(prefix) = MANGLED.into_iter().find(|prefix| text.starts_with(prefix)) {
        return Some(prefix);
    }
    let is_identifier = |of: char| of.is_ascii_alphanumeric() || of == '_';
    (!text.is_empty() && text.chars().all(is_identifier)).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::{
        demangle::names_of,
        targets::{ParsedTargets, Targets},
    };

    fn targets(lines: &str) -> Targets {
        ParsedTargets::parse("t.txt", lines.as_bytes(), true).unwrap().decide(|_| true)
    }

    fn may_matter(lines: &str, mangled: &str) -> bool {
        targets(lines).native_in("/lib/a.so").forms().may_matter(mangled)
    }

    #[test]
    fn lines_that_name_symbols_need_no_forms() {
        let lines = "native:*:_ZN2ns1fEi\nnative:*:malloc\n!native:*:_RNvC1a1b";
        assert!(!may_matter(lines, "_ZN2ns1fEi") && !may_matter(lines, "malloc"));
        // The functions have the forms `malloc(int)` and `malloc`, and `_Zebra`.
        assert!(may_matter(lines, "_Z6malloci") && may_matter(lines, "_Z6_Zebrav"));
        for line in ["native:*:ns::f", "native:*:f*", "native:*:operator new", "!native:*:*g"] {
            assert!(may_matter(line, "_ZN2ns1fEi"), "{line}");
        }
    }

    /// Checks that each form of a name may match, if a line equals it.
    fn all_matter(mangled: &str) -> bool {
        names_of(mangled).skip(1).all(|form| {
            let part = part(&form);
            part.is_none_or(|part| mangled.get(1..).unwrap_or_default().contains(part))
        })
    }

    #[test]
    fn forms_of_all_kinds_matter_to_lines_that_are_written_so() {
        for mangled in [
            "_Z6malloci",
            "_Z6_Zebrav",
            "_Zli2_wPKcm",
            "_ZnwSt",
            "_ZSt4swapIiEvRT_S1_",
            "_ZTI3foo",
            "_ZGV1a",
            "_ZN12_GLOBAL__N_11fEv",
            "_ZN1AC1Ev",
            "_ZN1AcviEv",
            "_Z1fIiEvT_",
            "_ZL1fv",
            "_Z3foov.cold",
            "_ZN3foo17h0123456789abcdefE",
            "_RNvC3foo3bar",
            "_RNvC6_123foo3bar",
            "_RC3foo",
            "_RC1_Z",
            "_RNvCu8gdel_5qa6f",
        ] {
            assert!(all_matter(mangled), "{mangled}");
        }
    }

    proptest! {
        #[test]
        fn forms_of_any_names_matter(mangled in "_(Z|R|ZN|RNvC|RC|ZN3foo)[0-9A-Za-z_]{0,12}(E|v|i|)") {
            prop_assert!(all_matter(&mangled), "{}", mangled);
        }

        #[test]
        fn forms_of_identifiers_matter(name in "[_A-Za-z][_A-Za-z0-9]{0,9}", rust in any::<bool>()) {
            let separator = if name.starts_with('_') && rust { "_" } else { "" };
            let prefix = if rust { "_RC" } else { "_Z" };
            let mangled = format!("{prefix}{}{separator}{name}{}", name.len(), if rust { "" } else { "v" });
            prop_assert!(names_of(&mangled).any(|form| *form == *name), "{}", mangled);
            prop_assert!(may_matter(&format!("native:*:{name}"), &mangled), "{}", mangled);
        }
    }
}
