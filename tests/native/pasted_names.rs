//! Names that `list` prints, pasted into a targets file: each selects the function that it was printed for.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, process::Command};

use speed_bump_testing::{Attached, Fixture, Service, session::obstacle, skip, tool, wait::PATIENCE};

/// Functions whose names have what means something to a glob. `pointer` is twice there, so that the pattern
/// `pointer(char*)` would take both.
const SOURCE: &str = r#"
#include <cstdio>
#define OWN __attribute__((noipa))
volatile int sink;
OWN __attribute__((abi_tag("cxx11"))) int tagged(int x) { return sink = x + 1; }
struct Row { OWN int operator[](int x) const { return sink = x + 2; } };
OWN int pointer(char *) { return sink = 3; }
OWN int pointer(char const *) { return sink = 4; }
template <class T> OWN int made(T x, T *) { return sink = x + 5; }
OWN int cloned(int) __asm__("_Z6clonedi.constprop.0");
int cloned(int x) { return sink = x + 6; }
OWN int go(int) __asm__("\"main.(*Server[...]).handle-fm\"");
int go(int x) { return sink = x + 7; }
OWN int swift(int) __asm__("\"$s4main6ServerC6handleyyF\"");
int swift(int x) { return sink = x + 8; }
OWN int rust(int) __asm__("_RNCNvCs4fqI2P2rA04_7mycrate3foo0B3_");
int rust(int x) { return sink = x + 9; }
int main() {
    auto lambda = [](int x, int *) OWN { return sink = x + 10; };
    int which, times;
    puts("{\"event\":\"ready\"}");
    fflush(stdout);
    while (scanf("%d %d", &which, &times) == 2) {
        for (int call = 0; call < times; call++) {
            switch (which) {
            case 0: tagged(call); break;
            case 1: Row()[call]; break;
            case 2: pointer(static_cast<char *>(nullptr)); break;
            case 3: pointer(static_cast<char const *>(nullptr)); break;
            case 4: made(call, &call); break;
            case 5: cloned(call); break;
            case 6: go(call); break;
            case 7: swift(call); break;
            case 8: rust(call); break;
            case 9: lambda(call, &call); break;
            }
        }
        puts("{\"event\":\"done\"}");
        fflush(stdout);
    }
}
"#;

/// What `list` is to call them.
const NAMES: [&str; 10] = [
    "tagged[abi:cxx11](int)",
    "Row::operator[](int) const",
    "pointer(char*)",
    "pointer(char const*)",
    "int made<int>(int, int*)",
    "cloned(int) [clone .constprop.0]",
    "main.(*Server[...]).handle-fm",
    "$s4main6ServerC6handleyyF",
    "mycrate::foo::{closure#0}",
    "main::{lambda(int, int*)#1}::operator()(int, int*) const",
];

fn list(pid: &str, lines: &[String]) -> tool::Run {
    let mut arguments = vec!["list".to_owned(), "--all".to_owned(), "--pid".to_owned(), pid.to_owned()];
    arguments.extend(lines.iter().flat_map(|line| ["-t".to_owned(), line.clone()]));
    let run = tool::run(&arguments, PATIENCE).unwrap();
    assert!(run.status.success(), "{}", run.stderr);
    run
}

fn start() -> (Fixture, Service) {
    let fixture = Fixture::compile_cpp(SOURCE, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    (fixture, service)
}

/// The names at the beginning of lines like `  NAME (FILE), entry symbol`, and after `also called`.
fn printed(stdout: &str, program: &str) -> Vec<Vec<String>> {
    let mut functions: Vec<Vec<String>> = Vec::new();
    for line in stdout.lines() {
        if let Some((name, _)) = line.split_once(&format!(" ({program}")) {
            functions.push(vec![name.trim().to_owned()]);
        } else if let (Some(others), Some(names)) =
            (line.strip_prefix("    also called "), functions.last_mut())
        {
            names.push(others.to_owned());
        }
    }
    functions
}

#[test]
fn names_pasted_from_list_select_what_they_were_printed_for() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start();
    let program = fixture.program().to_str().unwrap();
    let listed = list(&service.pid().to_string(), &["native:*/program:*".to_owned()]);
    let functions = printed(&listed.stdout, program);
    let shown: BTreeSet<&str> = functions.iter().map(|names| names[0].as_str()).collect();
    for name in NAMES {
        assert!(shown.contains(name), "{name} is not in:\n{}", listed.stdout);
    }

    let lines: Vec<String> = NAMES.iter().map(|name| format!("native:*/program:{name}\n")).collect();
    let session = Attached::start(service.pid(), &lines.concat(), &["--strict"]).unwrap();
    for (which, _) in NAMES.iter().enumerate() {
        service.ask(&format!("{which} {}", 10 + which)).unwrap();
    }
    let ended = session.stop().unwrap();
    for (which, name) in NAMES.iter().enumerate() {
        let calls = 10 + which as u64;
        assert_eq!(ended.counts(which), (calls, calls), "{name}: {}", ended.target(which));
        assert_eq!(ended.functions(which).len(), 1, "{name}");
    }
}

#[test]
fn a_misspelt_name_has_the_right_one_named_as_list_prints_it() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let pid = service.pid().to_string();
    let program = fixture.program().to_str().unwrap();
    for (written, right) in [
        ("taged[abi:cxx11](int)", "tagged[abi:cxx11](int)"),
        ("tagged[abi:cxx11](long)", "tagged[abi:cxx11](int)"),
        ("Row::operator[](long) const", "Row::operator[](int) const"),
        ("clond(int) [clone .constprop.0]", "cloned(int) [clone .constprop.0]"),
        ("mycrate::fo::{closure#0}", "mycrate::foo::{closure#0}"),
    ] {
        let listed = list(&pid, &[format!("native:*/program:{written}")]);
        let nearest = listed.stderr.split_once("similar names are `").map_or("", |(_, names)| names);
        let first = format!("native:{program}:{right}");
        assert_eq!(nearest.split('`').next(), Some(first.as_str()), "{written}: {}", listed.stderr);
        // And what was named is taken as it is.
        let listed = list(&pid, &[first]);
        assert!(listed.stdout.contains("selects 1 function "), "{right}: {}", listed.stdout);
    }
}

#[test]
fn names_that_nm_prints_are_those_of_list() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let nm = Command::new("nm").args(["-C", "--defined-only"]).arg(fixture.program()).output().unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    // `ADDRESS TYPE NAME`. nm gives templates no return type.
    let code = text.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    let names: Vec<String> = code.filter(|name| name.contains('(')).map(str::to_owned).collect();
    assert!(names.len() >= 8, "{text}");
    let lines: Vec<String> = names.iter().map(|name| format!("native:*/program:{name}")).collect();
    let listed = list(&service.pid().to_string(), &lines);
    let selected = listed.stdout.matches("selects 1 function ").count();
    assert_eq!(selected, names.len(), "{}", listed.stdout);
}
