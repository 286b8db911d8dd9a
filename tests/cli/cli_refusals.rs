//! What the loader refuses: each with its message and its exit code, and with nothing attached.

#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    process::{Command, Stdio},
};

use speed_bump_testing::{
    Fixture, Service, case_ran, everybody, places,
    session::{obstacle, obstacle_to_uprobe_multi},
    skip, skip_case, text,
    tool::{self, Run, Running},
    wait::{PATIENCE, wait_until},
};

const HOT: &str = "native:*/service:hot\n";

fn start() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    (fixture, service)
}

fn run(command: &mut Command) -> Run {
    Running::start(command).unwrap().finish(PATIENCE).unwrap()
}

fn loader<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Run {
    run(Command::new(tool::path().unwrap()).args(arguments))
}

/// An exit code, and all of these words on standard error, with nothing on standard output.
fn is_refused(run: &Run, code: i32, words: &[&str]) {
    assert_eq!(run.status.code(), Some(code), "{words:?}: {}", run.stderr);
    for word in words {
        assert!(run.stderr.contains(word), "`{word}` in:\n{}", run.stderr);
    }
    assert_eq!(run.stdout, "");
    assert!(!run.stderr.contains("attached; "), "{}", run.stderr);
}

fn targets_file(folder: &Path, text: impl AsRef<[u8]>) -> String {
    let file = folder.join("targets.txt");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn lines_that_mean_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let pid = service.pid().to_string();
    let long = format!("native:*:{}", "x".repeat(4096));
    for (line, problem) in [
        ("no colon here", "missing `:`"),
        (":name", "empty module pattern"),
        ("native:*/service:", "empty name pattern"),
        ("usdt:*:service:", "empty name pattern"),
        ("native:*:hot speed=3", "unknown key `speed`"),
        ("native:*:hot delay=10years", "bad delay"),
        ("native:*:hot delay=10 years", "unexpected `years`"),
        ("native:*:hot delay=11s", "too long"),
        ("native:*:hot delay=-1us", "bad delay"),
        ("native:*:hot frequency=0", "bad frequency `0`"),
        ("native:*:hot frequency=two", "bad frequency `two`"),
        ("!native:*:hot delay=1us", "no options"),
        (&long, "4105 bytes"),
    ] {
        let file = targets_file(fixture.folder(), format!("# a comment\n{HOT}{line}\n"));
        let run = loader(["--pid", &pid, "--targets", &file]);
        let excerpt: String = line.chars().take(100).collect();
        is_refused(&run, 2, &[&format!("{file}:3: "), &excerpt, problem, "expected"]);
        let run = loader(["list", "--pid", &pid, "--targets", &file]);
        is_refused(&run, 2, &[&format!("{file}:3: "), problem]);
    }
    let file = targets_file(fixture.folder(), b"native:*:hot\nnative:*:h\xfft\n");
    is_refused(&loader(["--pid", &pid, "--targets", &file]), 2, &[":2: ", "not UTF-8", "offset 23"]);
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn files_that_are_no_targets_file() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let pid = service.pid().to_string();
    let missing = fixture.folder().join("missing.txt").to_str().unwrap().to_owned();
    is_refused(&loader(["--pid", &pid, "--targets", &missing]), 2, &[&missing, "no such targets file"]);
    let folder = fixture.folder().to_str().unwrap();
    is_refused(&loader(["--pid", &pid, "--targets", folder]), 2, &[folder, "is a directory"]);
    is_refused(&loader(["--pid", &pid]), 2, &["--targets", "SPEED_BUMP_TARGETS"]);
    for (text, problem) in
        [("", "is empty"), ("# nothing\n\n", "only comments"), ("!*:*\n", "only exclusions")]
    {
        let file = targets_file(fixture.folder(), text);
        is_refused(&loader(["--pid", &pid, "--targets", &file]), 2, &[&file, problem, "--allow-empty"]);
        let run = loader(["--pid", &pid, "--targets", &file, "--allow-empty", "--duration", "1ms"]);
        assert!(run.status.success() && run.stderr.contains(problem), "{}", run.stderr);
    }
}

#[test]
fn flags_that_mean_nothing() {
    let file = Path::new("/dev/null").to_str().unwrap();
    let pid = std::process::id().to_string();
    for (flags, words) in [
        (&["--speed", "3"][..], &["--speed"][..]),
        (&["--delay", "11s"], &["--delay", "10s"]),
        (&["--delay", "1"], &["--delay", "`1` has no unit: write 1us or 1ms"]),
        (&["--target", "*:f"], &["--target", "--targets", "cannot be used with"]),
        (&["--delay", "fast"], &["--delay", "fast"]),
        (&["--delay", "-1"], &["-1"]),
        (&["--frequency", "0"], &["--frequency"]),
        (&["--frequency", "1.5"], &["--frequency"]),
        (&["--duration", "5"], &["--duration", "no unit"]),
        (&["--start-after", "soon"], &["--start-after", "soon"]),
        (&["--entry", "magic"], &["--entry", "magic"]),
        (&["--json"], &["--json"]),
        (&["surplus"], &["surplus"]),
    ] {
        let run = loader([&["--pid", &pid, "--targets", file], flags].concat());
        is_refused(&run, 2, words);
    }
    is_refused(&loader(["--targets", file]), 2, &["--pid"]);
    for wrong in ["abc", "0", "-1", "99999999999", "1.5", ""] {
        is_refused(&loader([&format!("--pid={wrong}"), "--targets", file]), 2, &["--pid"]);
    }
}

#[test]
fn processes_that_cannot_be_targets() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = targets_file(folder.path(), HOT);
    let attach = |pid: i32| loader(["--pid", &pid.to_string(), "--targets", &file]);

    // Beyond the largest PID that any kernel gives out, 2^22.
    is_refused(&attach(i32::MAX), 5, &["no process has PID 2147483647"]);

    let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let is_zombie = || Ok(std::fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") Z "));
    wait_until("the child has ended", is_zombie).unwrap();
    is_refused(&attach(pid), 5, &["is a zombie"]);
    child.wait().unwrap();
    case_ran!();

    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        is_refused(&attach(2), 2, &["process 2 (kthreadd) is a kernel thread"]);
    } else {
        skip_case!("kernel thread", "PID 2 is no kernel thread here (a container)");
    }

    // The shell becomes the loader, and so the PID that it passes the loader's own.
    let script = r#"exec "$0" --pid $$ --targets "$1""#;
    let own = run(Command::new("sh").args(["-c", script]).arg(tool::path().unwrap()).arg(&file));
    is_refused(&own, 2, &["is speed-bump-ebpf itself"]);

    let fixture = Fixture::service().unwrap();
    let threaded = Service::start(Command::new(fixture.program()).arg("1")).unwrap();
    let threads = std::fs::read_dir(format!("/proc/{}/task", threaded.pid())).unwrap();
    let threads =
        threads.map(|entry| entry.unwrap().file_name().into_string().unwrap().parse::<i32>().unwrap());
    let thread = threads.into_iter().find(|thread| *thread != threaded.pid()).unwrap();
    is_refused(&attach(thread), 2, &[&format!("is a thread of process {}", threaded.pid())]);
    assert_eq!(text::differences(threaded.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn one_process_of_several_that_cannot_be_a_target() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let file = targets_file(fixture.folder(), HOT);
    let pid = service.pid().to_string();
    let run = loader(["--pid", &pid, "--pid", "2147483647", "--targets", &file]);
    is_refused(&run, 5, &["no process has PID 2147483647"]);
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn a_missing_capability_is_named() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skip!("no setpriv (util-linux)");
    }
    let (fixture, service) = start();
    let file = targets_file(fixture.folder(), HOT);
    // Root in name, with no more capabilities than these.
    for (kept, words) in [
        ("-all", &["CAP_SYS_PTRACE"][..]),
        ("-all,+sys_ptrace", &["CAP_BPF", "CAP_PERFMON"]),
        ("-all,+sys_ptrace,+bpf", &["CAP_PERFMON"]),
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-all", &format!("--bounding-set={kept}")]).arg(tool::path().unwrap());
        command.args(["--pid", &service.pid().to_string(), "--targets", &file]);
        is_refused(&run(&mut command), 4, words);
    }
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn the_smallest_sets_of_capabilities_suffice() {
    if let Some(why) = obstacle_to_uprobe_multi() {
        return skip!("{why}");
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        return skip!("no setpriv (util-linux)");
    }
    let attach = |pid: i32, kept: &str, target: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-all", &format!("--bounding-set={kept}")]).arg(tool::path().unwrap());
        command.args(["--pid", &pid.to_string(), "--target", target, "--delay", "10us"]);
        command.args(["--duration", "10ms"]);
        run(&mut command)
    };
    let (_fixture, service) = start();
    let run = attach(service.pid(), "-all,+bpf,+perfmon,+sys_ptrace", HOT.trim_end());
    assert!(run.status.success(), "{}", run.stderr);
    case_ran!();
    // Python through the helper; another user's with CAP_DAC_OVERRIDE.
    let Some(python) = everybody::python(|_| true).unwrap() else {
        return skip_case!("Python", "{}", everybody::NO_PYTHON);
    };
    let script = everybody::Copy::new(&places::fixtures().join("service.py")).unwrap();
    let service_of = |user: Option<&str>| {
        let own = python.command(script.path());
        let mut command = match user {
            None => own,
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([&format!("--reuid={user}"), "--clear-groups"]);
                command.arg(own.get_program()).args(own.get_args());
                command
            }
        };
        Service::start(command.arg("0")).unwrap()
    };
    let target = "*/service.py:hot";
    for (user, kept) in [
        (None, "-all,+bpf,+perfmon,+sys_ptrace"),
        (None, "-all,+sys_admin,+sys_ptrace"),
        (Some("1"), "-all,+bpf,+perfmon,+sys_ptrace,+dac_override"),
    ] {
        let service = service_of(user);
        let run = attach(service.pid(), kept, target);
        assert!(run.status.success(), "{}, {kept}: {}", *python, run.stderr);
        assert!(!run.stderr.contains("warning"), "{}, {kept}: {}", *python, run.stderr);
    }
    let service = service_of(Some("1"));
    let run = attach(service.pid(), "-all,+bpf,+perfmon,+sys_ptrace", target);
    is_refused(&run, 4, &["user 1 in /proc", "CAP_DAC_OVERRIDE"]);
}

#[test]
fn strictness_about_targets_that_select_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let pid = service.pid().to_string();
    let file = targets_file(fixture.folder(), format!("{HOT}native:*/service:hott\n"));
    let words = ["line 2: `native:*/service:hott` selects nothing"];
    let run = loader(["--pid", &pid, "--targets", &file, "--strict"]);
    is_refused(&run, 3, &words);
    is_refused(&loader(["list", "--pid", &pid, "--targets", &file, "--strict"]), 3, &words);
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
    let run = loader(["--pid", &pid, "--targets", &file, "--duration", "1ms"]);
    assert!(run.status.success() && run.stderr.contains(words[0]), "{}", run.stderr);
}

#[test]
fn a_report_that_could_not_be_written() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let pid = service.pid().to_string();
    let file = targets_file(fixture.folder(), HOT);
    let folder = fixture.folder().to_str().unwrap();
    let nowhere = format!("{folder}/no/such/folder/report.json");
    let below_a_file = format!("{file}/report.json");
    for report in [nowhere.as_str(), folder, &below_a_file, "/proc/report.json"] {
        let run = loader(["--pid", &pid, "--targets", &file, "--json", report]);
        is_refused(&run, 2, &["cannot write the report to", report]);
    }
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn python_targets_in_a_process_without_python() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start();
    let file = targets_file(fixture.folder(), "*/app.py:*\n");
    let run = loader(["--pid", &service.pid().to_string(), "--targets", &file]);
    is_refused(&run, 4, &[&format!("process {}", service.pid()), "CPython"]);
}

/// A file that cannot be opened is not taken for one that is not there.
#[test]
fn too_few_files_that_may_be_open() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, service) = start();
    let pid = service.pid().to_string();
    let limited = |arguments: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 16; exec \"$0\" \"$@\""]).arg(tool::path().unwrap());
        run(shell.args(arguments))
    };
    let words = ["the limit on open files is 16", "`ulimit -n`"];
    is_refused(&limited(&["--pid", &pid, "-t", "native:*/service:hot"]), 4, &words);
    is_refused(&limited(&["list", "--pid", &pid, "-t", "native:*/service:hot"]), 4, &words);
    is_refused(&limited(&["sweep", "--pid", &pid]), 4, &words);
    // As many as are needed are enough.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 96; exec \"$0\" \"$@\""]).arg(tool::path().unwrap());
    let enough = run(shell.args(["--pid", &pid, "-t", "native:*/service:hot", "--duration", "100ms"]));
    assert_eq!(enough.status.code(), Some(0), "{}", enough.stderr);
}
