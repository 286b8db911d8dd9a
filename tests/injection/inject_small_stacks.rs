//! Threads with stacks too small for borrowing do no harm, and do not notice that they were considered.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use speed_bump_session::inject::{InjectError, Limits};
use speed_bump_testing::{Fixture, Lines, pythons, skip};
use speed_bump_tests::processes::Running;

use crate::{program::Program, support};

/// The main thread computes, and thirty wait with stacks of 32 KiB.
const THIRTY_AND_ONE: &str = "\
import threading
ready = threading.Barrier(31)
never = threading.Event()
def wait():
    ready.wait()
    never.wait()
threading.stack_size(32 << 10)
for _ in range(30): threading.Thread(target=wait, daemon=True).start()
ready.wait()
def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
while 1: print(flush=True); f(12)";

#[test]
fn one_fit_thread_is_found_behind_thirty_waiting_ones() {
    // From 3.14 on Python wants more stack for a thread.
    let Some(python) = pythons().iter().rfind(|python| python.minor() < (3, 14)) else {
        return skip!("this machine has no Python from 3.8 to 3.13");
    };
    let program = Program::start(python, THIRTY_AND_ONE);
    for _ in 0..3 {
        let injected = support::inject_here(&program.process).unwrap();
        assert_eq!(injected.thread, program.process.pid());
        support::check_and_leave(&program.process, &injected);
        program.prints().unwrap();
    }
}

#[test]
fn waits_of_threads_that_are_not_borrowed_are_not_broken_off() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/inject_small_stacks/waits.c");
    let fixture = Fixture::compile(&source, &["-pthread"]).unwrap();
    let mut command = Command::new(fixture.program());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::read(child.stdout.take().unwrap());
    assert_eq!(lines.line().unwrap(), "ready");
    let process = support::open(child.id().cast_signed());
    let injected = support::inject_here(&process);
    if let Ok(injected) = &injected {
        support::check_and_leave(&process, injected);
    }
    drop(child.stdin.take());
    assert_eq!(lines.line().unwrap(), "0", "waits were broken off");
    child.wait().unwrap();
    assert_eq!(injected.unwrap().thread, process.pid());
}

/// Waiting does not help if nothing changes: the message says what would.
#[test]
fn small_stacks_alone_are_told_as_such() {
    let source = "\
        #include <pthread.h>\n#include <unistd.h>\n\
        static void *wait_for_ever(void *unused) { (void)unused; if (write(1, \"\\n\", 1) != 1) return 0; \
            for (;;) pause(); }\n\
        int main(void) { pthread_attr_t small; pthread_attr_init(&small); \
            pthread_attr_setstacksize(&small, 32 << 10); pthread_t thread; \
            if (pthread_create(&thread, &small, wait_for_ever, 0)) return 1; \
            pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER; pthread_mutex_lock(&taken); \
            pthread_mutex_lock(&taken); }";
    let fixture = Fixture::compile_text(source, &["-pthread"]).unwrap();
    let running = Running::start_and_wait(&mut Command::new(fixture.program()));
    let process = support::open(running.pid().get());
    let limits = Limits { safe_point: Duration::from_millis(300), ..Limits::default() };
    let error = support::inject_with(&process, support::image(), 0, limits).unwrap_err();
    assert!(matches!(error, InjectError::NoSafePoint { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("with too little stack left"), "{error}");
    assert!(error.contains("a thread needs at least 48 KiB of stack"), "{error}");
}
