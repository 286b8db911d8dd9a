//! Threads that spend their time in long calls of native code are borrowed when they return to the
//! interpreter; one that never does is left alone.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::time::Duration;

use speed_bump_session::inject::{InjectError, Limits};
use speed_bump_testing::{Fixture, pythons, skip, wait::wait_for};

use crate::{program::Program, support};

/// A name, and a script that is practically never in the interpreter, and prints a line now and then. A call
/// takes much longer than a check, so that random checks would not find the thread in the interpreter.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "hashing",
        "import hashlib\nb = bytes(1 << 25)\nwhile 1: print(flush=True); hashlib.sha256(b).hexdigest()",
    ),
    ("compressing", "import zlib, os\nb = os.urandom(1 << 22)\nwhile 1: print(flush=True); zlib.compress(b)"),
    ("packing", "import bz2, os\nb = os.urandom(1 << 19)\nwhile 1: print(flush=True); bz2.compress(b)"),
    (
        "hashing in threads",
        "import hashlib, threading\nb = bytes(1 << 25)\n\
         def work():\n  while 1: print(flush=True); hashlib.sha256(b).hexdigest()\n\
         threading.Thread(target=work, daemon=True).start()\nwork()",
    ),
    (
        "hashing under a storm of signals",
        "import hashlib, signal\nb = bytes(1 << 25)\nsignal.signal(signal.SIGALRM, lambda *_: None)\n\
         signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n\
         while 1: print(flush=True); hashlib.sha256(b).hexdigest()",
    ),
    (
        "hashing with every harmless signal in use",
        "import hashlib, signal\nb = bytes(1 << 12)\n\
         for s in (signal.SIGURG, signal.SIGWINCH, signal.SIGCHLD): signal.signal(s, lambda *_: exit(1))\n\
         while 1: print(flush=True); hashlib.sha256(b).hexdigest()",
    ),
];
/// Sessions in each process.
const TRIES: usize = 5;
/// Not what a user would wait, but a busy machine may take that.
const PATIENT: Limits = Limits { safe_point: Duration::from_secs(40), call: Duration::from_secs(5) };

#[test]
fn long_calls_are_waited_for() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip!("this machine has no Python 3.8 or newer");
    }
    for (number, (name, script)) in PROGRAMS.iter().enumerate() {
        let python = &pythons[pythons.len() - 1 - number % pythons.len()];
        let program = Program::start(python, script);
        let process = &program.process;
        let interpreters = support::interpreters(process);
        for _ in 0..TRIES {
            let injected = support::inject_known(process, support::image(), 0, PATIENT, &interpreters)
                .unwrap_or_else(|error| panic!("{python}, {name}: {error}"));
            support::check_and_leave(process, &injected);
            program.prints().unwrap_or_else(|error| panic!("{python}, {name}: {error}"));
        }
        println!("{python}, {name}: {TRIES} of {TRIES}");
    }
}

/// Calls native code that counts for as long as it is not told to end, and never returns meanwhile.
const ENDLESS: &str = "\
import ctypes, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
counted = ctypes.c_ulong.in_dll(library, 'counted')
print(flush=True)
library.count()
print('ended', flush=True)
time.sleep(1000)";
const COUNTING: &str = "\
#include <signal.h>
volatile unsigned long counted;
static volatile int over;
static void end(int signal) { (void)signal; over = 1; }
void count(void) { signal(SIGUSR1, end); while (!over) counted++; }";

#[test]
fn an_endless_call_is_left_alone() {
    let Some(python) = pythons().last() else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let library = Fixture::compile_text(COUNTING, &["-shared", "-fPIC", "-O1"]).unwrap();
    let inside = python.inside(library.program());
    let program = Program::start_with(python, ENDLESS, &[inside.to_str().unwrap()]);
    let process = &program.process;
    wait_for("the endless call", || {
        // The handler is there once it has begun.
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
        (u64::from_str_radix(caught, 16).ok()? & 1 << (libc::SIGUSR1 - 1) != 0).then_some(())
    })
    .unwrap();
    let before = support::traces(process);
    let limits = Limits { safe_point: Duration::from_millis(500), ..Limits::default() };
    let error = support::inject_with(process, support::image(), 0, limits).unwrap_err();
    let InjectError::NoSafePoint { .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains("not returning from native code"), "{error}");
    assert_eq!(support::traces(process), before);
    rustix::process::pidfd_send_signal(process, rustix::process::Signal::USR1).unwrap();
    assert_eq!(program.line(), "ended");
    let injected = support::inject_with(process, support::image(), 0, PATIENT).unwrap();
    support::check_and_leave(process, &injected);
}
