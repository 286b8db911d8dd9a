//! `list`, `--strict` and `--no-inject` where the helper is the way to Python functions.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{session::command, tool::Running, wait::PATIENCE};
use speed_bump_tests::calls::{code, list, run, start};
use speed_bump_tests::helper::{GETPPID, attach, images, on_each, threads, tools};

#[test]
fn loaded_functions_are_named_before_anything_is_slowed() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        let before = code(pid, python);
        let run = list(pid, "*/calls.py:K.*\n*/calls.py:*\n*:no_such\n", &["--all", "--delay", "20us"]);
        assert!(run.status.success(), "{python}: {}", run.stderr);
        for part in [
            "Python calls through the helper",
            "read as py; engine helper, delay 20us; selects ",
            "\n  K.m (",
            "\n  outer (",
            "\n  outer.<locals>.inner (",
            // Never called: only the helper knows it.
            "\n  late (",
            ", entry helper",
            "a later target selects it too, without effect: number 2",
        ] {
            assert!(run.stdout.contains(part), "{python}: no `{part}` in {}", run.stdout);
        }
        for part in ["the helper was loaded, inspected ", "line 3: `*:no_such` selects nothing"] {
            assert!(run.stderr.contains(part), "{python}: no `{part}` in {}", run.stderr);
        }
        // Nothing there is called anything like it.
        assert!(!run.stderr.contains("similar names"), "{python}: {}", run.stderr);
        assert_eq!((threads(pid), images(pid)), (0, 1), "{python}");
        assert_eq!(tools(python, &mut service).len(), 0, "{python}");
        assert_eq!(code(pid, python), before, "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn a_site_is_listed_with_its_own_function() {
    on_each(|python| {
        let service = start(python, &[]);
        let run = list(service.pid(), &format!("*/calls.py:plain\n{GETPPID}"), &[]);
        assert!(run.status.success(), "{python}: {}", run.stderr);
        let lines = run.stdout.split_once("\nline 1: ").unwrap().1;
        let (of_python, of_native) = lines.split_once("\nline 2: ").unwrap();
        assert!(of_python.contains("\n  plain ("), "{python}: {}", run.stdout);
        assert!(of_native.contains("\n  getppid ("), "{python}: {}", run.stdout);
        // The helper's stub is no site that is known before.
        let sites = [of_python, of_native].map(|lines| lines.matches("\n    site ").count());
        assert_eq!(sites, [0, 1], "{python}: {}", run.stdout);
    });
}

#[test]
fn a_target_that_selects_nothing_is_told_with_the_nearest_names() {
    on_each(|python| {
        let service = start(python, &[]);
        let pid = service.pid();
        let run = list(pid, "*/calls.py:plaim\n*/call.py:K.m\n*/calls.py:plain\n*/calls.py:pla?n\n", &[]);
        assert!(run.status.success(), "{python}: {}", run.stderr);
        let lines: Vec<&str> = run.stderr.lines().collect();
        for (warning, name) in
            [("line 1: `*/calls.py:plaim`", "/calls.py:plain"), ("line 2: `*/call.py:K.m`", "/calls.py:K.m")]
        {
            let place = lines.iter().position(|line| line.contains(warning)).unwrap();
            let why = lines[place + 1];
            let told = format!("process {pid}: similar names are `");
            assert!(why.contains(&told), "{python}: {}", run.stderr);
            let names = why.split_once(&told).unwrap().1;
            assert!(names.split('`').next().unwrap().ends_with(name), "{python}: {}", run.stderr);
            assert!(names.split("`, `").count() <= 3, "{python}: {}", run.stderr);
        }
        // What belongs to an earlier target has that for a reason.
        let last = lines.iter().position(|line| line.contains("line 4: ")).unwrap();
        assert!(
            lines[last + 1].contains("line 3 already selects what it would select"),
            "{python}: {}",
            run.stderr
        );
        assert_eq!((threads(pid), images(pid)), (0, 1), "{python}");
    });
}

#[test]
fn sessions_name_the_nearest_too() {
    on_each(|python| {
        let service = start(python, &[]);
        let pid = service.pid();
        let session = attach(&service, "*/calls.py:plaim\n*/calls.py:plain\n", &[]);
        let ended = session.stop().unwrap();
        let warnings = ended.report["warnings"].to_string();
        assert!(warnings.contains("line 1: `*/calls.py:plaim`: similar names are "), "{python}: {warnings}");
        assert!(warnings.contains("/calls.py:plain"), "{python}: {warnings}");
        assert!(!warnings.contains("line 2"), "{python}: {warnings}");

        let folder = tempfile::tempdir().unwrap();
        let flags = ["--entry", "helper", "--strict"];
        let mut strict = command(folder.path(), pid, "*/calls.py:plaim\n", &flags).unwrap();
        let run = Running::start(&mut strict).unwrap().finish(PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(3), "{python}: {}", run.stderr);
        assert!(
            run.stderr.contains("similar names are ") && run.stderr.contains("/calls.py:plain"),
            "{}",
            run.stderr
        );
        assert_eq!((threads(pid), images(pid)), (0, 1), "{python}");
    });
}

#[test]
fn without_injection_it_says_what_cannot_be_known() {
    on_each(|python| {
        let service = start(python, &[]);
        let run = list(service.pid(), "*/calls.py:plain\n", &["--no-inject"]);
        let told = format!("{}{}", run.stdout, run.stderr);
        assert_eq!(images(service.pid()), 0, "{python}");
        if python.usdt_fires() {
            assert!(run.status.success() && told.contains("through usdt"), "{python}: {told}");
        } else {
            assert_eq!(run.status.code(), Some(4), "{python}: {told}");
            assert!(told.contains("--no-inject forbids the helper"), "{python}: {told}");
        }
    });
}

#[test]
fn strictly_a_target_that_selects_nothing_is_an_error() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let pid = service.pid();
        let before = code(pid, python);
        let targets = format!("*/calls.py:plain\n*:no_such\n{GETPPID}");
        for verb in [list, run] {
            let run = verb(pid, &targets, &["--strict"]);
            assert_eq!(run.status.code(), Some(3), "{python}: {}", run.stderr);
            assert!(run.stderr.contains("line 2: `*:no_such` selects nothing"), "{python}: {}", run.stderr);
            assert!(run.stderr.matches("selects nothing").count() == 1, "{python}: {}", run.stderr);
        }
        assert_eq!(tools(python, &mut service).len(), 0, "{python}");
        assert_eq!(code(pid, python), before, "{python}");
        service.ask("times(10, plain, 1)").unwrap();
    });
}

#[test]
fn otherwise_it_is_a_warning_and_may_come_to_life() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "<born>:f\n", &["--delay", "1us"]);
        service.ask("exec(compile('def f(): pass', '<born>', 'exec')); times(9, f)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (9, 9), "{python}");
        assert!(
            ended.run.stderr.contains("line 1: `<born>:f` selects nothing"),
            "{python}: {}",
            ended.run.stderr
        );
    });
}

#[test]
fn the_helper_alone_is_refused_where_it_may_not_be_injected() {
    on_each(|python| {
        let service = start(python, &[]);
        let run = run(service.pid(), "*/calls.py:plain\n", &["--entry", "helper", "--no-inject"]);
        assert_eq!(run.status.code(), Some(4), "{python}: {}", run.stderr);
        assert!(run.stderr.contains("--no-inject forbids the helper"), "{python}: {}", run.stderr);
        assert_eq!(images(service.pid()), 0, "{python}");
    });
}
