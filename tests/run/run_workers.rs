//! `run` of programs that start Pythons: what those do is counted exactly from their first line on, however
//! they are started.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use speed_bump_testing::{
    PythonBuild, case_ran, pythons,
    pythons::Form,
    session::obstacle,
    skip, skip_case,
    wait::{PATIENCE, wait_until},
};

use crate::{
    command::{all_held, run, script, start},
    turn::{alone, beside_others},
};

/// A worker whose calls are over some milliseconds after its start.
const WORKER: &str = "\
def early(): pass
for _ in range(1000): early()
";
const EARLY: &str = "*/worker.py:early\n";

/// Interpreters that execute as themselves, where a process can be held at its exec: one session at a time.
fn on_each(case: impl Fn(&PythonBuild, &Path)) {
    let _turn = alone();
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if std::thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        return skip!("with one processor nobody can trace a process that is held on it");
    }
    let mut any = false;
    for python in pythons() {
        if python.form == Form::Loader {
            skip_case!(python, "its children are run through a dynamic loader by name, and are covered late");
            continue;
        }
        any = true;
        case_ran!();
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "worker.py", WORKER);
        case(python, folder.path());
    }
    if !any {
        skip!("this machine has no Python 3.8 or newer");
    }
}

/// Runs a program that starts workers, and wants all their calls.
fn counts_workers(python: &PythonBuild, folder: &Path, text: &str, workers: u64) {
    let program = script(folder, "program.py", text);
    let mut command = python.command(&program);
    command.arg(python.inside(&folder.join("worker.py")));
    let ended = all_held(|| run(EARLY, &["--delay", "0"], &command));
    let (calls, _) = ended.counts(0);
    assert_eq!(calls, 1000 * workers, "{python}: {}", ended.run.stderr);
    assert_eq!(ended.target(0)["entry"], "helper", "{python}");
}

#[test]
fn workers_of_subprocess_are_counted_from_their_first_call_on() {
    const TEXT: &str = "\
import subprocess, sys
for _ in range(4):
    subprocess.run([sys.executable, sys.argv[1]], check=True)
    # With this, Python forks; without, it may use vfork.
    subprocess.run([sys.executable, sys.argv[1]], check=True, preexec_fn=lambda: None)
";
    on_each(|python, folder| counts_workers(python, folder, TEXT, 8));
}

#[test]
fn workers_that_start_together_are_counted_from_their_first_call_on() {
    const TEXT: &str = "\
import subprocess, sys
workers = [subprocess.Popen([sys.executable, sys.argv[1]]) for _ in range(12)]
assert [worker.wait() for worker in workers] == [0] * 12
";
    on_each(|python, folder| counts_workers(python, folder, TEXT, 12));
}

#[test]
fn workers_of_multiprocessing_are_counted_from_their_first_call_on() {
    // The parent imports nothing of what the workers call.
    const TEXT: &str = "\
import multiprocessing, runpy, sys
if __name__ == '__main__':
    for method in ('spawn', 'forkserver'):
        context = multiprocessing.get_context(method)
        workers = [context.Process(target=runpy.run_path, args=(sys.argv[1],)) for _ in range(3)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
";
    on_each(|python, folder| counts_workers(python, folder, TEXT, 6));
}

#[test]
fn a_program_that_another_thread_executes_is_counted_from_its_first_call_on() {
    const TEXT: &str = "\
import os, sys, threading, time
if os.fork() == 0:
    run = lambda: os.execv(sys.executable, [sys.executable, sys.argv[1]])
    threading.Thread(target=run).start()
    time.sleep(60)
pid, status = os.wait()
assert status == 0
";
    on_each(|python, folder| counts_workers(python, folder, TEXT, 1));
}

#[test]
fn pythons_that_a_shell_starts_are_counted_from_their_first_call_on() {
    on_each(|python, folder| {
        let program = python.interpreter().get_program().to_owned();
        let mut command = Command::new("sh");
        let text = "\"$0\" \"$1\"; (\"$0\" \"$1\"); \"$0\" \"$1\" & env A=1 nice -n 1 \"$0\" \"$1\"; wait; \
                    exec sh -c 'exec \"$0\" \"$1\"' \"$0\" \"$1\"";
        command.args(["-c", text]).arg(program).arg(python.inside(&folder.join("worker.py")));
        let ended = all_held(|| run(EARLY, &["--delay", "0"], &command));
        assert_eq!(ended.counts(0).0, 5000, "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn native_functions_of_workers_are_counted_from_the_first_call_on() {
    // The target is called once a worker, by Python itself.
    on_each(|python, folder| {
        let program = script(
            folder,
            "program.py",
            "\
import subprocess, sys
for _ in range(5): subprocess.run([sys.executable, sys.argv[1]], check=True)
",
        );
        // An executable has other names than the one that it is started by: `python3.13t` and `python3.13`.
        let library = python.library.file_name().unwrap().to_string_lossy();
        let text = format!("native:*/{library}*:Py_InitializeFromConfig\n{EARLY}");
        let mut command = python.command(&program);
        command.arg(python.inside(&folder.join("worker.py")));
        let ended = all_held(|| run(&text, &["--delay", "0"], &command));
        assert_eq!((ended.counts(0).0, ended.counts(1).0), (6, 5000), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn programs_that_are_no_python_pass_through() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    // Exit codes, signals and stops are between parent and child, as ever.
    let text = "i=0; while [ $i -lt 100 ]; do /bin/true || echo bad; /bin/false && echo bad; i=$((i+1)); done
                sh -c 'kill -TERM $$'; echo $?; sh -c 'exit 9'; echo $?
                sh -c 'kill -STOP $$; echo on' & sleep 0.2; kill -CONT $!; wait $!; echo $?";
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    let ended = run(EARLY, &["--quiet"], &command);
    assert_eq!(ended.run.stdout, "143\n9\non\n0\n", "{}", ended.run.stderr);
}

#[test]
fn our_death_leaves_workers_alone() {
    // Workers come and go while the tool is killed.
    const TEXT: &str = "\
import os, subprocess, sys
os.write(2, b'ready\\n')
while not os.path.exists(sys.argv[2]):
    subprocess.run([sys.executable, sys.argv[1]], check=True)
with open(sys.argv[3], 'w') as result: result.write('done')
";
    on_each(|python, folder| {
        let program = script(folder, "program.py", TEXT);
        let (mark, result) = (folder.join("mark"), folder.join("result"));
        let mut command = python.command(&program);
        command.args([&folder.join("worker.py"), &mark, &result].map(|path| python.inside(path)));
        let mut started = start(EARLY, &[], &command);
        started.running.wait_for_stderr("ready\n", PATIENCE).unwrap();
        started.running.signal(Signal::KILL).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        fs::write(&mark, "").unwrap();
        wait_until("the program has ended", || Ok(result.exists()))
            .unwrap_or_else(|error| panic!("{python}: {error}"));
    });
}
