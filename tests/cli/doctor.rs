//! `doctor` and an attach under the same circumstances: what `doctor` passes, the attach must do, and what
//! `doctor` refuses, the attach must refuse in the same words.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::HashMap,
    ffi::OsString,
    os::unix::fs::MetadataExt as _,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use speed_bump_testing::{
    Fixture, Service,
    everybody::{self, NO_PYTHON},
    places,
    session::{obstacle, obstacle_to_uprobe_multi},
    skip, text,
    tool::{self, Run, Running},
    wait::{PATIENCE, wait_until},
};

const HOT: &str = "native:*/service:hot";
const PYTHON_HOT: &str = "*/service.py:hot";

/// Runs a program under a seccomp filter that answers a system call with an error: `program CALL ERROR
/// COMMAND ...`. Without `PR_SET_NO_NEW_PRIVS`, so that capabilities stay as they are.
const FILTERED: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 4)
		return 125;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(argv[1]), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | atoi(argv[2])),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 126;
	execvp(argv[3], argv + 3);
	return 127;
}
"#;

/// No system call: a filter that forbids nothing.
const NOTHING: libc::c_long = 100_000;

/// The circumstances of a command, if they differ from the test's.
#[derive(Clone, Debug, Default)]
struct Prefix(Vec<OsString>);

impl Prefix {
    /// With these capabilities and no others.
    fn capabilities(kept: &str) -> Self {
        Self(["setpriv", "--inh-caps=-all", &format!("--bounding-set={kept}")].map(OsString::from).into())
    }

    /// As another user.
    fn user(user: &str) -> Self {
        Self(["setpriv", &format!("--reuid={user}"), "--clear-groups"].map(OsString::from).into())
    }

    /// Under a filter that forbids a system call.
    fn filtered(filter: &Fixture, call: libc::c_long, error: i32) -> Self {
        let numbers = [call.to_string().into(), error.to_string().into()];
        Self(std::iter::once(filter.program().into()).chain(numbers).collect())
    }

    /// In the PID and mount namespaces of a process.
    fn inside(pid: i32) -> Self {
        Self(["nsenter", "--target", &pid.to_string(), "--pid", "--mount", "--"].map(OsString::from).into())
    }

    fn command(&self, program: impl Into<OsString>) -> Command {
        let mut words = self.0.iter().cloned().chain([program.into()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        command
    }
}

fn finish(command: &mut Command) -> Run {
    Running::start(command).unwrap().finish(PATIENCE).unwrap()
}

/// The output of `doctor`.
#[derive(Debug)]
struct Doctor {
    code: Option<i32>,
    checks: HashMap<String, Value>,
}

impl Doctor {
    fn run(prefix: &Prefix, pid: i32) -> Self {
        let mut command = prefix.command(tool::path().unwrap());
        let run = finish(command.args(["doctor", "--json", "--pid", &pid.to_string()]));
        let checks: Vec<Value> = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
        let named = |check: Value| (check["name"].as_str().unwrap().to_owned(), check);
        Self { code: run.status.code(), checks: checks.into_iter().map(named).collect() }
    }

    fn status(&self, name: &str) -> &str {
        self.checks.get(name).and_then(|check| check["status"].as_str()).unwrap_or("absent")
    }

    /// The text of a check, joined.
    fn text(&self, name: &str) -> String {
        let check = &self.checks[name];
        format!("{} {}", check["detail"].as_str().unwrap(), check["way_out"].as_str().unwrap_or_default())
    }

    fn failed(&self) -> Vec<&str> {
        let mut failed: Vec<_> =
            self.checks.keys().map(String::as_str).filter(|name| self.status(name) == "fail").collect();
        failed.sort_unstable();
        failed
    }

    /// The check of the one interpreter.
    fn python(&self) -> &str {
        self.checks.keys().find(|name| name.starts_with("Python in ")).unwrap()
    }
}

fn attach(prefix: &Prefix, pid: i32, target: &str) -> Run {
    let mut command = prefix.command(tool::path().unwrap());
    command.args(["--pid", &pid.to_string(), "--target", target, "--delay", "10us", "--duration", "10ms"]);
    finish(&mut command)
}

/// The message that a refused attach ends with.
fn message(run: &Run) -> &str {
    run.stderr.lines().find_map(|line| line.strip_prefix("speed-bump-ebpf: error: ")).unwrap_or_default()
}

/// Checks that both agree on a native function. Returns whether it can be attached to.
fn agree(prefix: &Prefix, pid: i32) -> (Doctor, bool) {
    let (doctor, run) = (Doctor::run(prefix, pid), attach(prefix, pid, HOT));
    let works = run.status.success();
    assert_eq!(doctor.failed().is_empty(), works, "{prefix:?}: {:?}\n{}", doctor.failed(), run.stderr);
    assert_eq!(doctor.code, Some(if works { 0 } else { 4 }), "{prefix:?}: {doctor:?}");
    if !works {
        assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
        assert!(doctor.text("attach").contains(message(&run)), "{prefix:?}: {doctor:?}\n{}", run.stderr);
    }
    (doctor, works)
}

/// The same for a Python function. Returns the obstacle; empty if there is none.
fn agree_on_python(prefix: &Prefix, pid: i32) -> String {
    let (doctor, run) = (Doctor::run(prefix, pid), attach(prefix, pid, PYTHON_HOT));
    let name = doctor.python();
    let (status, said) = (doctor.status(name), doctor.text(name));
    let expected = if run.status.success() { "pass" } else { "warn" };
    assert_eq!(status, expected, "{prefix:?}: {said}\n{}", run.stderr);
    if run.status.success() {
        assert_eq!(doctor.failed(), [""; 0], "{prefix:?}");
        return String::new();
    }
    let why = message(&run).split_once(": ").unwrap_or_default().1.to_owned();
    assert!(said.contains(&why) && !why.is_empty(), "{prefix:?}: {said}\n{}", run.stderr);
    why
}

fn has_setpriv() -> bool {
    Command::new("setpriv").arg("--version").output().is_ok()
}

fn native_service() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
    (fixture, service)
}

/// A Python that every user may run, and that shows no calls but through the helper, with the script of its
/// service.
struct Everybodys {
    python: everybody::Python,
    script: everybody::Copy,
}

impl Everybodys {
    fn find() -> Option<Self> {
        let python = everybody::python(|python| !python.usdt_fires()).unwrap()?;
        let script = everybody::Copy::new(&places::fixtures().join("service.py")).unwrap();
        Some(Self { python, script })
    }

    fn service(&self, prefix: &Prefix) -> Service {
        let own = self.python.command(self.script.path());
        let mut command = prefix.command(own.get_program());
        Service::start(command.args(own.get_args()).arg("0")).unwrap()
    }
}

#[test]
fn no_capability_fails_that_an_attach_does_without() {
    if let Some(why) = obstacle_to_uprobe_multi() {
        return skip!("{why}");
    }
    if !has_setpriv() {
        return skip!("no setpriv (util-linux)");
    }
    let (fixture, service) = native_service();
    for (kept, needed) in [
        ("-all,+bpf,+perfmon,+sys_ptrace", &[][..]),
        ("-all,+sys_admin,+sys_ptrace", &[]),
        ("-all,+sys_ptrace", &["CAP_BPF", "CAP_PERFMON", "attach"]),
        ("-all,+sys_ptrace,+perfmon", &["CAP_BPF", "attach"]),
        ("-all,+sys_ptrace,+bpf", &["CAP_PERFMON", "attach"]),
    ] {
        let (doctor, _) = agree(&Prefix::capabilities(kept), service.pid());
        // Before 6.10 uprobes are perf events, and some of those kernels ask for more.
        let found: Vec<_> = doctor.failed().into_iter().filter(|name| *name != "CAP_SYS_ADMIN").collect();
        if doctor.status("uprobe_multi") == "pass" {
            assert_eq!(doctor.failed(), needed, "{kept}");
        } else {
            assert!(needed.iter().all(|name| found.contains(name)), "{kept}: {found:?}");
        }
    }
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn python_of_another_user_takes_what_doctor_says() {
    if let Some(why) = obstacle_to_uprobe_multi() {
        return skip!("{why}");
    }
    if !has_setpriv() {
        return skip!("no setpriv (util-linux)");
    }
    let Some(everybodys) = Everybodys::find() else { return skip!("{NO_PYTHON}") };
    let python = &*everybodys.python;
    for (user, more, expected) in [
        ("0", "", ""),
        ("1", "", "CAP_DAC_OVERRIDE"),
        // Its memory may then be read, and not be written.
        ("1", ",+dac_read_search", "CAP_DAC_OVERRIDE"),
        ("1", ",+dac_override", ""),
    ] {
        let service = everybodys.service(&Prefix::user(user));
        let kept = format!("-all,+bpf,+perfmon,+sys_ptrace{more}");
        let why = agree_on_python(&Prefix::capabilities(&kept), service.pid());
        assert_eq!(why.is_empty(), expected.is_empty(), "{python}, user {user}, {kept}: {why}");
        assert!(why.contains(expected), "{python}, user {user}, {kept}: {why}");
        if why.is_empty() {
            // The helper that this attach has left behind has no name.
            let again = agree_on_python(&Prefix::capabilities(&kept), service.pid());
            assert!(again.contains("CAP_CHECKPOINT_RESTORE"), "{python}, {kept}: {again}");
            let kept = format!("{kept},+checkpoint_restore");
            assert_eq!(agree_on_python(&Prefix::capabilities(&kept), service.pid()), "", "{python}, {kept}");
        }
    }
}

#[test]
fn seccomp_filters_of_a_python_are_asked_by_both() {
    if let Some(why) = obstacle_to_uprobe_multi() {
        return skip!("{why}");
    }
    if !has_setpriv() {
        return skip!("no setpriv (util-linux)");
    }
    let Some(everybodys) = Everybodys::find() else { return skip!("{NO_PYTHON}") };
    let filter = Fixture::compile_text(FILTERED, &[]).unwrap();
    let under = |call| Prefix::filtered(&filter, call, libc::EPERM);
    let plain = Prefix::default();
    let without_admin = Prefix::capabilities("-all,+bpf,+perfmon,+sys_ptrace");
    let admin = Prefix::capabilities("-all,+sys_admin,+sys_ptrace");
    for (forbidden, of_tool, words) in [
        (NOTHING, &plain, ""),
        (NOTHING, &admin, ""),
        // The kernel shows filters to CAP_SYS_ADMIN alone, and to no process with a filter.
        (NOTHING, &without_admin, "cannot be read"),
        (NOTHING, &under(NOTHING), "cannot be read"),
        (libc::SYS_memfd_create, &plain, "memfd_create"),
    ] {
        let mut service = everybodys.service(&under(forbidden));
        let why = agree_on_python(of_tool, service.pid());
        assert_eq!(why.is_empty(), words.is_empty(), "{forbidden}, {of_tool:?}: {why}");
        assert!(why.contains(words), "{forbidden}, {of_tool:?}: {why}");
        service.ask("call hot 1").unwrap();
    }
}

#[test]
fn a_look_at_a_filter_leaves_no_trace() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(Everybodys { python, .. }) = Everybodys::find() else { return skip!("{NO_PYTHON}") };
    let filter = Fixture::compile_text(FILTERED, &[]).unwrap();
    let under = Prefix::filtered(&filter, libc::SYS_memfd_create, libc::EPERM);
    // Without a handler of Python's for EINTR: the C library's sleep tells what is left of it.
    let script = "import ctypes, json, os, sys\n\
                  print(json.dumps({'event': 'ready', 'pid': os.getpid()}), flush=True)\n\
                  left = ctypes.CDLL(None).sleep(5)\n\
                  print(json.dumps({'event': 'slept', 'left': left}), flush=True)\n\
                  sys.stdin.read()\n";
    let file = filter.folder().join("sleeps.py");
    std::fs::write(&file, script).unwrap();
    let own = python.command(&file);
    let mut command = under.command(own.get_program());
    let output = filter.folder().join("output");
    command.args(own.get_args()).stdin(Stdio::piped()).stdout(std::fs::File::create(&output).unwrap());
    let mut child = command.spawn().unwrap();
    let said = |word: &str| std::fs::read_to_string(&output).is_ok_and(|text| text.contains(word));
    wait_until("it sleeps", || Ok(said("ready"))).unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let doctor = Doctor::run(&Prefix::default(), pid);
    assert!(doctor.text(doctor.python()).contains("memfd_create"), "{doctor:?}");
    assert!(!maps().contains("speed-bump"));
    wait_until("it has slept", || Ok(said("slept"))).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said("\"left\": 0"), "{}", std::fs::read_to_string(&output).unwrap());
}

#[test]
fn bpf_that_our_own_filter_forbids_is_no_missing_capability() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let filter = Fixture::compile_text(FILTERED, &[]).unwrap();
    let under = |call, error| Prefix::filtered(&filter, call, error);
    let (_fixture, service) = native_service();
    let (_, works) = agree(&under(NOTHING, libc::EPERM), service.pid());
    assert!(works);

    for error in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
        let (doctor, works) = agree(&under(libc::SYS_bpf, error), service.pid());
        assert!(!works, "{error}");
        assert_eq!((doctor.status("BPF"), doctor.status("CAP_BPF")), ("fail", "pass"), "{error}");
        let said = doctor.text("BPF");
        assert!(!said.contains("CAP_BPF"), "{said}");
        if error != libc::ENOSYS {
            assert!(said.contains("seccomp filter"), "{said}");
        }
    }
}

#[test]
fn breakpoints_that_are_refused_are_not_blamed_on_others() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let filter = Fixture::compile_text(FILTERED, &[]).unwrap();
    let (fixture, service) = native_service();
    let under = Prefix::filtered(&filter, libc::SYS_perf_event_open, libc::EPERM);
    let (doctor, works) = agree(&under, service.pid());
    let said = doctor.text("processor breakpoints");
    assert_eq!(doctor.status("processor breakpoints"), "warn", "{said}");
    assert!(said.contains("perf_event_open(2) is refused") && !said.contains("debugger"), "{said}");
    // If uprobes are perf events, the kernel forbids those.
    assert_eq!(works, doctor.status("uprobe_multi") == "pass", "{doctor:?}");
    assert_eq!(text::differences(service.pid(), fixture.program()).unwrap(), [0_u64; 0]);
}

#[test]
fn system_calls_of_an_injection_that_our_own_filter_forbids() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(everybodys) = Everybodys::find() else { return skip!("{NO_PYTHON}") };
    let filter = Fixture::compile_text(FILTERED, &[]).unwrap();
    let service = everybodys.service(&Prefix::default());
    for (call, name) in [(libc::SYS_ptrace, "ptrace(2)"), (libc::SYS_pidfd_getfd, "pidfd_getfd(2)")] {
        let why = agree_on_python(&Prefix::filtered(&filter, call, libc::EPERM), service.pid());
        assert!(why.contains(&format!("{name} is refused to this tool")), "{why}");
    }
}

#[test]
fn children_are_followed_as_doctor_says() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let flags = ["--pid", "--fork", "--mount-proc"];
    let has_namespaces = Command::new("unshare").args(flags).arg("true").output();
    if !has_namespaces.is_ok_and(|output| output.status.success()) {
        return skip!("no PID namespaces (unshare of util-linux)");
    }
    let fixture = Fixture::service().unwrap();
    let mut command = Command::new("unshare");
    command.args(flags).arg("--kill-child").arg(fixture.program()).arg("0");
    let mut service = Service::start(&mut command).unwrap();
    let unshare = service.pid();
    let children = |of: i32| std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    let outside: i32 = children(unshare).trim().parse().unwrap();

    let inside = Prefix::inside(outside);
    let doctor = Doctor::run(&inside, 1);
    let all: Vec<String> = doctor.checks.keys().map(|name| doctor.text(name)).collect();
    let denied: Vec<_> = all.iter().filter(|text| text.contains("cannot be followed")).collect();
    assert!(denied.is_empty(), "{denied:?}");
    let said = doctor.text("children");
    assert_eq!((doctor.status("children"), doctor.failed()), ("warn", vec![]), "{said}");
    assert!(said.starts_with("covered late: the tool polls for them"), "{said}");
    // PROC_PID_INIT_INO in include/linux/proc_ns.h
    if std::fs::metadata("/proc/self/ns/pid").unwrap().ino() == 0xEFFF_FFFC {
        let announced = Doctor::run(&Prefix::default(), outside);
        assert_eq!(announced.status("children"), "pass", "{announced:?}");
    }

    let mut command = inside.command(tool::path().unwrap());
    let running = Running::start(command.args(["--pid", "1", "--target", HOT, "--json", "-"])).unwrap();
    running.wait_for_stderr("attached; ", PATIENCE).unwrap();
    service.ask("fork-exec").unwrap();
    let child: i32 = children(outside).trim().parse().unwrap();
    wait_until("the child has a probe", || Ok(!text::differences(child, fixture.program())?.is_empty()))
        .unwrap();
    service.ask("relay call hot 200").unwrap();
    // nsenter waits for the tool, and passes no signal on.
    let tool: i32 = children(running.pid()).trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(tool).unwrap(), Signal::INT).unwrap();
    let run = running.finish(PATIENCE).unwrap();
    assert!(run.status.success(), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["targets"][0]["calls"], 200, "{}", run.stderr);
}
