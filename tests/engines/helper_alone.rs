//! The engine `helper` without BPF: if only helpers count and delay, no BPF is loaded.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use speed_bump_testing::{Attached, pythons, pythons::Form, tool, wait::PATIENCE};
use speed_bump_tests::calls::start;
use speed_bump_tests::helper::{attach, on_each, one_by_one, threads};

const ALONE: [&str; 5] = ["--engine", "helper", "--no-children", "--delay", "200us"];

/// The BPF objects of a session: maps, programs and links.
fn bpf_of(session: &Attached) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", session.pid())).unwrap();
    let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.unwrap().path()).ok());
    // `anon_inode:bpf-map` and the like; files of a tree may have such names too.
    let is_bpf = |target: &PathBuf| {
        let target = target.to_string_lossy();
        target.starts_with("anon_inode:") && target.contains("bpf")
    };
    targets.filter(is_bpf).collect()
}

fn set(session: &Attached, arguments: &[&str]) -> tool::Run {
    let session = session.pid().to_string();
    tool::run(&[&["set", "--session", &session], arguments].concat(), PATIENCE).unwrap()
}

#[test]
fn it_loads_no_bpf_and_counts_and_delays_all_the_same() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &ALONE);
        assert_eq!(bpf_of(&session), [""; 0].map(PathBuf::from), "{python}");
        service.ask("times(30, plain, 1)").unwrap();
        let changed = set(&session, &["*calls.py:plain", "delay=1us", "frequency=2"]);
        assert!(changed.status.success(), "{python}: {}", changed.stderr);
        service.ask("times(10, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (40, 35), "{python}: {}", ended.run.stderr);
        assert_eq!(ended.report["engine"], "helper", "{python}");
        assert_eq!(threads(service.pid()), 0, "{python}");
    });
}

#[test]
fn with_children_or_other_engines_it_is_loaded() {
    on_each(|python| {
        for flags in [&ALONE[..2], &["--no-children"]] {
            let service = start(python, &[]);
            let session = attach(&service, "*calls.py:plain\n", flags);
            assert_ne!(bpf_of(&session), [""; 0].map(PathBuf::from), "{python} {flags:?}");
            session.stop().unwrap();
        }
    });
}

#[test]
fn targets_come_and_go_and_those_that_need_probes_are_refused() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &ALONE);
        let added = set(&session, &["*calls.py:other", "delay=1us", "--add"]);
        assert!(added.status.success(), "{python}: {}", added.stderr);
        // The helper surveys the loaded functions once more.
        session.wait_for("other is covered").unwrap();
        service.ask("times(7, other, 1)").unwrap();
        let refused = set(&session, &["native:*/libc[-.]*:getppid", "--add"]);
        assert!(!refused.status.success(), "{python}: {}", refused.stdout);
        assert!(refused.stderr.contains("needs probes"), "{python}: {}", refused.stderr);
        assert_eq!(session.stop().unwrap().counts(1), (7, 7), "{python}");
    });
}

/// There are no notifications here: the tool polls.
#[test]
fn it_ends_when_the_process_executes_another_program() {
    const EXEC: &str = "import os, threading
threading.Timer(0.1, lambda: os.execv('/bin/sleep', ['sleep', '1000'])).start()";
    // Others have no such program.
    let python = pythons().iter().rfind(|python| python.form == Form::Direct);
    one_by_one(&python.into_iter().collect::<Vec<_>>(), |python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &ALONE);
        service.ask("times(3, plain, 1)").unwrap();
        service.ask(&format!("exec({EXEC:?})")).unwrap();
        let ended = session.finish().unwrap();
        assert_eq!(ended.counts(0), (3, 3), "{python}: {}", ended.run.stderr);
        let said = &ended.run.stderr;
        assert!(said.contains("the target executed another program"), "{python}: {said}");
    });
}
