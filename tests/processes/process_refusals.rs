//! Processes that cannot be attached to: each is refused, with its own reason.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use speed_bump_linux::{
    capability::Capability,
    kernel::{AttachBy, PrivilegeError, Privileges},
    process::{MappedFileError, MemoryError, Process, ProcessError, RefusalKind, access::DenialReason},
};
use speed_bump_testing::{skip, wait::wait_for};
use speed_bump_tests::processes::{self, Running, as_nobody, directory, in_thread, is_root, state};
use speed_bump_units::units::{Pid, VirtualAddress};

use crate::programs::compile;

fn pid(number: i32) -> Pid {
    Pid::new(number).unwrap()
}

fn own_pid() -> Pid {
    pid(std::process::id().cast_signed())
}

fn sleep() -> Running {
    Running::start(Command::new("sleep").arg("600"))
}

fn refusal(pid: Pid) -> ProcessError {
    Process::open(pid).unwrap_err()
}

/// Where the program lies, once the child has really begun it: `spawn` returns in the middle of the exec.
fn first_address(process: &Process) -> VirtualAddress {
    wait_for("the program", || Some(process.mappings().unwrap().files.first()?.ranges.first()?.start))
        .unwrap()
}

#[test]
fn no_such_process() {
    // Beyond the largest PID that any kernel gives out (2^22).
    let error = refusal(pid(i32::MAX));
    assert!(matches!(error, ProcessError::NoSuchProcess { .. }), "{error}");
    assert_eq!(error.kind(), RefusalKind::Gone);
}

#[test]
fn ourselves() {
    let error = refusal(own_pid());
    assert!(matches!(error, ProcessError::Ourselves { .. }), "{error}");
}

#[test]
fn kernel_thread() {
    let kernel_thread = pid(2);
    if state(kernel_thread).is_none_or(|(_, comm)| comm != "kthreadd") {
        return skip!("PID 2 is not kthreadd here (a container)");
    }
    let error = refusal(kernel_thread);
    assert!(matches!(&error, ProcessError::KernelThread { comm, .. } if comm == "kthreadd"), "{error}");
}

#[test]
fn zombie() {
    let child = Running::start(&mut Command::new("true"));
    wait_for("the child's end", || state(child.pid()).filter(|(state, _)| *state == 'Z')).unwrap();
    let error = refusal(child.pid());
    let ProcessError::Zombie { parent, comm, .. } = &error else { panic!("{error}") };
    assert_eq!((*parent, comm.as_str()), (Some(own_pid()), "true"));
}

#[test]
fn thread() {
    let id = in_thread(|| {
        let id = pid(rustix::thread::gettid().as_raw_nonzero().get());
        (id, refusal(id).to_string())
    });
    let expected = format!("{} is a thread of process {}", id.0, own_pid());
    assert!(id.1.starts_with(&expected), "{}", id.1);
}

#[test]
fn a_process_whose_main_thread_has_ended_is_shown_by_another() {
    let directory = directory();
    let program = compile("headless.c", directory.path(), &[]);
    let mut child = Running::start(Command::new(&program).stdin(Stdio::piped()));
    wait_for("the main thread's end", || state(child.pid()).filter(|(state, _)| *state == 'Z')).unwrap();
    let process = Process::open(child.pid()).unwrap();
    let first = process.shown_by();
    assert_ne!(first, process.pid());
    let looks_like_itself = || {
        assert_eq!(
            (process.comm().unwrap().as_str(), process.executable().unwrap()),
            ("headless", program.clone())
        );
        assert_eq!(process.namespace_pid().unwrap(), process.pid());
        let start = first_address(&process);
        process.memory().unwrap().read_exact(start, &mut [0; 4]).unwrap();
        assert!(process.mappings().unwrap().files.iter().any(|file| file.open(&process).is_ok()));
        process.program().unwrap()
    };
    let before = looks_like_itself();
    let started = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    let ticks = process.started().0.to_string();
    assert!(started.split_whitespace().any(|field| field == ticks), "{ticks} not in {started}");
    // The thread that shows it ends.
    child.0.stdin.take().unwrap().write_all(b"x").unwrap();
    let task = format!("/proc/{}/task/{first}", process.pid());
    wait_for("the thread's end", || (!std::path::Path::new(&task).exists()).then_some(())).unwrap();
    assert_eq!(looks_like_itself(), before);
    assert!(![first, process.pid()].contains(&process.shown_by()));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn thirty_two_bit() {
    let directory = directory();
    let flags = ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"];
    let program = compile("narrow.c", directory.path(), &flags);
    let child = match Command::new(&program).spawn() {
        Ok(child) => Running(child),
        Err(error) => return skip!("32-bit programs do not run here: {error}"),
    };
    let error = refusal(child.pid());
    let ProcessError::ThirtyTwoBit { path, machine, .. } = &error else { panic!("{error}") };
    assert_eq!((path, machine.as_str()), (&program, "i386"));

    // As a child of a process that can be attached to, it is told apart from the others.
    let shell = Running::start_and_wait(
        Command::new("sh")
            .arg("-c")
            .arg(format!("{} & sleep 600 & (sleep 600 & echo; wait) & wait", program.display())),
    );
    let process = Process::open(shell.pid()).unwrap();
    let found = wait_for("all descendants", || {
        let found = process.descendants().unwrap();
        let sleeping = found.processes.iter().filter(|child| child.comm().is_ok_and(|comm| comm == "sleep"));
        (sleeping.count() == 2 && found.refused.len() == 1).then_some(found)
    })
    .unwrap();
    assert!(matches!(found.refused[0].1, ProcessError::ThirtyTwoBit { .. }), "{:?}", found.refused);
    assert_eq!(found.processes.len(), 3, "two sleeps and a subshell: {:?}", found.processes);
    for pid in found.processes.iter().map(Process::pid).chain([found.refused[0].0]) {
        let pid = rustix::process::Pid::from_raw(pid.get()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

#[test]
fn another_users_process() {
    if !is_root() {
        return skip!("needs root, to have two users");
    }
    let child = sleep();
    let error = as_nobody(|| refusal(child.pid()));
    let ProcessError::Denied { reason, .. } = &error else { panic!("{error}") };
    assert_eq!(*reason, DenialReason::OtherUser { target: 0, ours: processes::NOBODY });
    assert_eq!(reason.missing(), Some(Capability::SysPtrace));
    assert!(error.to_string().contains("CAP_SYS_PTRACE"), "{error}");
    assert_eq!(error.kind(), RefusalKind::Privilege);
}

#[test]
fn a_process_with_more_capabilities() {
    if !is_root() {
        return skip!("needs root, to have capabilities to drop");
    }
    let child = sleep();
    let error = in_thread(|| {
        processes::keep_only(&[Capability::Bpf.number(), Capability::Perfmon.number()]);
        let privileges = Privileges::read().unwrap();
        assert_eq!(privileges.missing(AttachBy::UprobeMulti), [], "enough for attaching as such");
        refusal(child.pid())
    });
    assert!(matches!(error, ProcessError::Denied { reason: DenialReason::MorePrivileged, .. }), "{error}");
}

#[test]
fn a_process_that_is_not_dumpable() {
    if !is_root() {
        return skip!("needs root, to become another user");
    }
    let directory = directory();
    let program = compile("beat.c", directory.path(), &[]);
    let mut command = Command::new(program);
    let child =
        Running::start_and_wait(command.arg("undumpable").uid(processes::NOBODY).gid(processes::NOBODY));
    let error = as_nobody(|| refusal(child.pid()));
    assert!(matches!(error, ProcessError::Denied { reason: DenialReason::NotDumpable, .. }), "{error}");
    // With the capability it is a process like others.
    assert!(Process::open(child.pid()).unwrap().memory().is_ok());
}

#[test]
fn missing_capabilities_are_named() {
    let refused = |by: AttachBy| {
        let read = || Privileges::read().unwrap().require(by);
        if is_root() { as_nobody(read) } else { read() }
    };
    let missing = vec![Capability::Bpf, Capability::Perfmon];
    assert_eq!(refused(AttachBy::UprobeMulti), Err(PrivilegeError::Missing { missing: missing.clone() }));
    let Err(PrivilegeError::Missing { missing: more }) = refused(AttachBy::PerfEvent) else {
        panic!("events need no less")
    };
    assert!(more.starts_with(&missing), "{more:?}");
}

#[test]
fn a_process_that_proc_hides() {
    if !is_root() {
        return skip!("needs root, to mount");
    }
    let child = sleep();
    for options in ["hidepid=1", "hidepid=2", "hidepid=4"] {
        let error = in_thread(|| {
            processes::own_mounts();
            processes::mount("proc", "/proc".as_ref(), options);
            processes::become_nobody();
            refusal(child.pid())
        });
        assert!(matches!(error, ProcessError::Hidden { .. }), "{options}: {error}");
    }
}

#[test]
fn a_proc_that_is_not_ours() {
    if !is_root() {
        return skip!("needs root, to mount");
    }
    let child = sleep();
    let error = in_thread(|| {
        processes::own_mounts();
        processes::mount("tmpfs", "/proc".as_ref(), "");
        refusal(child.pid())
    });
    assert!(matches!(error, ProcessError::ForeignProc { shown: None, .. }), "{error}");
}

#[test]
fn a_process_that_ends_while_open() {
    let child = sleep();
    let process = Process::open(child.pid()).unwrap();
    let start = first_address(&process);
    let memory = process.memory().unwrap();
    let program = process.mappings().unwrap().files.into_iter().next().unwrap();
    assert!(program.open(&process).is_ok());
    assert!(process.is_alive());
    assert!(memory.read_u64(start).is_ok());
    child.end();
    assert!(!process.is_alive());
    for error in [
        process.status().unwrap_err(),
        process.mappings().unwrap_err(),
        process.executable().unwrap_err(),
        process.memory().unwrap_err(),
        process.descendants().unwrap_err(),
        process.check_executable().unwrap_err(),
    ] {
        assert!(matches!(error, ProcessError::Gone { .. }), "{error}");
    }
    let error = memory.read_u64(start).unwrap_err();
    assert!(matches!(error, MemoryError::Gone { .. }), "{error}");
    let error = program.open(&process).unwrap_err();
    assert!(matches!(error, MappedFileError::Unmapped { .. }), "{error}");
}

#[test]
fn memory_of_a_program_that_was_replaced() {
    let mut command = Command::new("sh");
    let mut shell = Running::start(command.args(["-c", "read line; exec sleep 600"]).stdin(Stdio::piped()));
    let process = Process::open(shell.pid()).unwrap();
    let start = first_address(&process);
    let memory = process.memory().unwrap();
    assert!(memory.read_u64(start).is_ok());
    shell.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    wait_for("the exec", || process.comm().ok().filter(|comm| comm == "sleep")).unwrap();
    let error = memory.read_u64(start).unwrap_err();
    assert!(matches!(error, MemoryError::Gone { .. }), "{error}");
    assert!(process.is_alive());
    assert!(process.check_executable().is_ok());
}
