//! Tests that every line that `list` prints selects its own function.

use proptest::prelude::*;

use super::{super::NativeModule, targets};
use crate::{
    demangle::for_people,
    elf::{Binding, SymbolName, TableKind},
    targets::{TargetKind, exact::plain_name, pattern::strategies::odd_text},
};

/// Symbols of several languages, as their compilers write them.
const SYMBOLS: &str = include_str!("names.txt");

/// A symbol, and the names that `list` prints for it.
struct Symbol {
    candidates: Vec<String>,
    shown: String,
}

fn symbol(text: &str) -> Symbol {
    let name = SymbolName::new(text.as_bytes(), None, Binding::Global, TableKind::Symbols);
    let candidates = name.candidates().map(std::borrow::Cow::into_owned).collect();
    let shown = for_people(name.as_str()).unwrap_or_else(|| name.as_str().to_owned());
    Symbol { candidates, shown }
}

/// The symbols that a line selects in the file with all of them.
fn selected(module: &NativeModule<'_>, symbols: &[Symbol]) -> Vec<usize> {
    let named = symbols.iter().enumerate().map(|(at, symbol)| (at, symbol.candidates.iter()));
    let selected = module.select_all(named).into_iter();
    selected.filter(|(_, selection)| selection.winner.is_some()).map(|(at, _)| at).collect()
}

/// Tries each printed name of each symbol. Returns the number of names that `list` prints unchanged.
fn try_all(symbols: &[Symbol]) -> Result<usize, TestCaseError> {
    let mut plain = 0;
    for (at, symbol) in symbols.iter().enumerate() {
        for name in symbol.candidates.iter().chain([&symbol.shown]) {
            let written = plain_name(TargetKind::Native, name);
            let targets = targets(&format!("native:*/lib.so:{written} delay=1us"));
            let found = selected(&targets.native_in("/lib.so"), symbols);
            prop_assert!(found.contains(&at), "{} is written {} and selects {:?}", name, written, found);
            if *written != **name {
                continue;
            }
            plain += 1;
            for other in found {
                let other = &symbols[other].candidates;
                let base = name.split_once('@').map_or(name.as_str(), |(base, _)| base);
                let is_called = |candidate: &String| candidate == name || candidate == base;
                prop_assert!(other.iter().any(is_called), "{} selects {:?}", name, other);
            }
        }
    }
    Ok(plain)
}

#[test]
fn names_of_all_languages_select_what_they_were_printed_for() {
    let symbols: Vec<Symbol> = SYMBOLS.lines().filter(|line| !line.starts_with("# ")).map(symbol).collect();
    assert!(symbols.len() > 200, "{}", symbols.len());
    let plain = try_all(&symbols).unwrap();
    // `list` prints nearly all names unchanged.
    let all: usize = symbols.iter().map(|symbol| symbol.candidates.len() + 1).sum();
    assert!(plain + 20 > all, "{plain} of {all}");
}

proptest! {
    /// Tests random names in a file.
    #[test]
    fn any_names_select_what_they_were_printed_for(
        names in proptest::collection::vec(odd_text(12).prop_filter("a name", |name| !name.is_empty()), 1..5),
    ) {
        let symbols: Vec<Symbol> = names.iter().map(|name| symbol(name)).collect();
        try_all(&symbols)?;
    }
}

#[test]
fn a_name_that_no_symbol_has_is_a_pattern() {
    let symbols = ["f[ab]", "fa", "fb", "ns::f(char*)", "ns::f(char const*)"].map(symbol);
    let of = |name: &str| selected(&targets(&format!("lib.so:{name}")).native_in("lib.so"), &symbols);
    assert_eq!(of("f[ab]"), [0]);
    assert_eq!(of("f[a-b]"), [1, 2]);
    assert_eq!(of("ns::f(char*)"), [3]);
    assert_eq!(of("ns::f(char*const*)"), [4]);
    let excluded = targets("lib.so:f*\n!lib.so:f[ab]");
    assert_eq!(selected(&excluded.native_in("lib.so"), &symbols), [1, 2]);
}
