//! Tests the cases of the reference, and which line wins.

#![allow(clippy::unwrap_used, clippy::panic)]

mod names;

use super::*;
use crate::targets::{
    ParsedTargets, TargetKind,
    cases::{CASES, Case},
};

fn targets(text: &str) -> Targets {
    let parsed = ParsedTargets::parse("t.txt", text.as_bytes(), true).unwrap();
    parsed.decide(|path| path == "/usr/bin/app")
}

fn selection(winner: Option<u32>, shadowed: &[u32], excluded_by: Option<u32>) -> Selection {
    Selection {
        winner: winner.map(TargetIndex),
        for_other_callers: Vec::new(),
        shadowed: shadowed.iter().copied().map(TargetIndex).collect(),
        excluded_by: excluded_by.map(ExclusionIndex),
    }
}

/// Whether a single line selects a Python function.
fn python(line: &str, file: &str, qualname: &str) -> bool {
    targets(line).python_in(file).select(qualname).winner.is_some()
}

/// Whether a single line selects a symbol.
fn native(line: &str, path: &str, names: &[&str]) -> bool {
    targets(line).native_in(path).select(names.iter().copied()).winner.is_some()
}

#[test]
fn the_cases_of_the_reference() {
    for Case { line, file, qualname, selects } in CASES {
        assert_eq!(python(line, file, qualname), selects, "{line} on {file} {qualname}");
    }
    assert!(!native("*:*", "/lib/libc.so.6", &["malloc"]), "native needs its kind");
    assert!(native("native:*:*", "/lib/libc.so.6", &["malloc"]));
}

#[test]
fn lines_of_the_kernel_module_work_unchanged() {
    let targets = targets("/usr/lib/libcuda.so:cudaLaunchKernel 10000\n/usr/bin/app:process_request");
    assert!(targets.iter().all(|(_, target)| target.kind == TargetKind::Native));
    let delay = targets.get(TargetIndex(0)).unwrap().delay;
    assert_eq!(delay.map(|delay| delay.0), Some(10_000));
    assert!(targets.native_in("/usr/lib/libcuda.so").select(["cudaLaunchKernel"]).winner.is_some());
    assert!(targets.native_in("/usr/bin/app").select(["process_request"]).winner.is_some());
}

#[test]
fn versions_are_ignored_unless_written() {
    let libc = "/lib/libc.so.6";
    for (pattern, name, selects) in [
        ("memcpy", "memcpy", true),
        ("memcpy", "memcpy@GLIBC_2.2.5", true),
        ("memcpy", "memcpy@@GLIBC_2.14", true),
        ("memcpy@GLIBC_2.14", "memcpy@GLIBC_2.14", true),
        ("memcpy@GLIBC_2.14", "memcpy@@GLIBC_2.14", true),
        ("memcpy@@GLIBC_2.14", "memcpy@GLIBC_2.14", true),
        ("memcpy@GLIBC_2.14", "memcpy@GLIBC_2.2.5", false),
        ("memcpy@GLIBC_2.14", "memcpy", false),
        ("mem*@*", "memcpy@GLIBC_2.2.5", true),
        ("mem*@*", "memcpy", false),
        ("*2.2.5", "memcpy@GLIBC_2.2.5", false),
        ("@odd", "@odd", true),
    ] {
        let line = format!("native:*:{pattern}");
        assert_eq!(native(&line, libc, &[name]), selects, "{pattern} on {name}");
    }
}

#[test]
fn any_name_of_a_symbol_selects_it_once() {
    let names = ["_ZN2ns1fEi", "ns::f(int)", "ns::f", "alias@@V1"];
    for line in ["lib.so:_ZN2ns1fEi", "lib.so:ns::f(int)", "lib.so:ns::*", "lib.so:alias", "lib.so:*"] {
        let targets = targets(line);
        assert_eq!(targets.native_in("lib.so").select(names), selection(Some(0), &[], None), "{line}");
    }
    assert!(!native("lib.so:ns", "lib.so", &names));
}

#[test]
fn probes_are_selected_by_provider_and_name() {
    let targets = targets("usdt:*/libpython*:python:gc__*\nusdt:*:py*:*");
    let python = targets.usdt_in("/lib/libpython3.11.so");
    assert_eq!(python.select("python", "gc__start"), selection(Some(0), &[1], None));
    assert_eq!(python.select("python", "line"), selection(Some(1), &[], None));
    assert_eq!(python.select("libc", "gc__start"), selection(None, &[], None));
    assert_eq!(targets.usdt_in("/bin/x").select("python", "gc__start"), selection(Some(1), &[], None));
    assert!(targets.native_in("/lib/libpython3.11.so").is_empty());
}

#[test]
fn the_first_line_that_selects_wins_and_exclusion_over_all() {
    let targets = targets("!*:*.skip\n*:A.*\n*:*\n*/a.py:A.f\n!native:*:B.f\n!*/b.py:A.*\n");
    let a = targets.python_in("/x/a.py");
    assert_eq!(a.select("A.f"), selection(Some(0), &[1, 2], None));
    assert_eq!(a.select("B.f"), selection(Some(1), &[], None));
    assert_eq!(a.select("A.skip"), selection(None, &[0, 1], Some(0)));
    let b = targets.python_in("/x/b.py");
    assert_eq!(b.select("A.f"), selection(None, &[0, 1], Some(2)));
    assert_eq!(b.select("A.skip"), selection(None, &[0, 1], Some(0)));
    assert_eq!(targets.exclusion(ExclusionIndex(2)).unwrap().line, 6);
}

#[test]
fn lines_for_callers_are_tried_up_to_the_first_for_all() {
    let text =
        "*:f caller=g\n*:* caller=h\n*:f caller=g\n*:f\n*:f caller=i\n!*/b.py:f\nnative:*:f caller=g\n";
    let targets = targets(text);
    let others = |selection: Selection, others: &[u32]| Selection {
        for_other_callers: others.iter().copied().map(TargetIndex).collect(),
        ..selection
    };
    let a = targets.python_in("/a.py");
    assert_eq!(a.select("f"), others(selection(Some(0), &[2, 4], None), &[1, 3]));
    assert_eq!(a.select("k"), selection(Some(1), &[], None));
    assert_eq!(targets.python_in("/b.py").select("f"), selection(None, &[0, 1, 2, 3, 4], Some(0)));
    assert_eq!(targets.native_in("/a.so").select(["f"]), selection(Some(5), &[], None));
    let for_all = |name| targets.for_all_callers(&a.select(name));
    assert_eq!((for_all("f"), for_all("k")), (None, None), "calls from others cannot be told apart");
    let plain = self::targets("*:f\n*:f caller=g\n");
    let selected = plain.python_in("/a.py").select("f");
    assert_eq!(plain.for_all_callers(&selected), Some(TargetIndex(0)));
}

#[test]
fn an_exclusion_excludes_only_what_a_target_selects() {
    let targets = targets("*/a.py:f\n!*:*");
    assert_eq!(targets.python_in("/a.py").select("f"), selection(None, &[0], Some(0)));
    assert_eq!(targets.python_in("/a.py").select("g"), selection(None, &[], None));
    assert!(!targets.python_in("/a.py").is_empty());
    assert!(targets.python_in("/b.py").is_empty());
    let targets = self::targets("native:/bin/app:f\nusdt:/bin/app:p:f\n");
    assert!(!targets.native_in("/bin/app").is_empty() && !targets.usdt_in("/bin/app").is_empty());
    assert!(targets.native_in("/bin/other").is_empty() && targets.usdt_in("/bin/other").is_empty());
}

#[test]
fn without_qualified_names_the_last_component_is_matched() {
    for (pattern, co_name, selects) in [
        ("f", "f", true),
        ("A.f", "f", true),
        ("A.f", "A", false),
        ("*.forward", "forward", true),
        ("A.*", "anything", true),
        ("A.[.g]x", "gx", true),
        ("outer.<locals>.inner", "inner", true),
        ("*Attention*", "forward", false),
        ("*<locals>*", "inner", false),
        ("*", "f", true),
    ] {
        let targets = targets(&format!("*:{pattern}"));
        let selected = targets.python_in("/a.py").select_by_last_component(co_name);
        assert_eq!(selected.winner.is_some(), selects, "{pattern} on {co_name}");
    }
    let targets = targets("*:A.f\n!*/b.py:*.f");
    assert_eq!(targets.python_in("/a.py").select_by_last_component("f"), selection(Some(0), &[], None));
    assert_eq!(targets.python_in("/b.py").select_by_last_component("f"), selection(None, &[0], Some(0)));
}

/// If there are many lines, we use the index; if there are few, we do not. The results must agree.
#[test]
fn many_lines_select_what_few_do() {
    let lines: Vec<String> = (0..300)
        .map(|n| match n % 5 {
            0 => format!("native:*lib{}.so:f{n}", n % 3),
            1 => format!("native:*:f*{}", n % 7),
            2 => format!("native:*.so:?{}[0-9]", n % 10),
            3 => format!("!native:*:f{}1", n % 11),
            _ => format!("native:*lib1*:f{n}@V*"),
        })
        .collect();
    let alone: Vec<Targets> = lines.iter().map(|line| targets(line.trim_start_matches('!'))).collect();
    let all = targets(&lines.join("\n"));
    for path in ["/lib0.so", "/lib1.so", "/elsewhere"] {
        let module = all.native_in(path);
        for symbol in (0..300).map(|n| format!("f{n}@@V{}", n % 3)) {
            let (mut targets, mut exclusions) = ((0..).map(TargetIndex), (0..).map(ExclusionIndex));
            let mut expected = Selection::default();
            for (line, alone) in lines.iter().zip(&alone) {
                let matches = alone.native_in(path).select([symbol.as_str()]).winner.is_some();
                if line.starts_with('!') {
                    let exclusion = exclusions.next().filter(|_| matches);
                    expected.excluded_by = expected.excluded_by.or(exclusion);
                } else {
                    expected.shadowed.extend(targets.next().filter(|_| matches));
                }
            }
            if expected.shadowed.is_empty() {
                expected.excluded_by = None;
            } else if expected.excluded_by.is_none() {
                expected.winner = Some(expected.shadowed.remove(0));
            }
            assert_eq!(module.select([symbol.as_str()]), expected, "{path} {symbol}");
        }
    }
}
