//! The helper alone: real Pythons load it with `ctypes`, and the test is the loader's side of the control
//! block.

#![allow(clippy::unwrap_used)]

mod children;
mod ending;
mod loaded;

use std::collections::BTreeSet;

use speed_bump_abi::control_block::{Failure, HelperCommand, State, notice};
use speed_bump_testing::{
    case_ran, places,
    session::obstacle,
    skip, skip_case,
    wait::{wait_for_exit, wait_until},
};

use self::loaded::{
    STUB, all, attach, attach_command, attached, descriptors, evaluate, monitored, on_each, start, threads,
};
use crate::{control::Control, hits::Hits};

fn names(control: &Control) -> BTreeSet<String> {
    control.functions().into_iter().map(|function| function.qualname).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_survey_finds_what_is_loaded_and_installs_nothing() {
    on_each(all(), |python| {
        let mut service = start(python);
        let hits = Hits::at_stub(STUB);
        let control = Control::new(
            "*/calls.py:outer*\n*/calls.py:K.*\n*/calls.py:late\n!*:*.m\n",
            HelperCommand::Survey,
        );
        assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
        control.wait_for(State::Active);
        let expected = set(&[
            "outer",
            "outer.<locals>.inner",
            "K.__init__",
            "K.class_method",
            "K.static_method",
            "K.value",
            "late",
        ]);
        assert_eq!(names(&control), expected, "{python}");
        let late = control.functions().into_iter().find(|function| function.qualname == "late").unwrap();
        let line = evaluate(&mut service, "late.__code__.co_firstlineno");
        assert_eq!((late.target, i64::from(late.line), late.generation), (2, line, 1), "{python}");
        assert!(late.file.ends_with("tests/fixtures/calls.py"), "{python}: {}", late.file);
        let surveyed = control.head().surveyed.load(std::sync::atomic::Ordering::Relaxed);
        if python.free_threaded && python.minor() == (3, 13) {
            // It makes functions immortal when a second thread begins, and its garbage collector forgets
            // them.
            skip_case!(python, "it hides most functions from its garbage collector");
        } else {
            case_ran!();
            assert!(surveyed > 500, "{python}: {surveyed}");
        }
        let (major, minor, micro) = python.version;
        let version = control.head().python_version.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(version >> 8, u32::from_be_bytes([0, major, minor, micro]), "{python}");
        assert_eq!(hits.during(|| drop(service.ask("times(10, late, 1)").unwrap())), 0, "{python}");
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
        wait_until("the thread's end", || Ok(threads(&service) == 1)).unwrap();
    });
}

#[test]
fn calls_are_counted_exactly() {
    on_each(all(), |python| {
        let (mut service, hits, _control) =
            attached(python, "*/calls.py:*\n!*/calls.py:times\n!*/calls.py:*comp>\n");
        for (command, calls) in [
            ("times(1000, plain, 1)", 1000),
            ("times(10, outer, 1)", 20),
            ("times(7, double, 1)", 7),
            ("recursive(9)", 10),
            ("list(numbers(5))", 1),
            ("times(3, caught)", 6),
            ("times(5, K)", 5),
            ("times(5, INSTANCE.m)", 5),
            ("times(5, K.class_method); times(5, K.static_method)", 10),
            ("times(4, lambda: INSTANCE.value)", 4),
            ("times(5, Sub().m)", 11),
            ("in_threads(10, 1000, plain, 1)", 10_001),
            ("list(map(plain, range(5))); sorted([2, 1], key=other)", 7),
            ("times(3, late, 1)", 3),
            ("times(5000, plain, 1)", 5000),
        ] {
            // `say` is a function of the fixture too, called once with every answer.
            let said = 1;
            let count = hits.during(|| drop(service.ask(command).unwrap()));
            assert_eq!(count, calls + said, "{python}: {command}");
        }
    });
}

#[test]
fn both_forms_of_the_stub_are_run_into() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = all().next() else { return skip!("no Python") };
    for (form, stub) in [(0, STUB), (1, "speed_bump_python_entry_nop5")] {
        if form == 1 && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let mut service = start(python);
        let hits = Hits::at_stub(stub);
        let control = Control::new("*:plain\n", HelperCommand::Run);
        control.head().stub_form.store(form, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(attach(&mut service, &hits, &control), 0);
        control.wait_for(State::Active);
        assert_eq!(hits.during(|| drop(service.ask("times(100, plain, 1)").unwrap())), 100, "{stub}");
    }
}

#[test]
fn a_survey_can_be_followed_by_a_session_and_a_session_by_a_survey() {
    on_each(monitored(), |python| {
        let mut service = start(python);
        let hits = Hits::at_stub(STUB);
        let control = Control::new("*/calls.py:plain\n", HelperCommand::Survey);
        assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
        control.wait_for(State::Active);
        let used = "any(sys.monitoring.get_tool(i) == 'speed-bump' for i in range(6))";
        for _ in 0..2 {
            assert_eq!(evaluate(&mut service, used), 0, "{python}");
            control.command(HelperCommand::Run);
            wait_until("the tool", || Ok(evaluate(&mut service, used) == 1)).unwrap();
            let count = hits.during(|| drop(service.ask("times(10, plain, 1)").unwrap()));
            assert_eq!(count, 10, "{python}");
            control.command(HelperCommand::Survey);
            wait_until("the tool's end", || Ok(evaluate(&mut service, used) == 0)).unwrap();
            let count = hits.during(|| drop(service.ask("times(10, plain, 1)").unwrap()));
            assert_eq!(count, 0, "{python}");
        }
        assert_eq!(control.functions().len(), 1, "{python}");
    });
}

#[test]
fn what_the_c_library_asks_of_all_threads_works() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = all().next() else { return skip!("no Python") };
    let (mut service, _hits, _control) = attached(python, "*/calls.py:plain\n");
    // glibc sends a signal to every thread and waits for all of them.
    service.ask("os.setgroups([]); os.setresgid(7, 7, 7); os.setresuid(7, 7, 7)").unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
    let uids: Vec<_> = tasks
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())
        .map(|status| status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned())
        .collect();
    assert_eq!(uids, ["Uid:\t7\t7\t7\t7"; 2]);
}

#[test]
fn new_targets_apply_to_everything() {
    on_each(all(), |python| {
        let (mut service, hits, control) = attached(python, "*/calls.py:plain\n");
        let calls = "times(10, plain, 1); times(7, other, 1)";
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 10, "{python}");
        for (targets, count) in [("*/calls.py:other\n", 7), ("*:no_such\n", 0), ("*:plain\n*:other\n", 17)] {
            control.retarget(targets);
            control.wait_for_generation();
            assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), count, "{python}: {targets}");
        }
        assert_eq!(control.notices(), 0, "{python}");
    });
}

#[test]
fn a_tool_id_that_is_taken_or_lost() {
    on_each(monitored(), |python| {
        let mut service = start(python);
        let hits = Hits::at_stub(STUB);
        service.ask("for i in range(6): sys.monitoring.use_tool_id(i, 'other')").unwrap();
        let control = Control::new("*/calls.py:plain\n", HelperCommand::Run);
        assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
        control.wait_for(State::Failed);
        assert!(control.failed_with(Failure::NoToolId), "{python}: {}", control.failure());
        // The free one is found, whichever it is.
        service.ask("sys.monitoring.free_tool_id(1)").unwrap();
        wait_until("the thread's end", || Ok(threads(&service) == 1)).unwrap();
        let control = Control::new("*/calls.py:plain\n", HelperCommand::Run);
        assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
        control.wait_for(State::Active);
        assert_eq!(hits.during(|| drop(service.ask("times(9, plain, 1)").unwrap())), 9, "{python}");
        let is_ours = "sys.monitoring.get_tool(1) == 'speed-bump'";
        assert_eq!(evaluate(&mut service, is_ours), 1, "{python}");
        service.ask("sys.monitoring.free_tool_id(1); sys.monitoring.use_tool_id(1, 'thief')").unwrap();
        wait_until("the notice", || Ok(control.notices() & notice::TOOL_ID_LOST != 0)).unwrap();
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
        assert_eq!(evaluate(&mut service, "sys.monitoring.get_tool(1) == 'thief'"), 1, "{python}");
    });
}

#[test]
fn a_bad_block_is_refused_and_changes_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = all().last() else { return skip!("no Python") };
    use std::sync::atomic::Ordering::Relaxed;
    let mut service = start(python);
    let hits = Hits::at_stub(STUB);
    let spoil: [&dyn Fn(&Control); 11] = [
        &|control| control.head().magic.store(1, Relaxed),
        &|control| control.head().version.store(999, Relaxed),
        &|control| control.head().size.store(1 << 40, Relaxed),
        &|control| control.head().functions_offset.store(u64::MAX - 3, Relaxed),
        &|control| control.head().functions_capacity.store(u32::MAX, Relaxed),
        &|control| control.head().index_slots.store(3, Relaxed),
        &|control| control.head().names_capacity.store(u64::MAX, Relaxed),
        &|control| control.head().stub_form.store(7, Relaxed),
        &|control| control.head().delays.store(2, Relaxed),
        &|control| {
            control.head().delays.store(1, Relaxed);
            control.head().policies_capacity.store(u32::MAX, Relaxed);
        },
        &|control| {
            control.head().delays.store(1, Relaxed);
            control.head().calls_offset.store(u64::MAX - 63, Relaxed);
        },
    ];
    let open = descriptors(&service);
    for spoil in spoil {
        let control = Control::new("*:*\n", HelperCommand::Run);
        spoil(&control);
        assert_eq!(attach(&mut service, &hits, &control), i64::from(Failure::BadBlock as u32));
        assert_eq!((threads(&service), descriptors(&service)), (1, open));
    }
    // The thread checks a selector.
    let control = Control::new("*:*\n", HelperCommand::Survey);
    control.head().selector_length.store(u64::MAX, Relaxed);
    assert_eq!(attach(&mut service, &hits, &control), 0);
    control.wait_for(State::Failed);
    assert!(control.failed_with(Failure::BadSelector), "{}", control.failure());
}

#[test]
fn a_full_table_is_said() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = all().last() else { return skip!("no Python") };
    let mut service = start(python);
    let hits = Hits::at_stub(STUB);
    let control = Control::with_capacity("*:*\n", HelperCommand::Survey, 8);
    assert_eq!(attach(&mut service, &hits, &control), 0);
    control.wait_for(State::Active);
    assert_eq!(control.notices(), notice::TABLE_FULL);
    assert_eq!(control.functions().len(), 8);
    assert!(control.head().functions.load(std::sync::atomic::Ordering::Relaxed) > 8);
}

/// A shared libpython of this machine.
fn shared_library() -> Option<std::path::PathBuf> {
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let is_python = |path: &std::path::PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("libpython3.") && name.ends_with(".so.1.0"))
    };
    entries.map(|entry| entry.path()).find(is_python)
}

#[test]
fn a_python_that_begins_later_in_a_scope_of_its_own() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(library) = shared_library() else { return skip!("no shared libpython: install libpython3-dev") };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("embedded");
    let source = places::fixtures().join("embedded.c");
    let built =
        std::process::Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).arg("-ldl").status();
    assert!(built.unwrap().success());
    let hits = Hits::at_stub(STUB);
    let control = Control::new("<string>:plain\n", HelperCommand::Survey);
    let mut child = std::process::Command::new(program)
        .arg(library)
        .arg(hits.image.path())
        .arg(control.path())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    control.wait_for(State::Active);
    // Python was there before the function was.
    wait_until("the function", || {
        control.retarget("<string>:plain\n");
        control.wait_for_generation();
        Ok(names(&control) == set(&["plain"]))
    })
    .unwrap();
    // From here on the helper looks for other interpreters, also when there is no Python any more.
    control.command(HelperCommand::Run);
    control.retarget("<string>:plain\n");
    control.wait_for_generation();
    drop(child.stdin.take());
    assert!(wait_for_exit(&mut child).unwrap().success());
}

/// A hook starts the reports of calls in a sub-interpreter; it must not replace another tool's.
#[test]
#[cfg(target_arch = "x86_64")]
fn sub_interpreters_with_a_hook_are_said() {
    on_each(monitored(), |python| {
        let (mut service, hits, control) = attached(python, "<s*>:plain\n");
        assert_eq!(control.notices(), 0, "{python}");
        service.ask("from subs import *; from hooked import *; KEPT = begin()").unwrap();
        let calls = "inside(KEPT, 'def plain(x): return x\\nfor _ in range(1000): plain(1)')";
        let expected = if python.free_threaded { 0 } else { 1000 };
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), expected, "{python}");
        assert_eq!(control.notices() != 0, python.free_threaded, "{python}");
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 0, "{python}");

        service.ask("FOREIGN.begin(newest())").unwrap();
        let later = Control::new("<s*>:plain\n*/calls.py:plain\n", HelperCommand::Run);
        service.ask(&attach_command(&hits, &later, "assert 0 == (")).unwrap();
        later.wait_for(State::Active);
        assert_eq!(later.notices(), notice::SUBINTERPRETERS, "{python}");
        let calls = format!("{calls}; times(10, plain, 1)");
        assert_eq!(hits.during(|| drop(service.ask(&calls).unwrap())), 10, "{python}");
        service.ask("FOREIGN.end(newest()); end(KEPT)").unwrap();
    });
}
