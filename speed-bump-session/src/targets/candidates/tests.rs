#![allow(clippy::unwrap_used)]

use super::{Candidate, Gauge, without_parameters};
use crate::{demangle, targets::ParsedTargets};

fn nearest(line: &str, candidates: &[(&str, &str)], limit: usize) -> Vec<String> {
    let targets = ParsedTargets::parse("t", line.as_bytes(), false).unwrap().decide(|_| false);
    targets.iter().next().unwrap().1.nearest(candidates.iter().copied(), limit)
}

#[test]
fn hits_but_for_case_come_first() {
    let candidates = [
        ("/s/a.py", "selfattention"),
        ("/s/a.py", "SelfAttentions.forward"),
        ("/s/a.py", "SelfAttention.forward"),
        ("/s/a.py", "unrelated"),
    ];
    assert_eq!(
        nearest("*:*attention.FORWARD", &candidates, 10),
        ["/s/a.py:SelfAttention.forward", "/s/a.py:SelfAttentions.forward"]
    );
}

#[test]
fn names_that_contain_the_pattern_are_near() {
    let candidates = [("/s/a.py", "Attention.forward"), ("/s/a.py", "backward"), ("/s/b.py", "Norm.forward")];
    assert_eq!(nearest("*:forward", &candidates, 10), ["/s/b.py:Norm.forward", "/s/a.py:Attention.forward"]);
    assert_eq!(nearest("*:forward", &candidates, 1), ["/s/b.py:Norm.forward"]);
    assert_eq!(nearest("s/a.py:*Attention*", &candidates, 1), ["/s/a.py:Attention.forward"]);
}

#[test]
fn a_few_wrong_letters_are_near() {
    let candidates = [("/l/libc.so.6", "malloc"), ("/l/libc.so.6", "calloc"), ("/l/libc.so.6", "printf")];
    assert_eq!(nearest("native:*:maloc", &candidates, 10), ["native:/l/libc.so.6:malloc"]);
    assert_eq!(nearest("native:*:m*lok", &candidates, 10), ["native:/l/libc.so.6:malloc"]);
    let probes = [("/l/libpython.so", "python:gc__start"), ("/l/libpython.so", "python:line")];
    assert_eq!(nearest("usdt:*:pyton:gc__start", &probes, 1), ["usdt:/l/libpython.so:python:gc__start"]);
}

#[test]
fn right_names_elsewhere_come_before_other_names_there() {
    let candidates = [
        ("/l/libm.so.6", "sin"),
        ("/l/libm.so.6", "cos"),
        ("/l/libc.so.6", "malloc"),
        ("/l/libz.so", "crc32"),
    ];
    assert_eq!(
        nearest("native:*/libm.so.6:malloc", &candidates, 10),
        ["native:/l/libc.so.6:malloc", "native:/l/libm.so.6:cos", "native:/l/libm.so.6:sin"]
    );
}

#[test]
fn modules_are_compared_by_their_dotted_names_too() {
    let candidates = [("/s/transformers/llama.py", "f"), ("/s/torch/llama.py", "f")];
    assert_eq!(nearest("transformer.llama:f", &candidates, 1), ["/s/transformers/llama.py:f"]);
}

#[test]
fn many_candidates_are_bounded_and_case_still_counts() {
    let names: Vec<String> = (0..100_000).map(|n| format!("ns::some_function_name_{n}(int)")).collect();
    let candidates: Vec<(&str, &str)> =
        names.iter().map(|name| ("/l/lib.so", name.as_str())).chain([("/l/lib.so", "Other_Name")]).collect();
    assert_eq!(nearest("native:*:other_name", &candidates, 3)[0], "native:/l/lib.so:Other_Name");
    assert_eq!(nearest("native:*:ns::some_funktion_nam_77777*", &candidates, 5).len(), 5);
    assert!(nearest("native:*:other_name", &candidates, 0).is_empty());
}

#[test]
fn a_pattern_without_letters_proposes_nothing_elsewhere() {
    // These lines match any function or any module, so no candidate is better than another.
    assert!(nearest("native:libmodule:*", &[("/usr/bin/app", "f")], 10).is_empty());
    assert!(nearest("native:*:malloc", &[("/usr/bin/app", "f")], 10).is_empty());
    let candidates = [("/usr/bin/app", "malloc"), ("/l/libm.so.6", "cos")];
    assert_eq!(
        nearest("native:*/libm.so.6:malloc", &candidates, 10),
        ["native:/usr/bin/app:malloc", "native:/l/libm.so.6:cos"]
    );
    // We do not compare a pattern with `/` with dotted names.
    assert!(nearest("x/llama:*", &[("/site-packages/y/llama.py", "g")], 10).is_empty());
}

#[test]
fn the_distances_of_module_and_name_are_added() {
    let candidates = [("libmod", "fanctian"), ("xlibmodx", "afunctionb")];
    assert_eq!(
        nearest("native:libmod:function", &candidates, 2),
        ["native:xlibmodx:afunctionb", "native:libmod:fanctian"]
    );
    let candidates = [("/l", "functian"), ("/l", "a_much_longer_function")];
    assert_eq!(
        nearest("native:*:function", &candidates, 2),
        ["native:/l:a_much_longer_function", "native:/l:functian"]
    );
}

#[test]
fn letters_are_added_dropped_and_replaced_for_one_each() {
    for (pattern, text, far) in [
        ("abcdefghi", "abcdefghi", Some(0)),
        ("abcdefghi", "xabcdefghi", Some(1)),
        ("abcdefghi", "abcdefghj", Some(2)),
        ("abcdefghi", "abcdefghij?", Some(1)),
        ("abcdefghi", "defghi", Some(4)),
        ("abcdefghi", "efghi", None),
        ("*abcdefghi", "zabcdefghj", Some(2)),
        ("abc*fghi", "abcdefgh", Some(2)),
        // A text with one character too few or too many for a `?`.
        ("abc?efghi", "abcefghi", Some(2)),
        ("abc?efghi", "abcxyefghi", Some(2)),
        ("cbc", "bc", Some(2)),
    ] {
        let gauge = Gauge::new(pattern).unwrap();
        assert_eq!(gauge.distance(text, &mut { usize::MAX }), far, "{pattern} {text}");
    }
}

#[test]
fn mangled_functions_are_near_by_any_of_their_names() {
    let forms = |symbol: &str| demangle::names_of(symbol).map(String::from).collect::<Vec<_>>();
    let functions = ["_Z6taggedB5cxx11i", "_ZN2ns7handlerEv", "_ZNK3RowixEi", "main"].map(forms);
    let of = |name: &str| {
        let line = format!("native:*:{name}");
        let targets = ParsedTargets::parse("t", line.as_bytes(), false).unwrap().decide(|_| false);
        let candidates = functions.iter().map(|names| Candidate {
            module: "/a",
            name: names.get(1).unwrap_or(&names[0]),
            aliases: names,
        });
        targets.iter().next().unwrap().1.nearest(candidates, 1)
    };
    for (name, near) in [
        ("taged[abi:cxx11](int)", "tagged[abi:cxx11](int)"),
        ("tagged[abi:cxx11](long*)", "tagged[abi:cxx11](int)"),
        ("ns::handlr", "ns::handler"),
        ("_ZN2ns7handlerEl", "_ZN2ns7handlerEv"),
        ("Row::operator[](char) const", "Row::operator[](int) const"),
    ] {
        assert_eq!(of(name), [format!("native:/a:{near}")], "{name}");
    }
}

#[test]
fn what_comes_before_parameters_is_found() {
    for (name, before) in [
        ("f(int)", Some("f")),
        ("f(int (*)(char)) const", Some("f")),
        ("f(int) [clone .cold]", Some("f")),
        ("f::operator()() const", Some("f::operator()")),
        ("main.(*T).M", None),
        ("f)", None),
        ("(x)", None),
        ("f", None),
    ] {
        assert_eq!(without_parameters(name), before, "{name}");
    }
}

#[test]
fn letters_are_compared_as_long_as_the_budget_lasts() {
    let gauge = Gauge::new("abcdefghi").unwrap();
    let mut budget = 9 * 10;
    assert_eq!(gauge.distance("abcdefxxhi", &mut budget), Some(3));
    assert_eq!(budget, 0);
    assert_eq!(gauge.distance("abcdefghx", &mut budget), None);
}

#[test]
fn nothing_near_is_nothing() {
    assert!(nearest("*:execute_model", &[("/a.py", "f"), ("/b.py", "g.h")], 10).is_empty());
    assert!(nearest("*:f", &[], 10).is_empty());
}
