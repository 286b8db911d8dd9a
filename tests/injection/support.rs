//! What the tests of injecting share: the stand-in for the helper, and processes to put it into.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path, sync::OnceLock};

use speed_bump_linux::process::{Process, Program, mapped_file::FileIdentity};
use speed_bump_session::{
    inject::{InjectError, Injected, Limits, inject},
    python::interpreter,
};
use speed_bump_testing::{Fixture, wait::wait_for};
use speed_bump_units::units::Pid;

/// Bytes of the block, see `helper.c`.
const BLOCK_BYTES: u64 = 4096;
const MARK_CALLED: u64 = 64;
const MARK_THREAD: u64 = 65;
const MARK_LEAVE: u64 = 66;

/// The stand-in, compiled once; `variant` makes builds that differ.
pub fn image_variant(variant: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/support/helper.c");
    let define = format!("-DVARIANT_{variant}");
    let id =
        format!("-Wl,--build-id=0x{}", variant.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    // Linked to the C library of here it would ask for that one's versions of symbols, which older ones lack.
    let flags = ["-shared", "-fPIC", "-O1", "-pthread", "-nodefaultlibs", &define, &id];
    std::fs::read(Fixture::compile(&source, &flags).unwrap().program()).unwrap()
}

pub fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| image_variant("ONE"))
}

/// The files of the process that hold a CPython.
pub fn interpreters(process: &Process) -> Vec<FileIdentity> {
    let is_python = |file: &&speed_bump_linux::process::MappedFile| {
        file.open(process).is_ok_and(|open| {
            interpreter::identify(open.file(), &file.path_in_process).is_ok_and(|found| found.is_some())
        })
    };
    process.mappings().unwrap().files.iter().filter(is_python).map(|file| file.identity).collect()
}

pub fn open(pid: i32) -> Process {
    Process::open(Pid::new(pid).unwrap()).unwrap()
}

/// Injects the stand-in, with a first byte that says how it is to behave.
pub fn inject_with(
    process: &Process,
    image: &[u8],
    behaviour: u8,
    limits: Limits,
) -> Result<Injected, InjectError> {
    inject_known(process, image, behaviour, limits, &interpreters(process))
}

/// As [`inject_with`], for a process whose interpreters are known.
pub fn inject_known(
    process: &Process,
    image: &[u8],
    behaviour: u8,
    limits: Limits,
    interpreters: &[FileIdentity],
) -> Result<Injected, InjectError> {
    let mut fill = |block: &File| fill(block, behaviour);
    inject(process, &process.program()?, image, interpreters, &mut fill, limits)
}

/// Injects the stand-in into a process that ran this program when it was inspected.
pub fn inject_into(process: &Process, program: &Program) -> Result<Injected, InjectError> {
    let mut fill = |block: &File| fill(block, 0);
    inject(process, program, image(), &[], &mut fill, Limits::default())
}

fn fill(block: &File, behaviour: u8) -> io::Result<()> {
    block.set_len(BLOCK_BYTES)?;
    block.write_all_at(&[behaviour], 0)
}

pub fn inject_here(process: &Process) -> Result<Injected, InjectError> {
    inject_with(process, image(), 0, Limits::default())
}

fn byte(control: &File, at: u64) -> u8 {
    let mut byte = [0];
    control.read_exact_at(&mut byte, at).unwrap();
    byte[0]
}

/// How often the helper was called in this session.
pub fn calls(injected: &Injected) -> u8 {
    byte(&injected.control, MARK_CALLED)
}

/// That the helper was called once in this session and that its thread runs; then has it leave.
pub fn check_and_leave(process: &Process, injected: &Injected) {
    assert_eq!(byte(&injected.control, MARK_CALLED), 1, "speed_bump_attach ran once");
    wait_for("the helper's thread", || (byte(&injected.control, MARK_THREAD) == 1).then_some(())).unwrap();
    leave(process, injected);
}

/// Whether the helper was called with this block and its thread runs.
pub fn has_begun(block: &File) -> bool {
    byte(block, MARK_CALLED) == 1 && byte(block, MARK_THREAD) == 1
}

/// Has the helper leave, and waits until its block is unmapped.
pub fn leave(process: &Process, injected: &Injected) {
    leave_block(process, &injected.control);
}

/// The same with the block alone.
pub fn leave_block(process: &Process, block: &File) {
    // A left block (`State::Left`), so that the next session is not refused.
    block.write_all_at(&[1], MARK_LEAVE).unwrap();
    wait_for("the helper to leave", || {
        let regions = process.regions().ok()?;
        let mapped = regions.iter().any(|region| region.name == "/memfd:speed-bump-control (deleted)");
        (!mapped).then_some(())
    })
    .unwrap();
}

/// What a process has that an injection could leave behind: descriptors, threads, signal masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    pub descriptors: Vec<String>,
    pub masks: Vec<String>,
    pub tracer: String,
}

pub fn traces(process: &Process) -> Traces {
    let pid = process.pid();
    let mut descriptors: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.display().to_string())
        .collect();
    descriptors.sort();
    let mut masks = Vec::new();
    let mut tracer = String::new();
    for thread in process.thread_ids().unwrap() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or("").to_owned();
        masks.push(line("SigBlk:"));
        tracer = line("TracerPid:");
    }
    masks.sort();
    Traces { descriptors, masks, tracer }
}
