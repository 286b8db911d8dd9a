//! Perf maps that are not what the process wrote: leftovers, garbage, other people's files.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    os::unix::fs::{chown, symlink},
    path::PathBuf,
};

use speed_bump_testing::{
    Attached, PythonBuild, case_ran, pythons::Form, session::obstacle, skip, skip_case,
};
use speed_bump_tests::calls::{code, list, run, start, with_trampolines};

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Runs a case on an interpreter that shares the machine's /tmp, and on one that has its own: how a map is
/// judged does not depend on the release, nor on who loads the interpreter.
fn on_each(case: impl Fn(&PythonBuild)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for (case_name, has_own_tmp) in [("the machine's /tmp", false), ("its own /tmp", true)] {
        match with_trampolines().find(|python| (python.form == Form::Container) == has_own_tmp) {
            Some(python) => {
                case(python);
                case_ran!();
            }
            None => {
                skip_case!(case_name, "no such Python has perf trampolines here: run `cargo xtask pythons`")
            }
        }
    }
}

/// The process's perf map, through its own root.
fn map_of(pid: i32) -> PathBuf {
    format!("/proc/{pid}/root/tmp/perf-{pid}.map").into()
}

/// Lines as CPython writes them, for memory that the process uses otherwise: its files' code, its heap, its
/// stack, and none at all.
fn leftovers(pid: i32) -> String {
    let mut text = String::from("1000 b py::plain:/x/calls.py\nffffffffff600000 b py::plain:/x/calls.py\n");
    for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let start = line.split_once('-').unwrap().0;
        let is_file = line.split_whitespace().nth(5).is_some();
        if is_file {
            writeln!(text, "{start} b py::ghost:/x/calls.py\n{start} b py::plain:/x/calls.py").unwrap();
        }
    }
    text
}

#[test]
fn garbage_and_leftovers_in_the_map_change_nothing() {
    on_each(|python| {
        let mut service = start(python, &["-X", "perf"]);
        service.ask("plain(1)").unwrap();
        let pid = service.pid();
        let mut map = fs::OpenOptions::new().append(true).open(map_of(pid)).unwrap();
        let mut garbage = leftovers(pid).into_bytes();
        garbage.extend(b"\n\nzz zz zz\n7f 0 py::\n-1 -1 py::a:b\n\xff\xfe\x00 b py::plain:/x/calls.py\n");
        garbage.extend(b"ffffffffffffffff ffffffffffffffff py::plain:/x/calls.py\n");
        garbage.extend(vec![b'A'; 3 << 20]);
        garbage.push(b'\n');
        map.write_all(&garbage).unwrap();
        let session = Attached::start(
            pid,
            "*/calls.py:plain\n*/calls.py:ghost\n*/calls.py:late\n",
            &["--no-inject", "-vv"],
        )
        .unwrap();
        service.ask("times(100, plain, 1)").unwrap();
        // What the process itself appends behind all that is found, and more garbage does no harm.
        service.ask("late(1)").unwrap();
        session.wait_for("late is covered").unwrap();
        map.write_all(&garbage).unwrap();
        service.ask("times(50, late, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (100, 100), "{python}");
        assert_eq!(ended.functions(0), ["plain"], "{python}");
        assert_eq!(ended.counts(1), (0, 0), "{python}");
        assert!((50..=51).contains(&ended.counts(2).0), "{python}: {:?}", ended.counts(2));
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn a_dead_processs_map_is_no_trampolines() {
    on_each(|python| {
        if python.usdt_fires() {
            return; // it would be taken through the probe
        }
        let service = start(python, &[]);
        let (pid, before) = (service.pid(), code(service.pid(), python));
        fs::write(map_of(pid), leftovers(pid)).unwrap();
        let run = run(pid, "*/calls.py:plain\n", &["--no-inject"]);
        fs::remove_file(map_of(pid)).unwrap();
        assert_eq!(run.status.code(), Some(4), "{python}: {}", run.stderr);
        assert!(run.stderr.contains("-X perf"), "{python}: {}", run.stderr);
        assert_eq!(code(pid, python), before, "{python}");
    });
}

#[test]
fn another_users_map_and_a_link_are_not_trusted() {
    on_each(|python| {
        let mut service = start(python, &["-X", "perf"]);
        service.ask("plain(1)").unwrap();
        let pid = service.pid();
        let entry: &[&str] = &["--entry", "perf-map"];
        chown(map_of(pid), Some(NOBODY), Some(NOBODY)).unwrap();
        let listed = list(pid, "*/calls.py:plain\n", entry);
        assert!(!listed.stdout.contains("plain ("), "{python}: {}", listed.stdout);
        let said = format!("{}{}", listed.stdout, listed.stderr);
        assert!(said.contains("belongs to user 65534") && said.contains("not trusted"), "{python}: {said}");

        if !python.usdt_fires() {
            let refused = run(pid, "*/calls.py:plain\n", &["--no-inject"]);
            assert_eq!(refused.status.code(), Some(4), "{python}: {}", refused.stderr);
            assert!(refused.stderr.contains("not trusted"), "{python}: {}", refused.stderr);
        }

        // A link that leads to a map which would do.
        let moved = map_of(pid).with_extension("moved");
        fs::rename(map_of(pid), &moved).unwrap();
        chown(&moved, Some(0), Some(0)).unwrap();
        symlink(format!("/tmp/perf-{pid}.moved"), map_of(pid)).unwrap();
        let listed = list(pid, "*/calls.py:plain\n", entry);
        assert!(!listed.stdout.contains("plain ("), "{python}: {}", listed.stdout);
        let said = format!("{}{}", listed.stdout, listed.stderr);
        assert!(said.contains("cannot read /tmp/perf-"), "{python}: {said}");

        fs::rename(&moved, map_of(pid)).unwrap();
        let listed = list(pid, "*/calls.py:plain\n", entry);
        assert!(listed.stdout.contains("plain ("), "{python}: {}", listed.stdout);
    });
}
