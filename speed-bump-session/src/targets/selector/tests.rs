//! Tests that the compiled selector gives the same answers as the targets themselves, and refuses other
//! bytes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agreement;
mod corruption;

use speed_bump_selector::{
    Selector,
    layout::{LINE_BYTES, MEMBER_BYTES, MODULE_BYTES},
};

use super::*;
use crate::targets::{
    ParsedTargets,
    cases::{CASES, Case},
};

fn parse(text: &str) -> Targets {
    ParsedTargets::parse("t.txt", text.as_bytes(), true).unwrap().decide(|_| false)
}

fn compiled(text: &str) -> Vec<u8> {
    compile(&parse(text)).unwrap()
}

/// Whether a single line selects a Python function.
fn selects(line: &str, file: &str, qualname: &str) -> bool {
    let bytes = compiled(line);
    Selector::new(&bytes).unwrap().select(file, qualname).is_some()
}

#[test]
fn the_cases_of_the_reference() {
    for Case { line, file, qualname, selects: expected } in CASES {
        assert_eq!(selects(line, file, qualname), expected, "{line} on {file} {qualname}");
    }
}

#[test]
fn the_first_line_wins_and_exclusion_over_all() {
    // Targets of other kinds keep their numbers, and have no other effect.
    let text = "!*:*.skip\nnative:*:*\n*:A.*\n*:*\n!native:*:B.f\n!*/b.py:A.*\n!*/c.py:*\nusdt:*:p:n";
    let bytes = compiled(text);
    let selector = Selector::new(&bytes).unwrap();
    assert_eq!(selector.targets(), 4);
    assert_eq!(selector.select("/a.py", "A.f"), Some(1));
    assert_eq!(selector.select("/a.py", "B.f"), Some(2));
    assert_eq!(selector.select("/a.py", "A.skip"), None);
    assert_eq!(selector.select("/b.py", "A.f"), None);
    assert_eq!(selector.select("/b.py", "f"), Some(2));
    assert!(!selector.concerns_nothing_in("/b.py"));
    assert!(selector.concerns_nothing_in("/c.py"), "all of it is excluded");
}

#[test]
fn nothing_is_selected_by_no_target() {
    for text in ["", "!*:*", "native:*:*"] {
        let bytes = compiled(text);
        let selector = Selector::new(&bytes).unwrap();
        assert!(selector.concerns_nothing_in("/a.py"), "{text:?}");
        assert_eq!(selector.select("/a.py", "f"), None, "{text:?}");
        assert!(!selector.may_concern("/a.py", "f"), "{text:?}");
    }
}

#[test]
fn a_name_may_be_selected_by_how_a_pattern_ends() {
    for (pattern, name, expected) in [
        ("f", "f", true),
        ("f", "g", false),
        ("A.f", "f", true),
        ("A.f", "A", false),
        ("A.f", "A.f", true),
        ("xf", "f", false),
        ("?f", "f", true),
        ("[!.]f", "f", false),
        ("*.forward", "forward", true),
        ("*.forward", "rward", false),
        ("*.forward", "x_forward", false),
        ("*forward", "x_forward", true),
        ("*Attention*", "forward", true),
        ("A*.f?", "fé", true),
        ("A*.f?", "gé", false),
        ("A.", "", true),
        ("A", "", false),
    ] {
        let bytes = compiled(&format!("*:{pattern}"));
        let selector = Selector::new(&bytes).unwrap();
        assert_eq!(selector.may_concern("/a.py", name), expected, "{pattern} on {name:?}");
    }
}

#[test]
fn a_pattern_as_long_as_a_line_is_executed() {
    for (pattern, hit, miss) in [
        ("?".repeat(4000), "é".repeat(4000), "é".repeat(3999)),
        ("[!é]".repeat(800), "x".repeat(800), "é".repeat(800)),
        ("*a".repeat(2000), "ba".repeat(2000), "ba".repeat(1999)),
        (format!("*{}", "?".repeat(2000)), "é".repeat(4000), "é".repeat(1999)),
    ] {
        let line = format!("*:{pattern}");
        assert!(selects(&line, "/a.py", &hit), "{pattern:.8}");
        assert!(!selects(&line, "/a.py", &miss), "{pattern:.8}");
    }
}

#[test]
fn equal_patterns_are_stored_once() {
    let one = compiled("*/a/*:*").len();
    let line = LINE_BYTES + MEMBER_BYTES;
    assert_eq!(compiled("*/a/*:*\n**/a/**:**\n!*/a/*:*").len(), one + 2 * line);
    assert_eq!(compiled("a:*\n*:a").len() - compiled("a:*").len(), line + MODULE_BYTES);
}

/// The candidates for a function, as (target, caller), and the callers that this function is, as bits.
fn by_caller(selector: &Selector<'_>, file: &str, name: &str) -> (Vec<(u32, u32)>, u32) {
    let module = selector.in_module(file);
    let candidates = module.candidates(name).map(|of| (of.target, of.caller));
    (candidates.collect(), module.as_caller(name))
}

#[test]
fn callers_are_numbered_and_lines_tried_up_to_the_first_for_all() {
    let text = "*:f caller=g\nnative:*:f\n*:f* caller=m.py:h\n*:f caller=g\n*:f\n*:f caller=late\n!*:fx\n";
    let bytes = compiled(text);
    let selector = Selector::new(&bytes).unwrap();
    assert_eq!(by_caller(&selector, "/a.py", "f"), (vec![(0, 1), (2, 2), (3, 1), (4, 0)], 0));
    assert_eq!(by_caller(&selector, "/a.py", "fy"), (vec![(2, 2)], 0));
    assert_eq!(by_caller(&selector, "/a.py", "fx"), (vec![], 0), "excluded");
    assert_eq!(by_caller(&selector, "/a.py", "g"), (vec![], 1));
    assert_eq!([("m.py", 2), ("/x/m.py", 0)].map(|(file, _)| by_caller(&selector, file, "h").1), [2, 0]);
    assert_eq!(by_caller(&selector, "/a.py", "late").1, 4);
    let module = selector.in_module("/a.py");
    assert!(module.may_call("late") && !module.may_call("later"));
    assert!(!selector.concerns_nothing_in("/z.py"), "`g` may be there");
    let none = compiled("*/a.py:f\n");
    assert!(!Selector::new(&none).unwrap().has_callers());
}

#[test]
fn a_dropped_target_leaves_the_callers_their_numbers() {
    let targets = parse("*:f caller=g\n*:f caller=h\n");
    let change = crate::targets::TargetChange { add: Vec::new(), drop: vec![crate::targets::TargetIndex(0)] };
    let bytes = compile(&targets.changed(&change)).unwrap();
    let selector = Selector::new(&bytes).unwrap();
    assert_eq!(by_caller(&selector, "/a.py", "f"), (vec![(1, 2)], 0));
    assert_eq!((by_caller(&selector, "/a.py", "g").1, by_caller(&selector, "/a.py", "h").1), (0, 2));
}

#[test]
fn the_main_file_is_one_caller() {
    let targets = parse("__main__:f caller=__main__:g\n").with_main_files(&["/srv/app.py".into()]);
    let bytes = compile(&targets).unwrap();
    let selector = Selector::new(&bytes).unwrap();
    assert_eq!(by_caller(&selector, "/srv/app.py", "f"), (vec![(0, 1)], 0));
    assert_eq!(by_caller(&selector, "/srv/__main__.py", "g"), (vec![], 1));
    assert_eq!(by_caller(&selector, "/srv/app.py", "g"), (vec![], 1));
}

#[test]
fn more_callers_than_bits_are_refused() {
    let lines = |count: u32| (0..count).map(|n| format!("*:f caller=g{n}\n")).collect::<String>();
    assert!(compile(&parse(&lines(32))).is_ok());
    let error = compile(&parse(&lines(33))).unwrap_err();
    assert_eq!(error, CompileError::TooManyCallers { named: 33 });
}

#[test]
fn a_file_of_exclusions_alone_selects_nothing() {
    let bytes = compiled("!*:f\n");
    let selector = Selector::new(&bytes).unwrap();
    assert_eq!(selector.targets(), 0);
    assert_eq!(selector.in_module("/a.py").select("f"), None);
}

#[test]
fn the_first_of_very_many_exclusions_counts() {
    // There are more lines than marks, so the target shares its mark with an exclusion.
    let others: String = (0..4_095).map(|n| format!("!*:g{n}\n")).collect();
    let bytes = compiled(&format!("*:*\n!*:f\n{others}"));
    let selector = Selector::new(&bytes).unwrap();
    let module = selector.in_module("/a.py");
    assert_eq!((module.select("f"), module.select("g7"), module.select("h")), (None, None, Some(0)));
}
