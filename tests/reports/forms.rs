//! `report` in all its forms, by the command.

use std::{fs, time::Duration};

use speed_bump_testing::tool::{self, Run};

use crate::records::{HOSTILE_RECORD, written};

const LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
fn report(arguments: &[&str]) -> Run {
    let all: Vec<&str> = ["report"].into_iter().chain(arguments.iter().copied()).collect();
    tool::run(&all, LIMIT).unwrap()
}

#[test]
fn a_page_is_written_as_a_whole() {
    let (folder, json) = written(&HOSTILE_RECORD);
    let html = folder.path().join("out.html");
    let run = report(&[json.to_str().unwrap(), "--html", html.to_str().unwrap()]);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    assert_eq!(run.stderr, format!("speed-bump-ebpf: the report is in {}\n", html.display()));
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{page}");
    let printed = report(&[json.to_str().unwrap(), "--html", "-"]);
    assert_eq!(printed.stdout.trim_end(), page);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
}

/// No name of a process's is a formula, a line or a cell of its own, or a control character.
#[test]
fn names_are_only_names_in_csv() {
    let (_folder, json) = written(&HOSTILE_RECORD);
    let run = report(&[json.to_str().unwrap(), "--csv"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), HOSTILE_RECORD.findings.factors.len() + 1);
    assert!(!run.stdout.contains(['\u{1b}', '\u{202e}', '\r']));
    let formula = run.stdout.lines().find(|line| line.contains("HYPERLINK")).unwrap();
    assert!(formula.starts_with("\"'=HYPERLINK(\"\"http"), "{formula}");
    let numbers = |line: &str, number: f64| line.contains(&format!(",{number},"));
    let first = &HOSTILE_RECORD.findings.factors[0];
    let line = run.stdout.lines().nth(1).unwrap();
    assert!(numbers(line, first.sensitivity.unwrap()) && numbers(line, first.worth.unwrap()), "{line}");
}

#[test]
fn names_are_only_names_in_markdown() {
    let (_folder, json) = written(&HOSTILE_RECORD);
    let run = report(&[json.to_str().unwrap(), "--markdown"]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let text = run.stdout;
    assert!(text.starts_with('`'), "{text}");
    // Names stand in code spans and code blocks alone: what is left of the text has none of them.
    let mut outside = String::new();
    let mut rest = text.as_str();
    while let Some(begin) = rest.find('`') {
        outside += &rest[..begin];
        let length = rest[begin..].len() - rest[begin..].trim_start_matches('`').len();
        let fence = &rest[begin..begin + length];
        let inside = &rest[begin + length..];
        // A span ends with as many backticks, and not with more.
        let end = inside
            .match_indices(fence)
            .map(|(at, _)| at)
            .find(|at| !inside[..*at].ends_with('`') && !inside[at + length..].starts_with('`'))
            .unwrap();
        rest = &inside[end + length..];
    }
    outside += rest;
    for part in ["script", "img", "javascript", "@", "hostile", "HYPERLINK"] {
        assert!(!outside.contains(part), "{part}: {outside}");
    }
    // A line for each function of the sweep, with as many cells as the heading.
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 6 && rows.iter().take(6).all(|row| cells(row) == 7), "{text}");
}

#[test]
fn one_form_at_a_time() {
    let (_folder, json) = written(&HOSTILE_RECORD);
    let run = report(&[json.to_str().unwrap(), "--csv", "--markdown"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(run.stderr.contains("cannot be used with"), "{}", run.stderr);
}

#[test]
fn a_page_that_cannot_be_written_is_told_of() {
    let (folder, json) = written(&HOSTILE_RECORD);
    let nowhere = folder.path().join("missing/out.html");
    let run = report(&[json.to_str().unwrap(), "--html", nowhere.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("cannot write the report to"), "{}", run.stderr);
}
