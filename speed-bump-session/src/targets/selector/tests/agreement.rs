//! Compares the compiled selector with the targets, for random targets files and random functions. The lines
//! have a fair chance to select the functions.

use std::{cell::Cell, collections::HashSet};

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use speed_bump_selector::ModuleSelector;

use super::*;
use crate::targets::{
    TargetIndex, TargetsError,
    pattern::strategies::{odd_text, pair},
};

/// The number of random targets files. We try each file with every function that its lines suggest.
const FILES: u32 = 10_000;

/// A module pattern, and a file that it should match.
fn module() -> impl Strategy<Value = (String, String)> {
    let component =
        select(&["a", "b", "é", "ab", "a.b", "<x>", "", "__init__", "*", "?", "[!b]", "[.-0]"][..]);
    let path = (
        proptest::collection::vec(component, 1..5),
        select(&["/", "."][..]),
        select(&["", ".py", "/__init__.py", "*"][..]),
        select(&["", "", "/", "*", "*/"][..]),
    );
    let path = path.prop_map(|(components, between, end, start)| {
        let pattern = format!("{start}{}{end}", components.join(between));
        let file = components.join("/").replace('*', "c").replace('?', "d").replace("[!b]", "a");
        let end = if end == "*" { ".py" } else { end };
        (pattern, format!("/x/{}{end}", file.replace("[.-0]", "/")))
    });
    prop_oneof![2 => path, 1 => pair(), 1 => odd_text(12).prop_map(|file| ("*".to_owned(), file))]
}

/// A name pattern, and a name that it should match.
fn name() -> impl Strategy<Value = (String, String)> {
    let part = || select(&["A", "f", "é", "<locals>", "<lambda>", "*", "?", "[!f]", "A*", "*f"][..]);
    let dotted = proptest::collection::vec((part(), part()), 1..4).prop_map(|parts| {
        let (patterns, names): (Vec<&str>, Vec<&str>) = parts.into_iter().unzip();
        let like = |(pattern, other): (&&str, &&str)| {
            if pattern.contains(['*', '?', '[']) { other.to_string() } else { pattern.to_string() }
        };
        let name: Vec<String> = patterns.iter().zip(&names).map(like).collect();
        (patterns.join("."), name.join("."))
    });
    prop_oneof![2 => dotted, 1 => pair(), 1 => odd_text(8).prop_map(|name| ("*".to_owned(), name))]
}

/// The lines of a targets file, and the files and qualified names to try with it.
#[derive(Debug)]
struct Case {
    text: String,
    files: Vec<String>,
    names: Vec<String>,
}

fn case() -> impl Strategy<Value = Case> {
    let line = (module(), name(), 0..4_u8, proptest::option::of((module(), name())));
    proptest::collection::vec(line, 1..4).prop_map(|lines| {
        let mut case = Case { text: String::new(), files: Vec::new(), names: Vec::new() };
        for ((module, file), (name, qualname), dice, caller) in lines {
            let not = if dice == 0 { "!" } else { "" };
            let caller = caller.filter(|_| dice > 0).map(|((module, file), (name, qualname))| {
                case.files.push(file);
                case.names.push(qualname);
                let written = format!("{}:{}", module.replace(':', ";"), name.replace(':', ";"));
                format!(" caller={}", written.replace(char::is_whitespace, "?"))
            });
            // A newline ends a line, and the first `:` ends its module part, so neither can be part of a
            // pattern.
            let line = format!("{not}py:{}:{name}", module.replace(':', ";")).replace(['\n', '\r'], "?");
            let line = line + &caller.unwrap_or_default();
            case.files.push(file);
            case.names.push(qualname);
            case.text.push_str(&line);
            case.text.push('\n');
        }
        case
    })
}

/// The targets of the valid lines. We refuse lines with empty parts, or with words that look like options.
fn accepted(text: &str) -> Targets {
    match ParsedTargets::parse("t.txt", text.as_bytes(), true) {
        Ok(parsed) => parsed.decide(|_| false),
        Err(TargetsError::Lines(wrong)) => {
            let is_wrong = |number: usize| wrong.errors.iter().any(|error| error.line == number);
            let lines = (1..).zip(text.lines()).filter(|(number, _)| !is_wrong(*number));
            let rest: Vec<&str> = lines.map(|(_, line)| line).collect();
            accepted(&rest.join("\n"))
        }
        Err(error) => panic!("{error}"),
    }
}

fn check(targets: &Targets, module: &ModuleSelector<'_, '_>, file: &str, name: &str) -> Option<u32> {
    let expected = targets.python_in(file);
    let winner = expected.select(name).winner.map(|target| target.0);
    assert_eq!(module.select(name), winner, "{name:?} in {file:?}");
    let selection = expected.select(name);
    let callers = Callers::of_kind(targets.iter().map(|(_, target)| target), TargetKind::Python);
    let caller_of = |index: TargetIndex| callers.number(targets.get(index).unwrap().caller.as_ref());
    let tried = selection.winner.into_iter().chain(selection.for_other_callers);
    let tried: Vec<(u32, u32)> = tried.map(|index| (index.0, caller_of(index))).collect();
    let mut seen = HashSet::new();
    let candidates = module.candidates(name).filter(|of| seen.insert(of.caller));
    let candidates: Vec<(u32, u32)> = candidates.map(|of| (of.target, of.caller)).collect();
    assert_eq!(candidates, tried, "{name:?} in {file:?}");
    let any = targets.iter().map(|(_, target)| target).next();
    let named = callers.iter().filter(|(_, caller)| {
        let as_target = Target { module: caller.module.clone(), ..any.unwrap().clone() };
        as_target.is_in_module(file) && caller.name.matches(name)
    });
    let bits = named.fold(0, |bits, (number, _)| bits | 1 << (number - 1));
    assert_eq!(module.as_caller(name), bits, "{name:?} in {file:?}, as a caller");
    let last = name.rsplit('.').next().unwrap();
    assert!(bits == 0 || module.may_call(last), "{name:?} in {file:?}, as a caller");
    let guess = expected.select_by_last_component(name).winner.map(|target| target.0);
    assert_eq!(module.select_by_last_component(name), guess, "{name:?} in {file:?}, by its last component");
    assert!(!expected.is_empty() || module.is_empty(), "{file:?}");
    if winner.is_some() {
        assert!(!module.is_empty(), "{file:?}");
        let last = name.rsplit('.').next().unwrap();
        assert!(module.may_select(last), "{name:?} in {file:?}, by {last:?}");
    }
    winner
}

#[test]
fn the_selector_agrees_with_the_targets() {
    let (asked, selected) = (Cell::new(0_u32), Cell::new(0_u32));
    let mut runner = TestRunner::new(Config { cases: FILES, failure_persistence: None, ..Config::default() });
    let result = runner.run(&case(), |case| {
        let targets = accepted(&case.text);
        let bytes = compile(&targets).unwrap();
        let selector = Selector::new(&bytes).unwrap();
        for file in &case.files {
            let module = selector.in_module(file);
            for name in &case.names {
                asked.set(asked.get() + 1);
                selected.set(selected.get() + u32::from(check(&targets, &module, file, name).is_some()));
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // The test would prove little if the lines selected nearly all functions, or nearly none.
    let (asked, selected) = (asked.get(), selected.get());
    assert!((asked / 10..asked * 9 / 10).contains(&selected), "{selected} of {asked} are selected");
}

/// With this many lines, some share a mark.
#[test]
fn more_lines_than_marks_agree_too() {
    let line = |n: u32| match n % 4 {
        0 => format!("*/m{}.py:f{n}", n % 64),
        1 => format!("m{}:f{n}", n % 64),
        2 if n % 8 == 2 => format!("!*/m{}.py:f{}", (n - 2) % 64, n - 2),
        2 => format!("*/m{}.py:f{n}", n % 64),
        _ => format!("*m{}*:f{}", n % 10, n % 900),
    };
    let text: Vec<String> = (0..10_000).map(line).collect();
    let targets = parse(&text.join("\n"));
    let bytes = compile(&targets).unwrap();
    let selector = Selector::new(&bytes).unwrap();
    let mut selected = Vec::new();
    for n in (0..10_000).step_by(61) {
        let file = format!("/x/m{}.py", n % 64);
        let module = selector.in_module(&file);
        for name in [n, n % 900, n + 64] {
            selected.extend(check(&targets, &module, &file, &format!("f{name}")));
        }
    }
    assert!(selected.len() > 100 && selected.iter().any(|target| *target > 5000), "{selected:?}");
}
