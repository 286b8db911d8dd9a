//! `run` of any command: native functions from the first call on, exit codes, signals, and our own death.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    process::{Command, ExitStatus},
};

use rustix::process::Signal;
use serde_json::Value;
use speed_bump_testing::{
    Fixture,
    session::obstacle,
    skip, tool,
    wait::{PATIENCE, wait_until},
};
use speed_bump_tests::helper::GETPPID;

use crate::{
    command::{run, start, status},
    turn::beside_others,
};

const PROGRAM: &str = "\
__attribute__((noinline)) int work(int n) { __asm__ volatile(\"\"); return n + 1; }
__attribute__((constructor)) static void before_main(void) { for (int i = 0; i < 30; i++) work(i); }
int main(void) { for (int i = 0; i < 1000; i++) work(i); return 0; }
";
/// Says which process it is, and calls when the file is there that its argument names.
const PATIENT: &str = "\
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n) { __asm__ volatile(\"\"); return n + 1; }
int main(int argc, char **argv) {
    if (argc < 2) return 1;
    fprintf(stderr, \"waits as %d.\\n\", getpid());
    while (access(argv[1], F_OK) != 0) usleep(1000);
    for (int i = 0; i < 1000; i++) work(i);
    return 0;
}
";

#[test]
fn native_functions_are_counted_from_the_first_call_on() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    for flags in [&["-O1"][..], &["-O1", "-static"]] {
        let fixture = Fixture::compile_text(PROGRAM, flags).unwrap();
        let target = format!("native:{}:work\n", fixture.program().display());
        let ended = run(&target, &["--delay", "1us"], &Command::new(fixture.program()));
        assert_eq!(ended.counts(0), (1030, 1030), "{flags:?}: {}", ended.run.stderr);
    }
}

#[test]
fn every_program_of_a_chain_is_covered() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let [last, patient] = [PROGRAM, PATIENT].map(|text| Fixture::compile_text(text, &["-O1"]).unwrap());
    let marks = ["first", "second"].map(|name| patient.folder().join(name));
    let mut command = Command::new("env");
    let text = "\"$0\" \"$2\"; \"$0\" \"$3\" & wait; exec \"$1\"";
    command.args(["A=1", "sh", "-c", text]).arg(patient.program()).arg(last.program()).args(&marks);
    let targets =
        format!("native:{}:work\nnative:{}:work\n", patient.program().display(), last.program().display());
    let started = start(&targets, &["--delay", "1us", "-vv"], &command);
    for (number, mark) in marks.iter().enumerate() {
        wait_until("another child is covered", || {
            let said = started.running.stderr();
            let pid = said.split("waits as ").nth(number + 1).and_then(|rest| rest.split_once('.'));
            Ok(pid.is_some_and(|(pid, _)| said.contains(&format!("child {pid} is covered anew"))))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", started.running.stderr()));
        fs::write(mark, "").unwrap();
    }
    let ended = started.finish();
    assert!(ended.run.status.success(), "{}", ended.run.stderr);
    // The others were covered while they waited; the last replaced the shell and was held before its first
    // instruction.
    assert_eq!([ended.counts(0), ended.counts(1)], [(2000, 2000), (1030, 1030)], "{}", ended.run.stderr);
    assert_eq!(ended.report["pids"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_window_counts_from_the_start_of_the_command() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let fixture = Fixture::compile_text(PROGRAM, &["-O1"]).unwrap();
    let target = format!("native:{}:work\n", fixture.program().display());
    let ended = run(&target, &["--start-after", "3600s"], &Command::new(fixture.program()));
    assert_eq!(ended.counts(0), (1030, 0), "{}", ended.run.stderr);
    // It runs on when the window has closed.
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1; echo done"]);
    let ended = run(GETPPID, &["--duration", "1ms"], &command);
    assert_eq!(ended.run.stdout, "done\n");
}

#[test]
fn others_read_along_while_it_runs() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let fixture = Fixture::compile_text(PATIENT, &["-O1"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [go, lines, numbers] = ["go", "lines.json", "numbers.prom"].map(|name| folder.path().join(name));
    let mut command = Command::new(fixture.program());
    command.arg(&go);
    let target = format!("native:{}:work\n", fixture.program().display());
    let flags = ["--json-lines", lines.to_str().unwrap(), "--prometheus-file", numbers.to_str().unwrap()];
    let started = start(&target, &flags, &command);
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    wait_until("two lines, and numbers", || {
        let two_lines = read(&lines).lines().count() >= 2;
        Ok(two_lines && read(&numbers).contains("speed_bump_session_active 1\n"))
    })
    .unwrap();
    fs::write(&go, "").unwrap();
    let ended = started.finish();
    assert!(ended.run.status.success(), "{}", ended.run.stderr);
    let last: Value = serde_json::from_str(read(&lines).lines().last().unwrap()).unwrap();
    assert_eq!(last["targets"], ended.report["targets"]);
    assert!(read(&numbers).contains("speed_bump_session_active 0\n"), "{}", read(&numbers));
}

/// Standard output is the command's.
#[test]
fn lines_go_to_a_file() {
    let refused =
        tool::run(&["run", "-t", "native:x:y", "--json-lines", "-", "--", "true"], PATIENCE).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("name a file"), "{}", refused.stderr);
}

#[test]
fn the_exit_code_is_the_commands() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let of_shell = |text: &str| status(&[], "sh", &["-c", text]).code();
    assert_eq!(of_shell("exit 0"), Some(0));
    assert_eq!(of_shell("exit 7"), Some(7));
    assert_eq!(of_shell("kill -TERM $$"), Some(128 + 15));
    assert_eq!(of_shell("kill -KILL $$"), Some(128 + 9));
    assert_eq!(status::<&str>(&[], "no-such-program-anywhere", &[]).code(), Some(127));
    assert_eq!(status::<&str>(&[], "/no/such/program", &[]).code(), Some(127));
    assert_eq!(
        status::<&str>(&[], concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), &[]).code(),
        Some(126)
    );
    assert_eq!(status::<&str>(&[], "/etc", &[]).code(), Some(126));
}

#[test]
fn streams_and_surroundings_are_inherited() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let mut command = Command::new("sh");
    let text = "echo \"$A $(pwd)\"; echo error >&2; exec grep SigBlk /proc/self/status";
    command.args(["-c", text]).env("A", "b");
    let ended = run(GETPPID, &["--quiet"], &command);
    let here = std::env::current_dir().unwrap();
    assert!(ended.run.stdout.starts_with(&format!("b {}\n", here.display())), "{}", ended.run.stdout);
    assert!(ended.run.stdout.contains("SigBlk:\t0000000000000000"), "{}", ended.run.stdout);
    assert!(ended.run.stderr.starts_with("error\n"), "{}", ended.run.stderr);
}

#[test]
fn signals_are_passed_on_once() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let text = "trap 'echo usr1' USR1; trap 'echo term; exit 3' TERM; echo ready >&2
                while :; do sleep 0.01; done";
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    let mut started = start(GETPPID, &[], &command);
    started.running.wait_for_stderr("ready\n", PATIENCE).unwrap();
    started.running.signal(Signal::USR1).unwrap();
    // Signals of different kinds may overtake each other.
    std::thread::sleep(std::time::Duration::from_millis(200));
    started.running.signal(Signal::TERM).unwrap();
    let ended = started.finish();
    assert_eq!((ended.run.status.code(), ended.run.stdout.as_str()), (Some(3), "usr1\nterm\n"));
}

#[test]
fn a_stopped_command_can_be_continued() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let mut command = Command::new("sh");
    command.args(["-c", "echo ready $$ >&2; kill -STOP $$; echo on"]);
    let started = start(GETPPID, &["-v"], &command);
    started.running.wait_for_stderr("the command runs as process ", PATIENCE).unwrap();
    started.running.wait_for_stderr("ready", PATIENCE).unwrap();
    let pid = child_of(started.running.pid());
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A traced process shows as t, another as T.
    wait_until("it is stopped", || Ok(state().contains(") t ") || state().contains(") T "))).unwrap();
    let process = rustix::process::Pid::from_raw(pid).unwrap();
    wait_until("it is continued", || {
        let _ = rustix::process::kill_process(process, Signal::CONT);
        std::thread::sleep(std::time::Duration::from_millis(20));
        Ok(!state().contains(") t ") && !state().contains(") T "))
    })
    .unwrap();
    let ended = started.finish();
    assert_eq!(ended.run.stdout, "on\n", "{}", ended.run.stderr);
}

/// The only child of a process.
fn child_of(pid: i32) -> i32 {
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
        lists.collect::<String>()
    };
    wait_until("there is a child", || Ok(!children().is_empty())).unwrap();
    children().split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn our_death_leaves_the_command_alone() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let folder = tempfile::tempdir().unwrap();
    let (mark, result) = (folder.path().join("mark"), folder.path().join("result"));
    let text = "echo ready >&2; while ! [ -e \"$0\" ]; do sleep 0.01; done; echo done > \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", text]).arg(&mark).arg(&result);
    let mut started = start(GETPPID, &[], &command);
    started.running.wait_for_stderr("ready\n", PATIENCE).unwrap();
    let pid = child_of(started.running.pid());
    started.running.signal(Signal::KILL).unwrap();
    wait_until("the command has another parent", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        Ok(status.contains("TracerPid:\t0\n"))
    })
    .unwrap();
    fs::write(&mark, "").unwrap();
    wait_until("the command has ended", || Ok(result.exists())).unwrap();
}

#[test]
fn our_death_on_the_way_to_an_entry_point_leaves_the_command_alone() {
    const ROUNDS: u64 = 8;
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    // It executes itself 300 times, and is on the way to its entry point much of the time.
    let text = "case $1 in 0) echo done > \"$2\";; 300) echo ready >&2;; esac
                [ $1 = 0 ] || exec sh -c \"$0\" \"$0\" $(($1 - 1)) \"$2\"";
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let result = folder.path().join("result");
        let mut command = Command::new("sh");
        command.args(["-c", text, text, "300"]).arg(&result);
        let mut started = start(GETPPID, &[], &command);
        started.running.wait_for_stderr("ready\n", PATIENCE).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(5_300 * round));
        started.running.signal(Signal::KILL).unwrap();
        wait_until("the command has ended", || Ok(result.exists()))
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

#[test]
fn a_command_runs_as_the_user_that_was_asked_for() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let mut command = Command::new("sh");
    command.args(["-c", "echo $(id -un) $(id -G) $USER $HOME"]);
    let ended = run(GETPPID, &["--user", "nobody"], &command);
    let expected = Command::new("sh").args(["-c", "echo nobody $(id -G nobody) nobody"]).output().unwrap();
    let expected = String::from_utf8(expected.stdout).unwrap();
    assert!(ended.run.stdout.starts_with(expected.trim_end()), "{}", ended.run.stdout);
    let unknown: ExitStatus = status(&["--user", "no-such-user"], "true", &[] as &[&str]);
    assert_eq!(unknown.code(), Some(2));
}
