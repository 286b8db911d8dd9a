//! Names of a target that try to deceive its viewer reach the terminal as text and nothing else: they set no
//! title, move no cursor, reverse no line, and forge no line of the tool.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    ffi::OsStr,
    fs,
    mem::offset_of,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use speed_bump_abi::control_block::{ControlBlock, Failure, State};
use speed_bump_testing::{
    Fixture, Service, everybody, places,
    session::obstacle,
    skip,
    tool::{self, Run},
    wait::{PATIENCE, wait_until},
};
use tempfile::TempDir;

/// The user of the targets.
const NOBODY: u32 = 65_534;

/// A text that should look like the tool's own.
const FORGED: &str = "speed-bump-ebpf: error: forged";

/// Names of functions: text that a terminal would obey, invisible text, and text that is ordinary elsewhere.
const NAMES: [&str; 14] = [
    "title\u{1b}]0;owned\u{7}",
    "forger\nspeed-bump-ebpf: error: forged",
    "returns\rspeed-bump-ebpf: error: forged",
    "conceals\u{1b}[8m",
    "c1\u{9b}8m",
    "deletes\u{7f}\u{8}\u{8}",
    "tab\tbed",
    "bidi\u{202e}dekcab\u{2066}",
    "invisible\u{200b}\u{200f}\u{2060}\u{feff}",
    "lines\u{2028}speed-bump-ebpf: error: forged\u{2029}",
    "lone\u{fffd}",
    "名前の長い関数",
    "cafe\u{301}",
    "nul\u{1}",
];

/// Names that are ordinary text, and stay as they are.
const READABLE: [&str; 3] = ["lone\u{fffd}", "名前の長い関数", "cafe\u{301}"];

/// A target of nobody's, and the files that it has.
struct Hostile {
    service: Service,
    python: everybody::Python,
    folder: TempDir,
}

#[derive(Clone, Copy, Default)]
struct Also {
    /// Reports a failure in the helper's place.
    in_helpers_place: bool,
    /// Ends, and no process waits for it.
    zombie: bool,
}

impl Hostile {
    fn start(also: Also) -> Option<Self> {
        if let Some(why) = obstacle() {
            skip!("{why}");
            return None;
        }
        let Some(python) = everybody::python(|_| true).unwrap() else {
            skip!("{}", everybody::NO_PYTHON);
            return None;
        };
        let folder = everybody::folder().unwrap();
        let script = folder.path().join("target.py");
        fs::write(&script, include_str!("hostile_names/target.py")).unwrap();
        let source = "int work(int n) { return n + 1; }\n\
                      int evil(int n) __asm__(\"\\\"evil\\342\\200\\256\\\"\");\n\
                      int evil(int n) { return n + 2; }\n";
        let built = Fixture::compile_text(source, &["-shared", "-fPIC"]).unwrap();
        let library = folder.path().join(format!("lib\u{1b}]0;owned\u{7}\n{FORGED}.so"));
        fs::copy(built.program(), &library).unwrap();
        let block = json!({
            "state": offset_of!(ControlBlock, state),
            "failed": State::Failed as u32,
            "failure": offset_of!(ControlBlock, failure),
            "failed_as": Failure::Python as u32,
            "text": offset_of!(ControlBlock, failure_text),
            "words": format!("said\u{1b}]0;owned\u{7}\n{FORGED}"),
        });
        let given = json!({
            "library": library,
            "file": format!("/srv/app\u{1b}]0;owned\u{7}\n{FORGED}.py"),
            "functions": NAMES,
            "comm": "c\u{1b}[8m\n\rspeed-b",
            "block": if also.in_helpers_place { block } else { Value::Null },
            "zombie": also.zombie,
        });
        let mut command = python.command(&script);
        command.arg(given.to_string()).uid(NOBODY).gid(NOBODY);
        Some(Self { service: Service::start(&mut command).unwrap(), python, folder })
    }

    fn pid(&self) -> String {
        self.service.pid().to_string()
    }

    fn targets(&self, text: &str) -> PathBuf {
        let file = self.folder.path().join("targets.txt");
        fs::write(&file, text).unwrap();
        file
    }

    /// Runs the tool with its output to pipes.
    fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Run {
        let run = tool::run(arguments, PATIENCE).unwrap();
        is_text(&run.stdout);
        is_text(&run.stderr);
        run
    }

    /// Runs the tool on a terminal: what came there, without the sequences by which the tool itself draws.
    fn run_on_terminal<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        let script = self.folder.path().join("terminal.py");
        fs::write(&script, include_str!("hostile_names/terminal.py")).unwrap();
        let mut command = self.python.command(&script);
        command.arg(tool::path().unwrap()).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let drawn = without_drawing(&String::from_utf8(output.stdout).unwrap());
        is_text(&drawn);
        drawn
    }
}

/// Without what indicatif draws with, the colours of log levels, and the terminal's own line ends.
fn without_drawing(raw: &str) -> String {
    let mut text = raw.replace("\r\n", "\n");
    for own in ["\u{1b}[2K", "\u{1b}[1A", "\u{1b}[1B", "\u{1b}[0m", "\u{1b}[2m", "\u{1b}[3m"] {
        text = text.replace(own, "");
    }
    for colour in 31..=35 {
        text = text.replace(&format!("\u{1b}[{colour}m"), "");
    }
    // indicatif goes up several lines at once, and to the first column.
    for lines in 1..100 {
        text = text.replace(&format!("\u{1b}[{lines}A"), "");
    }
    // To the first column only where a line is drawn anew, which begins with what is above.
    text.replace('\r', "\n")
}

/// Contains nothing that a terminal obeys, nothing invisible, and no line that the tool did not write.
fn is_text(text: &str) {
    for c in text.chars() {
        let is_hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}');
        assert!(c == '\n' || !(c.is_control() || is_hidden), "{c:?} in {text:?}");
    }
    for line in text.lines() {
        assert!(!line.trim_start().starts_with(FORGED), "a line was forged: {line:?} in {text}");
        let breaks = ["\\n", "\\r", "\\u{2028}", "\\u2028"].map(|written| format!("{written}{FORGED}"));
        let is_shown = breaks.iter().any(|shown| line.contains(shown.as_str()));
        assert!(is_shown || !line.contains(FORGED), "not seen for what it is: {line:?}");
    }
}

const TARGETS: &str = "py:*forged.py:*\nnative:*forged.so:*\nnative:*forged.so:no_such\n";

#[test]
fn list_shows_names_for_what_they_are() {
    let Some(hostile) = Hostile::start(Also::default()) else { return };
    let targets = hostile.targets(TARGETS);
    let run =
        hostile.run(&["list", "--all", "--pid", &hostile.pid(), "--targets", targets.to_str().unwrap()]);
    assert!(run.status.success(), "{}", run.stderr);
    for shown in
        ["title\\x1b]0;owned\\x07", "forger\\n", "bidi\\u{202e}", "(c\\x1b[8m\\n\\rspeed-b)", "tab\\tbed"]
    {
        assert!(run.stdout.contains(shown), "`{shown}` in {}", run.stdout);
    }
    for name in READABLE {
        assert!(run.stdout.contains(name), "`{name}` in {}", run.stdout);
    }
    assert!(run.stderr.contains("selects nothing"), "{}", run.stderr);
    assert!(run.stderr.contains("\n  process "), "the tool's own lines are lines: {}", run.stderr);
}

#[test]
fn a_session_shows_names_for_what_they_are() {
    let Some(hostile) = Hostile::start(Also::default()) else { return };
    let targets = hostile.targets(TARGETS);
    let report = hostile.folder.path().join("report.json");
    let flags = ["--delay", "0", "--duration", "1s", "-vv", "--json", report.to_str().unwrap()];
    let first = ["--pid", &hostile.pid(), "--targets", targets.to_str().unwrap()];
    let run = hostile.run(&[&first[..], &flags].concat());
    assert!(run.status.success(), "{}", run.stderr);
    for shown in [
        "bidi\\u{202e}dekcab\\u{2066} (app\\x1b]0;owned\\x07\\nspeed-bump-ebpf: error: forged.py:",
        "title\\x1b]0;owned\\x07 is covered",
    ] {
        assert!(run.stderr.contains(shown), "`{shown}` in {}", run.stderr);
    }
    // What programs read is exact.
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let functions = report["targets"][0]["functions"].as_array().unwrap();
    for name in NAMES {
        assert!(functions.iter().any(|function| function["name"] == name), "{name:?} in {functions:?}");
    }
}

#[test]
fn the_columns_of_the_table_stand_below_each_other() {
    let Some(hostile) = Hostile::start(Also::default()) else { return };
    let targets = hostile.targets("py:*forged.py:*\n");
    let flags = ["--delay", "0", "--duration", "500ms"];
    let first = ["--pid", &hostile.pid(), "--targets", targets.to_str().unwrap()];
    let run = hostile.run(&[&first[..], &flags].concat());
    assert!(run.status.success(), "{}", run.stderr);
    // The last column is aligned to the right.
    let table = run.stderr.lines().skip_while(|line| !line.trim_start().starts_with("calls  delayed"));
    let ends: Vec<usize> = table.take_while(|line| !line.starts_with("detached")).map(columns).collect();
    assert!(ends.len() > NAMES.len(), "{}", run.stderr);
    assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{ends:?} in\n{}", run.stderr);
}

/// How many columns of a terminal a text takes, as far as the names of this test go.
fn columns(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '\u{301}' => 0,
            '\u{2e80}'..='\u{9fff}' => 2,
            _ => 1,
        })
        .sum()
}

#[test]
fn a_terminal_is_told_nothing_by_names() {
    let Some(hostile) = Hostile::start(Also::default()) else { return };
    let targets = hostile.targets(TARGETS);
    let first = ["--pid", &hostile.pid(), "--targets", targets.to_str().unwrap()];
    let flags = ["--delay", "0", "--duration", "2s", "-vv"];
    let said = hostile.run_on_terminal(&[&first[..], &flags].concat());
    assert!(said.contains("title\\x1b]0;owned\\x07 is covered") && said.contains("attached; "), "{said}");
    let is_live = |line: &str| line.starts_with("function ") && line.contains("calls  delayed");
    assert!(said.lines().any(is_live), "no table was drawn: {said}");
    let said = hostile.run_on_terminal(&[&["list", "--all"], &first[..]].concat());
    assert!(said.contains("title\\x1b]0;owned\\x07"), "{said}");
    // JSON, too, may be read on a terminal.
    let flags = ["--delay", "0", "--duration", "200ms", "--json", "-", "--quiet"];
    let said = hostile.run_on_terminal(&[&first[..], &flags].concat());
    assert!(said.contains("\"title\\u001b]0;owned\\u0007\""), "{said}");
}

#[test]
fn doctor_shows_names_for_what_they_are() {
    let Some(hostile) = Hostile::start(Also::default()) else { return };
    let run = hostile.run(&["doctor", "--pid", &hostile.pid()]);
    assert!(run.stdout.contains("c\\x1b[8m\\n\\rspeed-b"), "{}", run.stdout);
    hostile.run(&["doctor", "--json", "--pid", &hostile.pid()]);
}

#[test]
fn words_in_the_helpers_place_are_shown_for_what_they_are() {
    let Some(hostile) = Hostile::start(Also { in_helpers_place: true, ..Also::default() }) else { return };
    let targets = hostile.targets("py:*forged.py:*\nnative:*forged.so:work\n");
    let first = ["--pid", &hostile.pid(), "--targets", targets.to_str().unwrap()];
    let run = hostile.run(&[&first[..], &["--delay", "0", "--duration", "2s"]].concat());
    let shown = format!("(said\\x1b]0;owned\\x07\\n{FORGED})");
    assert!(run.stderr.contains(&shown), "{}", run.stderr);
}

#[test]
fn errors_show_names_for_what_they_are() {
    let Some(hostile) = Hostile::start(Also { zombie: true, ..Also::default() }) else { return };
    let pid = hostile.service.pid();
    let is_zombie = || Ok(fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") Z "));
    wait_until("the target has ended", is_zombie).unwrap();
    let targets = hostile.targets("py:*:*\n");
    let first = ["--pid", &hostile.pid(), "--targets", targets.to_str().unwrap()];
    let run = hostile.run(&first);
    assert!(run.stderr.contains("(c\\x1b[8m\\n\\rspeed-b) is a zombie"), "{}", run.stderr);

    // Names that the user gave, and may have copied from elsewhere.
    let named = format!("no\u{1b}]0;owned\u{7}\n{FORGED}");
    let shown = format!("no\\x1b]0;owned\\x07\\n{FORGED}");
    let elsewhere = hostile.folder.path().join(&named);
    let elsewhere = elsewhere.to_str().unwrap();
    for arguments in [
        vec!["run", "--targets", targets.to_str().unwrap(), "--", elsewhere],
        vec!["run", "--targets", elsewhere, "--", "true"],
        vec!["run", "--user", &named, "--targets", targets.to_str().unwrap(), "--", "true"],
        vec!["--pid", "1", "--targets", targets.to_str().unwrap(), "--json", &format!("{elsewhere}/report")],
        vec!["--pid", "1", "--delay", &named, "--targets", targets.to_str().unwrap()],
    ] {
        let run = hostile.run(&arguments);
        assert!(!run.status.success() && run.stderr.contains(&shown), "{}", run.stderr);
    }
    fs::write(&targets, "\u{1b}]0;owned\u{7}\u{2028}x\nno\u{202e}colon\n").unwrap();
    let run = hostile.run(&first_of_us(&targets));
    assert_eq!(run.stderr.lines().count(), 2, "a line for each line of the file: {}", run.stderr);
    assert!(run.stderr.contains("\\x1b]0;owned\\x07\\u{2028}x`"), "{}", run.stderr);
}

/// Arguments that get as far as the targets file.
fn first_of_us(targets: &Path) -> [&str; 5] {
    ["run", "--targets", targets.to_str().unwrap(), "--", "true"]
}

#[test]
fn the_environment_is_shown_for_what_it_is() {
    let Some(hostile) = Hostile::start(Also::default()) else { return };
    let targets = hostile.targets("py:*:*\n");
    let mut command = Command::new(tool::path().unwrap());
    command.args(["--pid", &hostile.pid(), "--targets"]).arg(targets);
    command.env("SPEED_BUMP_DELAY_NS", format!("1\u{1b}[8m\n{FORGED}"));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    is_text(&said);
    assert!(said.contains("1\\x1b[8m\\n"), "{said}");
}

#[test]
fn everything_is_printed_in_one_place() {
    let (mut looked_at, mut offenders) = (0, Vec::new());
    // What runs inside of targets and in the kernel has no terminal.
    let is_loaders =
        |folder: &PathBuf| !folder.ends_with("speed-bump-helper") && !folder.ends_with("speed-bump-ebpf");
    for folder in places::crates().unwrap().into_iter().filter(is_loaders) {
        look_for_printing(&folder.join("src"), &mut looked_at, &mut offenders);
    }
    assert!(looked_at > 100, "only {looked_at} files were found: is the search broken?");
    assert_eq!(offenders, [""; 0], "these print past cli/terminal.rs, which makes names printable");
}

fn look_for_printing(folder: &Path, looked_at: &mut usize, offenders: &mut Vec<String>) {
    const PRINTING: [&str; 5] = ["print!(", "println!(", "stdout().lock", "stderr().lock", "set_message("];
    // The place itself, reports for programs, and the live table, whose cells are made printable one by one.
    const ALLOWED: [&str; 4] = ["cli/terminal.rs", "stats/output.rs", "stats/json_lines.rs", "cli/live.rs"];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Of the tree itself, which may lie anywhere.
        let name = path.strip_prefix(places::root()).unwrap().to_str().unwrap();
        if path.is_dir() {
            look_for_printing(&path, looked_at, offenders);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && !name.contains("/tests/") {
            *looked_at += 1;
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let prints = |line: &str| PRINTING.iter().any(|word| line.contains(word));
            let is_allowed = ALLOWED.iter().any(|allowed| name.ends_with(allowed));
            if !is_allowed && code.into_iter().any(prints) {
                offenders.push(name.to_owned());
            }
        }
    }
}
