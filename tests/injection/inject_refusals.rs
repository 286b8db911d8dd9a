//! Processes that cannot be injected into are refused with the reason, and a failure midway leaves the
//! process unchanged.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use speed_bump_linux::{process::Process, sys::ptrace::Tracee};
use speed_bump_session::inject::{InjectError, Limits, inject};
use speed_bump_testing::{Fixture, skip, wait::wait_for};
use speed_bump_tests::processes::{self, Running, is_root};

use crate::support;

fn sleeping() -> Running {
    let running = Running::start(Command::new("sleep").arg("1000"));
    wait_for("sleep", || {
        let process = Process::open(running.pid()).ok()?;
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", running.pid())).ok()?;
        let comm = process.comm().ok()?;
        (comm == "sleep" && call.starts_with("230 ")).then_some(())
    })
    .unwrap();
    running
}

fn process(running: &Running) -> Process {
    Process::open(running.pid()).unwrap()
}

fn limits() -> Limits {
    Limits { safe_point: Duration::from_millis(300), call: Duration::from_millis(100) }
}

/// The process is unchanged and goes on, and still accepts the helper.
fn unharmed(process: &Process, before: &support::Traces) {
    assert!(process.is_alive());
    assert_eq!(support::traces(process), *before);
}

#[test]
fn a_process_that_is_traced() {
    let running = sleeping();
    let process = process(&running);
    let _tracer = Tracee::seize(running.pid(), true).unwrap();
    let error = support::inject_here(&process).unwrap_err();
    assert!(matches!(error, InjectError::Traced { .. }), "{error}");
}

#[test]
fn a_process_that_is_stopped_goes_on_when_continued() {
    let running = sleeping();
    let process = process(&running);
    let send = |signal| rustix::process::pidfd_send_signal(&process, signal).unwrap();
    send(rustix::process::Signal::STOP);
    wait_for("the stop", || matches!(processes::state(running.pid()), Some(('T', _))).then_some(())).unwrap();
    let error = support::inject_here(&process).unwrap_err();
    assert!(matches!(error, InjectError::Stopped { .. }), "{error}");
    assert!(matches!(processes::state(running.pid()), Some(('T', _))), "still stopped");
    send(rustix::process::Signal::CONT);
    wait_for("going on", || matches!(processes::state(running.pid()), Some(('S', _))).then_some(())).unwrap();
    let injected = support::inject_here(&process).unwrap();
    support::check_and_leave(&process, &injected);
}

#[test]
fn a_static_program() {
    let source =
        "#include <unistd.h>\nint main(void) { if (write(1, \"\\n\", 1) != 1) return 1; for (;;) pause(); }";
    let program = Fixture::compile_text(source, &["-static"]).unwrap();
    let running = Running::start_and_wait(&mut Command::new(program.program()));
    let process = process(&running);
    let error = support::inject_here(&process).unwrap_err();
    assert!(matches!(error, InjectError::NoDynamicLoader { .. }), "{error}");
    assert!(process.is_alive());
}

#[test]
fn seccomp_filters_are_asked_and_never_triggered() {
    if !is_root() {
        return skip!("reading the filters of a process needs CAP_SYS_ADMIN");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/inject_refusals/sandboxed.c");
    let program = Fixture::compile(&source, &[]).unwrap();
    for (filter, expected) in
        [("allow", ""), ("kill", "the end of the process"), ("errno", "error 1"), ("strict", "strict")]
    {
        let mut command = Command::new(program.program());
        let running = Running::start_and_wait(command.arg(filter).stdin(Stdio::piped()));
        let process = process(&running);
        let before = support::traces(&process);
        match (support::inject_here(&process), filter) {
            (Ok(injected), "allow") => support::check_and_leave(&process, &injected),
            (Err(InjectError::SeccompForbids { call, action, .. }), "kill" | "errno") => {
                assert_eq!((call, action.as_str()), ("memfd_create", expected));
                unharmed(&process, &before);
            }
            (Err(InjectError::SeccompStrict { .. }), "strict") => unharmed(&process, &before),
            (result, _) => panic!("{filter}: {result:?}"),
        }
    }
}

#[test]
fn another_users_process() {
    if !is_root() {
        return skip!("needs root, to become another user");
    }
    let running = sleeping();
    let process = process(&running);
    let image = support::image();
    let program = process.program().unwrap();
    let error = processes::as_nobody(|| {
        inject(&process, &program, image, &[], &mut |_| Ok(()), limits()).unwrap_err()
    });
    assert!(error.to_string().contains("CAP_SYS_PTRACE"), "{error}");
}

#[test]
fn a_helper_that_never_returns_is_left() {
    let running = sleeping();
    let process = process(&running);
    let before = support::traces(&process);
    let error = support::inject_with(&process, support::image(), b'L', limits()).unwrap_err();
    assert!(matches!(error, InjectError::Overdue { .. }), "{error}");
    unharmed(&process, &before);
}

#[test]
fn a_helper_that_crashes_takes_nothing_with_it() {
    let running = sleeping();
    let process = process(&running);
    let before = support::traces(&process);
    let error = support::inject_with(&process, support::image(), b'C', limits()).unwrap_err();
    assert!(matches!(error, InjectError::Crashed { signal: libc::SIGSEGV, .. }), "{error}");
    unharmed(&process, &before);
}

#[test]
fn a_control_block_that_cannot_be_filled_leaves_nothing_open() {
    let running = sleeping();
    let process = process(&running);
    let before = support::traces(&process);
    let mut fill = |_: &std::fs::File| Err(std::io::ErrorKind::StorageFull.into());
    let program = process.program().unwrap();
    let error = inject(&process, &program, support::image(), &[], &mut fill, limits()).unwrap_err();
    assert!(matches!(error, InjectError::Control { .. }), "{error}");
    unharmed(&process, &before);
}

#[test]
fn bytes_that_are_no_helper() {
    let running = sleeping();
    let process = process(&running);
    for bytes in [&b""[..], b"\x7fELF", &support::image()[..600]] {
        let program = process.program().unwrap();
        let error = inject(&process, &program, bytes, &[], &mut |_| Ok(()), limits()).unwrap_err();
        assert!(matches!(error, InjectError::Image(_)), "{error}");
    }
}

#[test]
fn another_version_is_loaded_beside_and_a_session_at_work_is_left_alone() {
    let running = sleeping();
    let process = process(&running);
    let first = support::inject_here(&process).unwrap();
    let error = support::inject_here(&process).unwrap_err();
    assert!(matches!(error, InjectError::InUse { .. }), "{error}");
    support::check_and_leave(&process, &first);
    let other = support::image_variant("TWO");
    let second = support::inject_with(&process, &other, 0, Limits::default()).unwrap();
    assert!(second.fresh && second.text.start != first.text.start);
    support::check_and_leave(&process, &second);
    let again = support::inject_here(&process).unwrap();
    assert!(!again.fresh);
    assert_eq!((again.text, again.image.id()), (first.text, first.image.id()));
    support::check_and_leave(&process, &again);
}
