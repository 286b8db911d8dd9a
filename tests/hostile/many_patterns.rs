//! Ten thousand patterns that could match in many ways, and names that nearly do: trying all ways would never
//! end, and doing so with the interpreter's lock would stop the program.

#![allow(clippy::unwrap_used)]

use std::{fmt::Write as _, fs, path::Path, process::Command};

use speed_bump_testing::{
    Attached, Fixture, Service, pythons::pythons, session::obstacle, skip, tool, wait::PATIENCE,
};

const PATTERNS: usize = 10_000;

/// `*a*a*a…*0*1*2*3*4*b`, for each number.
fn targets(module: &str) -> String {
    let mut lines = String::new();
    for number in 0..PATTERNS {
        let digits: Vec<String> = format!("{number:05}").chars().map(String::from).collect();
        writeln!(lines, "{module}:{}*{}*b", "*a".repeat(20), digits.join("*")).unwrap();
    }
    lines
}

/// A name that nearly matches most of the patterns.
fn name(number: usize) -> String {
    format!("{}_{number}_0123456789_b", "a".repeat(100))
}

#[test]
fn ten_thousand_patterns_over_long_symbols_are_listed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut text = String::from("#include <stdio.h>\n");
    for number in 0..2_000 {
        writeln!(text, "int {}(int x) {{ return x * {number}; }}", name(number)).unwrap();
    }
    text.push_str(
        "int main(void) { puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout); return getchar(); }\n",
    );
    let fixture = Fixture::compile_text(&text, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let file = fixture.folder().join("targets.txt");
    fs::write(&file, targets("native:*/program")).unwrap();
    let arguments = ["list", "--pid", &service.pid().to_string(), "--targets", file.to_str().unwrap()];
    let run = tool::run(&arguments, PATIENCE).unwrap();
    assert!(run.status.success(), "{} {:.2000}", run.status, run.stderr);
    // 12345 and those like it are in `0123456789`, one digit after the other.
    assert!(run.stdout.contains("*0*1*2*3*4*b\n"), "{:.2000}", run.stdout);
    assert!(run.stdout.contains(&name(7)), "{:.2000}", run.stdout);
}

#[test]
fn ten_thousand_patterns_do_not_stop_a_python_program() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    // Fewer functions than are judged in one go if that is quick.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile/many_patterns/target.py");
    // By frame evaluation, and by `sys.monitoring`.
    let old = pythons().iter().find(|python| python.minor() < (3, 12));
    let new = pythons().iter().find(|python| python.minor() >= (3, 12) && !python.free_threaded);
    if old.or(new).is_none() {
        return skip!("no Python");
    }
    for python in old.into_iter().chain(new) {
        // It takes a second or so in all: a piece may take a tenth of one.
        let name = "a".repeat(2_000) + &name(0);
        let mut service = Service::start(python.command(&script).args(["900", &name])).unwrap();
        let session =
            Attached::start(service.pid(), &targets("py:*/many.py"), &["--duration", "1s"]).unwrap();
        let ended = session.finish().unwrap();
        assert!(ended.run.status.success(), "{} {:.2000}", ended.run.status, ended.run.stderr);
        let waits = service.ask("waits").unwrap();
        let of = |what: &str| waits[0][what].as_f64().unwrap();
        // In pieces, none of which is much of the whole.
        assert!(of("longest") * 3.0 < of("all"), "{} {waits:?}", python.version_text);
    }
}
