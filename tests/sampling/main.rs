//! Sampling of running processes, through the library: what it finds, and what does not mislead it.

#![allow(clippy::unwrap_used)]

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use speed_bump_session::sampling::{
    profile::{FunctionSeen, Profile},
    sample,
};
use speed_bump_testing::{
    Fixture, PythonBuild, Service, pythons,
    pythons::Form,
    session::obstacle,
    side_by_side, skip, tool,
    uwsgi::{self, Uwsgi},
    wait::PATIENCE,
};
use speed_bump_units::units::Pid;

const TIME: Duration = Duration::from_secs(2);

fn sampled(service: &Service) -> Profile {
    let pid = Pid::new(service.pid()).unwrap();
    sample(&[pid], true, TIME, || true).unwrap()
}

#[track_caller]
fn of<'a>(profile: &'a Profile, name: &str) -> &'a FunctionSeen {
    profile.functions.iter().find(|of| of.name == name).unwrap_or_else(|| unreachable!("{profile:#?}"))
}

/// Two functions that share one thread 3 to 1. Each round takes another time, so that samples, of which there
/// is one in 10 ms, do not keep step with rounds.
const NATIVE: &str = r#"
#include <stdio.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline)) void often(unsigned long times)
{
	for (unsigned long i = 0; i < 3 * times; i++)
		sink += i;
}

__attribute__((noinline)) void seldom(unsigned long times)
{
	for (unsigned long i = 0; i < times; i++)
		sink += i;
}

int main(void)
{
	unsigned long random = 88172645463325252ul;
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	for (;;) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		unsigned long times = random % 1000000;
		often(times);
		seldom(times);
		if (write(1, "", 0) < 0)
			return 1;
	}
}
"#;

#[test]
fn native_functions_are_seen_with_their_shares() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::compile_text(NATIVE, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let profile = sampled(&service);
    if profile.clock.is_none() {
        return skip!("{}", profile.remarks.join("; "));
    }
    let (often, seldom) = (of(&profile, "often"), of(&profile, "seldom"));
    assert_eq!((often.file.as_path(), often.line), (fixture.program(), None));
    let share = often.own as f64 / (often.own + seldom.own) as f64;
    assert!((0.55..0.92).contains(&share), "{share}: {profile:#?}");
    // It has a processor all the time, if others leave it one.
    assert!(often.own + seldom.own > 20, "{profile:#?}");
}

/// A process that says it is a CPython, and whose memory leads everywhere and back.
const HOSTILE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WORDS 4096
unsigned long _PyRuntime[WORDS] __attribute__((aligned(4096)));
const unsigned int Py_Version = VERSION;
void *_PyEval_EvalFrameDefault(void) { return _PyRuntime; }
void *PyEval_EvalFrameEx(void) { return _PyRuntime; }

int main(void)
{
	unsigned long random = 88172645463325252ul;
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	for (unsigned long i = 0;; i++) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		unsigned long at = random % WORDS, word = random >> 12;
		if (at < 128 && VERSION >= 0x030d0000 && at != 5 && at != 8)
			continue;
		switch (word % 16) {
		case 0: _PyRuntime[at] = word; break;
		case 1: _PyRuntime[at] = 0; break;
		case 2: _PyRuntime[at] = getpid(); break;
		default: _PyRuntime[at] = (unsigned long)&_PyRuntime[word % WORDS]; break;
		}
		if (i == 0 && VERSION >= 0x030d0000) {
			memcpy(_PyRuntime, "xdebugpy", 8);
			_PyRuntime[1] = VERSION;
			for (int j = 3; j < 128; j++)
				_PyRuntime[j] = 8 * j;
		}
	}
}
"#;

/// It ends on time, and shows nothing that is not there.
#[test]
fn memory_that_leads_everywhere_is_no_stack() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let versions = ["0x03080ff0", "0x030a00f0", "0x030b00f0", "0x030c00f0", "0x030d00f0", "0x030e00f0"];
    side_by_side::on_each(&versions, |version| {
        let flag = format!("-DVERSION={version}");
        let fixture = Fixture::compile_text(HOSTILE, &["-O1", "-rdynamic", &flag]).unwrap();
        let service = Service::start(&mut Command::new(fixture.program())).unwrap();
        let profile = sampled(&service);
        assert!(profile.ticks > 2, "{version}: {profile:#?}");
        assert!(profile.functions.iter().all(|of| of.line.is_none()), "{version}: {profile:#?}");
    });
}

/// Children that start later are sampled too.
#[test]
fn workers_that_are_forked_meanwhile_are_seen() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = pythons().last() else { return skip!("this machine has no Python 3.8 or newer") };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("forks.py");
    let text = "import json, os, sys, time\n\
                print(json.dumps({'event': 'ready', 'pid': os.getpid()}), flush=True)\n\
                def work():\n    end = time.perf_counter() + 0.01\n\
                \x20   while time.perf_counter() < end: pass\n\
                time.sleep(0.3)\n\
                if os.fork():\n    sys.stdin.read()\n    sys.exit()\n\
                parent = os.getppid()\n\
                while os.getppid() == parent: work()\n";
    std::fs::write(&script, text).unwrap();
    let service = Service::start(&mut python.command(&script)).unwrap();
    let profile = sampled(&service);
    let work = of(&profile, "work");
    let processes: Vec<Pid> = work.threads.keys().map(|of| of.process).collect();
    assert!(!processes.contains(&Pid::new(service.pid()).unwrap()), "{profile:#?}");
    assert!(work.own > 5, "{profile:#?}");
}

/// Workers of uWSGI are forked in C: Python is not told, and thread states keep the numbers of the master's
/// threads.
#[test]
fn functions_of_uwsgi_workers_are_seen() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let builds = uwsgi::builds();
    if builds.is_empty() {
        return skip!("pyuwsgi is not here: run `cargo xtask packages`, which needs PyPI");
    }
    side_by_side::on_each(&builds, |build| {
        let server = Uwsgi::start(build, &["--processes", "1"]).unwrap();
        let pid = Pid::new(server.master()).unwrap();
        let is_over = AtomicBool::new(false);
        let profile = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    server.calls(20_000).unwrap();
                }
            });
            let profile = sample(&[pid], true, TIME, || true);
            is_over.store(true, Ordering::Relaxed);
            profile.unwrap()
        });
        let application = of(&profile, "application");
        assert!(application.own > 5, "{build}: {profile:#?}");
        assert!(application.threads.keys().all(|of| of.process != pid), "{build}: {profile:#?}");
        assert!(profile.unattributed().is_none_or(|share| share < 0.2), "{build}: {profile:#?}");
    });
}

/// A program whose only thread has another's numbers in its state; beside Python code it computes in C.
const UNKNOWN_THREAD: &str = r#"
import ctypes, json, os, threading, zlib
get = ctypes.pythonapi.PyThreadState_Get
get.restype = ctypes.c_void_p
state = get()
def word(at): return ctypes.c_uint64.from_address(state + at)
is_own = lambda at: word(at).value == threading.get_ident()
at = next(at for at in range(0, 512, 8) if is_own(at))
word(at).value = 8
if word(at + 8).value == threading.get_native_id(): word(at + 8).value = 1
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
data = os.urandom(1 << 15)
def compute():
    for _ in range(200_000): pass
while True:
    compute()
    zlib.compress(data)
"#;

#[test]
fn a_sweep_ranks_nothing_where_python_functions_are_not_seen() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let builds: Vec<&PythonBuild> = pythons().iter().filter(|build| build.form == Form::Direct).collect();
    if builds.is_empty() {
        return skip!("this machine has no Python 3.8 or newer");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("unknown.py");
    std::fs::write(&script, UNKNOWN_THREAD).unwrap();
    side_by_side::on_each(&builds, |build| {
        let service = Service::start(&mut build.command(&script)).unwrap();
        let pid = service.pid().to_string();
        let arguments = ["sweep", "--pid", &pid, "--for", "10s", "--progress", "native:*:compress*"];
        let run = tool::run(&arguments, PATIENCE).unwrap();
        assert!(!run.status.success(), "{build}: {}\n{}", run.stdout, run.stderr);
        assert!(run.stderr.contains("could not be attributed"), "{build}: {}", run.stderr);
        assert!(run.stderr.contains("--target"), "{build}: {}", run.stderr);
    });
}
