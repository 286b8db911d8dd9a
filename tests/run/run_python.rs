//! `run` of Python programs: counted exactly from their first line on, whatever starts them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, process::Command};

use speed_bump_linux::kernel::KernelFacts;
use speed_bump_testing::{
    PythonBuild, places, pythons,
    pythons::Form,
    session::{Ended, obstacle, obstacle_to_holding},
    skip,
    wait::wait_until,
};

use crate::{
    command::{all_held, run, script, start},
    turn::beside_others,
};

/// Interpreters that execute as themselves: what runs through a dynamic loader of its own is mapped too late.
fn on_each(case: impl Fn(&PythonBuild)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let mut any = false;
    for python in pythons().iter().filter(|python| python.form != Form::Loader) {
        any = true;
        case(python);
    }
    if !any {
        skip!("this machine has no Python 3.8 or newer");
    }
}

/// Calls of a function that may be in the report.
fn calls(ended: &Ended, target: usize, name: &str) -> u64 {
    let functions = ended.target(target)["functions"].as_array().unwrap();
    let of_name = functions.iter().filter(|function| function["name"] == name);
    of_name.map(|function| function["calls"].as_u64().unwrap()).sum()
}

const AT_IMPORT: &str = "\
def at_import(n): return n

class K:
    def __init__(self): at_import(0)

for i in range(100): at_import(i)
for i in range(10): K()
assert [*map(lambda x: x, range(9))]
";

#[test]
fn calls_at_import_time_are_counted_exactly() {
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), "program.py", AT_IMPORT);
        let ended = run("*/program.py:*\n", &["--delay", "1us"], &python.command(&program));
        let names = ["at_import", "K.__init__", "<module>", "K", "<lambda>"];
        let counted = names.map(|name| calls(&ended, 0, name));
        assert_eq!(counted, [110, 10, 1, 1, 9], "{python}: {}", ended.run.stderr);
        assert_eq!(ended.counts(0), (131, 131), "{python}");
        assert_eq!(ended.target(0)["entry"], "helper", "{python}");
    });
}

/// From the first call on, and also by what is not selected. Without `site` the session begins while frames
/// of the import system are in progress.
#[test]
fn callers_are_recorded_from_the_first_call_on() {
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), "program.py", AT_IMPORT);
        let flags = ["--delay", "0", "--times", "--callers"];
        for options in [&[][..], &["-I", "-S"]] {
            let command = python.command_with(options, &program);
            let ended = all_held(|| run("*/program.py:at_import\n", &flags, &command));
            let function = &ended.target(0)["functions"][0];
            let callers = function["callers"].as_array().unwrap();
            let by =
                |name| callers.iter().find(|by| by["name"] == name).map(|by| by["calls"].as_u64().unwrap());
            // Before 3.11 code does not know its qualified name.
            let of_class = by("K.__init__").or_else(|| by("__init__"));
            assert_eq!((by("<module>"), of_class), (Some(100), Some(10)), "{python} {options:?}: {function}");
            assert_eq!(callers.len(), 2, "{python} {options:?}: {function}");
            let warnings = ended.report["warnings"].to_string();
            assert_eq!(warnings, "[]", "{python} {options:?}: {warnings}");
        }
    });
}

#[test]
fn what_runs_before_the_main_module_is_covered() {
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "sitecustomize.py", "def early(): pass\nfor _ in range(12): early()\n");
        let mut command = python.interpreter();
        command.args(["-c", "pass"]).env("PYTHONPATH", python.inside(folder.path()));
        // From 3.11 on `site` is frozen, and called <frozen site>.
        let ended = run("*/sitecustomize.py:early\n*site*:main\n", &["--delay", "1us"], &command);
        assert_eq!((ended.counts(0), ended.counts(1)), ((12, 12), (1, 1)), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn without_site_the_main_module_is_covered_all_the_same() {
    on_each(|python| {
        let mut command = python.interpreter();
        command.args(["-I", "-S", "-c", "def f(): pass\nfor _ in range(50): f()"]);
        let ended = run("<string>:*\n", &["--delay", "1us"], &command);
        assert_eq!((calls(&ended, 0, "f"), calls(&ended, 0, "<module>")), (50, 1), "{python}");
    });
}

#[test]
fn programs_that_execute_others_are_followed() {
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), "program.py", AT_IMPORT);
        let mut command = Command::new("env");
        command.args(["A=1", "nice", "-n", "1", "sh", "-c", "exec \"$0\" \"$@\""]);
        command.arg(python.interpreter().get_program()).arg(python.inside(&program));
        let ended = run("*/program.py:at_import\n", &["--delay", "1us"], &command);
        assert_eq!(ended.counts(0), (110, 110), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn a_program_that_executes_itself_anew_is_covered_again() {
    if let Some(why) = obstacle_to_holding() {
        return skip!("{why}");
    }
    const TEXT: &str = "\
import os, sys, time
def first(): pass
def second(): pass
for _ in range(5): first()
if len(sys.argv) < 3:
    os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])
second()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for _ in range(8): second()
";
    on_each(|python| {
        let ended = all_held(|| {
            let folder = tempfile::tempdir().unwrap();
            let (program, mark) = (script(folder.path(), "program.py", TEXT), folder.path().join("mark"));
            let mut command = python.command(&program);
            command.arg(python.inside(&mark));
            let started = start("*/program.py:*\n", &["-vv"], &command);
            wait_until("the helper is in the second image", || {
                Ok(started.running.stderr().matches("the helper is at work in process").count() == 2)
            })
            .unwrap();
            fs::write(&mark, "").unwrap();
            let ended = started.finish();
            assert!(ended.run.status.success(), "{python}: {}", ended.run.stderr);
            ended
        });
        let counted = (calls(&ended, 0, "first"), calls(&ended, 0, "second"));
        assert_eq!(counted, (10, 9), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn forked_workers_are_covered_from_their_first_call_on() {
    const TEXT: &str = "\
import multiprocessing
def work(n):
    return n
def worker():
    for i in range(200): work(i)
context = multiprocessing.get_context('fork')
workers = [context.Process(target=worker) for _ in range(3)]
for one in workers: one.start()
for one in workers: one.join()
assert [one.exitcode for one in workers] == [0, 0, 0]
";
    if !KernelFacts::read().has_uprobe_multi_pid() {
        return skip!("before Linux 6.10 a forked child is covered some milliseconds after the fork");
    }
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        let program = script(folder.path(), "program.py", TEXT);
        let ended = run("*/program.py:work\n", &["--delay", "1us"], &python.command(&program));
        assert_eq!(ended.counts(0), (600, 600), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn spawned_workers_are_covered_once_they_have_started() {
    const TEXT: &str = "\
import multiprocessing, os, sys, time
def before(): pass
def after(): pass
def worker(mark):
    os.write(2, f'worker is {os.getpid()}.'.encode())
    while not os.path.exists(mark):
        before()
        time.sleep(0.01)
    for _ in range(40): after()
if __name__ == '__main__':
    child = multiprocessing.get_context('spawn').Process(target=worker, args=(sys.argv[1],))
    child.start()
    child.join()
    assert child.exitcode == 0
";
    on_each(|python| {
        let folder = tempfile::tempdir().unwrap();
        let (program, mark) = (script(folder.path(), "program.py", TEXT), folder.path().join("mark"));
        let mut command = python.command(&program);
        command.arg(python.inside(&mark));
        let started = start("*/program.py:before\n*/program.py:after\n", &["-vv"], &command);
        let helper_is_in = || {
            let said = started.running.stderr();
            let (_, pid) = said.split_once("worker is ")?;
            let (pid, _) = pid.split_once('.')?;
            said.contains(&format!("the helper is at work in process {pid}")).then_some(())
        };
        wait_until("the helper is in the worker", || Ok(helper_is_in().is_some()))
            .unwrap_or_else(|error| panic!("{python}: {error}\n{}", started.running.stderr()));
        fs::write(&mark, "").unwrap();
        let ended = started.finish();
        assert!(ended.run.status.success(), "{python}: {}", ended.run.stderr);
        assert_eq!(ended.counts(1), (40, 40), "{python}: {}", ended.run.stderr);
    });
}

/// The first interpreter beside the main one begins right after the program does, and calls at once.
#[test]
fn sub_interpreters_are_covered_from_their_first_call_on() {
    on_each(|python| {
        let ended =
            run("*:there\n", &["--delay", "1us"], &python.command(&places::fixtures().join("subs.py")));
        let not_covered = ended.report["warnings"].to_string().contains("functions are not covered");
        assert_eq!(not_covered, python.free_threaded, "{python}: {}", ended.report["warnings"]);
        if !python.free_threaded {
            assert_eq!(ended.counts(0), (1000, 1000), "{python}: {}", ended.run.stderr);
        }
    });
}
