//! Demangling of C++ and Rust names, bounded in size, into the forms that people write.

use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions};

use crate::NAME_BYTES;

/// Longest mangled name that we demangle, in bytes; longer names match as they are.
const MANGLED_LIMIT: usize = 1 << 15;
/// Longest demangled form, in bytes. Substitutions make the output exponential in the input.
const DEMANGLED_LIMIT: usize = 1 << 16;

/// All forms of a mangled name, the one to display first; none for names that are not mangled.
///
/// - C++: `int ns::f<int>(int)`, `ns::f<int>(int)`, `ns::f<int>`.
/// - Rust: `path::f` and, with the hash or crate disambiguator, `path::f::h0123456789abcdef`.
pub fn demangle(name: &str) -> Box<[Box<str>]> {
    if name.len() > MANGLED_LIMIT {
        return Box::default();
    }
    let mut forms = Vec::new();
    if is_rust(name) {
        if let Ok(symbol) = rustc_demangle::try_demangle(name) {
            push(&mut forms, |out| write!(out, "{symbol:#}"));
            push(&mut forms, |out| write!(out, "{symbol}"));
        }
    } else if name.starts_with("_Z")
        && let Ok(symbol) = BorrowedSymbol::new(name.as_bytes())
    {
        let bare = DemangleOptions::new().no_return_type().no_params();
        let bare = write_bounded(|out| symbol.structured_demangle(out, &bare));
        push(&mut forms, |out| symbol.structured_demangle(out, &DemangleOptions::new()));
        // Only templates have a return type; a form that begins with the name has none.
        let has_return_type = match (forms.first(), &bare) {
            (Some(full), Some(bare)) => {
                full.strip_prefix(bare.as_str()).is_none_or(|rest| !rest.starts_with('('))
            }
            _ => true,
        };
        if has_return_type {
            push(&mut forms, |out| symbol.structured_demangle(out, &DemangleOptions::new().no_return_type()));
        }
        push(&mut forms, |out| bare.as_deref().map_or(Err(fmt::Error), |bare| out.write_str(bare)));
    }
    forms.into()
}

/// A symbol, and all its other forms.
pub fn names_of(symbol: &str) -> impl Iterator<Item = Box<str>> {
    std::iter::once(symbol.into()).chain(demangle(symbol))
}

/// A symbol in its source language, for display; `None` if it is not mangled, or the form is longer than a
/// line.
pub fn for_people(symbol: &str) -> Option<String> {
    let full = demangle(symbol).into_iter().next()?;
    (full.len() <= NAME_BYTES).then(|| full.into())
}

/// Rust's two manglings. The older one is valid C++ but for its hash (RFC 2603, "Current mangling scheme").
fn is_rust(name: &str) -> bool {
    if name.starts_with("_R") {
        return true;
    }
    let Some(hash) = name.strip_prefix("_ZN").and_then(|rest| rest.find("17h").map(|at| (rest, at))) else {
        return false;
    };
    // The hash is the last path component; an earlier `17h` may be part of a name.
    let (rest, first) = hash;
    let ends_with_hash = |at: usize| {
        let digits = rest.as_bytes().get(at + 3..at + 19);
        let ended = rest.as_bytes().get(at + 19) == Some(&b'E');
        ended && digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    ends_with_hash(first) || rest.rfind("17h").is_some_and(ends_with_hash)
}

/// Adds a form, if it can be written in full and is new. Rust's newer mangling can encode any characters,
/// also control characters; no compiler does that, so we drop such forms.
fn push(forms: &mut Vec<Box<str>>, write: impl FnOnce(&mut Bounded) -> fmt::Result) {
    let is_new = |form: &String| !forms.iter().any(|other| **other == **form);
    let form = write_bounded(write).filter(|form| !form.contains(char::is_control) && is_new(form));
    forms.extend(form.map(Into::into));
}

fn write_bounded(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> Option<String> {
    let mut out = Bounded(String::new());
    write(&mut out).ok()?;
    Some(out.0).filter(|form| !form.is_empty())
}

/// A string that refuses to grow beyond [`DEMANGLED_LIMIT`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > DEMANGLED_LIMIT {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn forms(name: &str) -> Vec<String> {
        demangle(name).iter().map(|form| form.to_string()).collect()
    }

    #[test]
    fn people_see_the_full_form_unless_it_is_too_long() {
        assert_eq!(for_people("_ZN2ns1fEi").as_deref(), Some("ns::f(int)"));
        assert_eq!(for_people("plain"), None);
        // A name that takes more than a line when it is written out.
        let long = format!("_ZN2ns{NAME_BYTES}{}E", "a".repeat(NAME_BYTES));
        assert!(demangle(&long).iter().any(|form| form.len() > NAME_BYTES));
        assert_eq!(for_people(&long), None);
    }

    #[test]
    fn what_controls_a_terminal_is_no_name() {
        // RFC 2603, "Punycode": U+0080, and beside it U+00E9.
        assert!(rustc_demangle::demangle("_RCu1_a").to_string().contains(char::is_control));
        assert_eq!(forms("_RCu1_a"), [""; 0]);
        assert_eq!(forms("_RCu3_9ca"), ["\u{e9}"]);
    }

    #[test]
    fn cpp_names_have_forms_with_and_without_parameters() {
        for (mangled, expected) in [
            ("_ZN2ns1fEi", &["ns::f(int)", "ns::f"][..]),
            ("_Z1fv", &["f()", "f"]),
            ("_ZN2ns1gIiEET_S1_", &["int ns::g<int>(int)", "ns::g<int>(int)", "ns::g<int>"]),
            ("_ZNK2ns1C6methodERKS0_", &["ns::C::method(ns::C const&) const", "ns::C::method"]),
            ("_ZN2ns1CC1Ev", &["ns::C::C()", "ns::C::C"]),
            ("_ZN2ns1CD0Ev", &["ns::C::~C()", "ns::C::~C"]),
            ("_ZN2ns1CixEm", &["ns::C::operator[](unsigned long)", "ns::C::operator[]"]),
            // As long as the hash of a Rust name, which has hexadecimal digits.
            ("_ZN1a17hzzzzzzzzzzzzzzzzEv", &["a::hzzzzzzzzzzzzzzzz()", "a::hzzzzzzzzzzzzzzzz"]),
        ] {
            assert_eq!(forms(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn rust_names_have_forms_with_and_without_hash() {
        for (mangled, expected) in [
            (
                "_ZN4core3fmt5write17h0123456789abcdefE",
                &["core::fmt::write", "core::fmt::write::h0123456789abcdef"][..],
            ),
            // Components that look like the beginning of a hash, and like one that goes on.
            ("_ZN4a17h5write17h0123456789abcdefE", &["a17h::write", "a17h::write::h0123456789abcdef"]),
            ("_RNvCs4fqI2P2rA04_7mycrate3foo", &["mycrate::foo", "mycrate[317d481089b8c8fe]::foo"]),
        ] {
            assert_eq!(forms(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn other_names_have_no_forms() {
        for name in ["malloc", "", "_", "_Z", "_R", "_start", "Z1f", "_ZZZZZZ", "_ZN"] {
            assert_eq!(forms(name), [""; 0], "{name}");
        }
    }

    #[test]
    fn exponential_output_is_refused() {
        // Each pair doubles the previous one.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for _ in 0..4_000 {
            name.push_str("St4pairIS_S_E");
        }
        for form in forms(&name) {
            assert!(form.len() <= DEMANGLED_LIMIT);
        }
        assert_eq!(forms(&format!("_Z{}{}", MANGLED_LIMIT, "x".repeat(MANGLED_LIMIT))), [""; 0]);
    }

    #[test]
    fn names_and_forms_are_bounded_to_the_byte() {
        let name = |length| format!("_Z{length}{}v", "x".repeat(length));
        let longest = MANGLED_LIMIT - "_Z32760v".len();
        assert_eq!(name(longest).len(), MANGLED_LIMIT);
        assert_eq!(forms(&name(longest)).len(), 2);
        assert_eq!(forms(&name(longest + 1)), [""; 0]);

        let mut out = Bounded(String::new());
        assert!(out.write_str(&"x".repeat(DEMANGLED_LIMIT + 1)).is_err());
        assert!(out.write_str(&"x".repeat(DEMANGLED_LIMIT - 1)).is_ok());
        assert!(out.write_str("xx").is_err());
        assert!(out.write_str("x").is_ok());
        assert_eq!(out.0.len(), DEMANGLED_LIMIT);
    }

    #[test]
    fn deep_nesting_is_refused_within_a_small_stack() {
        // A test's thread has 2 MiB.
        for (open, close) in [("P", ""), ("1aI", "E"), ("F", "E"), ("N1a", "E"), ("XadL", "EE"), ("DpT_", "")]
        {
            for depth in [90, 130, 1_000, 5_000] {
                let name = format!("_Z1f{}i{}", open.repeat(depth), close.repeat(depth));
                assert!(forms(&name).len() <= 3);
                let name = format!("_RINvC1a1f{}hE{}", "S".repeat(depth), close.repeat(depth));
                assert!(forms(&name).len() <= 3);
            }
        }
    }

    proptest! {
        #[test]
        fn nonsense_never_panics(name in "_(Z|R|ZN|RNv)[A-Za-z0-9_.$]{0,80}") {
            for form in forms(&name) {
                prop_assert!(!form.is_empty());
            }
        }
    }
}
