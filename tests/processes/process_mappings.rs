//! Mapped files of running processes: named as the process sees them, and opened as the very inode that
//! runs, whatever has become of the name.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use object::{Object, ObjectSegment, ObjectSymbol};
use speed_bump_linux::{
    capability::Capability,
    kernel::{AttachBy, Privileges},
    process::{MappedFile, MappedFileError, OpenFile, Process},
};
use speed_bump_testing::{fixture::copy_program, skip, wait::wait_for};
use speed_bump_tests::processes::{self, NOBODY, Running, as_nobody, directory, in_thread, is_root};
use speed_bump_units::units::{FileOffset, Pid, VirtualAddress};
use tempfile::TempDir;

use crate::programs::compile;

/// A compiled beat.c in a directory of its own.
struct Beat {
    directory: TempDir,
    program: PathBuf,
}

impl Beat {
    fn compile(flags: &[&str]) -> Self {
        let directory = directory();
        let program = compile("beat.c", directory.path(), flags);
        Self { directory, program }
    }

    /// Runs a file as an unprivileged user, if we may choose, so that an unprivileged thread may look.
    fn run(program: &Path) -> Running {
        let mut command = Command::new(program);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Running::start_and_wait(&mut command)
    }
}

/// The mapped program of a process (not its libraries).
fn program_of(process: &Process) -> MappedFile {
    process.mappings().unwrap().files.into_iter().next().unwrap()
}

fn contents(file: &OpenFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.file().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Offset in the file and address in it of `beat`.
fn beat(bytes: &[u8]) -> (FileOffset, VirtualAddress) {
    let file = object::File::parse(bytes).unwrap();
    let address = file.symbols().find(|symbol| symbol.name() == Ok("beat")).unwrap().address();
    let (segment, offset) = file
        .segments()
        .map(|segment| (segment.address(), segment.file_range().0))
        .filter(|(start, _)| *start <= address)
        .max()
        .unwrap();
    (FileOffset(address - segment + offset), VirtualAddress(address))
}

/// Counts hits of a place in a file by one process: what a uprobe set through `path` really meets.
fn count_hits(path: &Path, offset: FileOffset, pid: Pid) -> io::Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_long = 8; // PERF_FLAG_FD_CLOEXEC
    let source = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // struct perf_event_attr, PERF_ATTR_SIZE_VER5, as 64-bit words: type and size; …; config1 and config2.
    let mut attributes = [0_u64; 14];
    attributes[0] = source.trim().parse::<u64>().map_err(io::Error::other)? | 112 << 32;
    attributes[7] = path.as_ptr() as u64;
    attributes[8] = offset.0;
    // SAFETY: the attributes are as long as they say, and the path outlives the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), pid.get(), -1, -1, CLOSE_ON_EXEC)
    };
    match i32::try_from(fd) {
        // SAFETY: a descriptor that the call has just made.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets a uprobe through the opened file and waits for the process to meet it.
fn assert_hit(file: &OpenFile, process: &Process) {
    let (offset, _) = beat(&fs::read(file.path()).unwrap());
    let counter = match count_hits(&file.path(), offset, process.pid()) {
        Ok(counter) => fs::File::from(counter),
        Err(error) => return skip!("uprobes cannot be set here: {error}"),
    };
    wait_for("a hit", || {
        let mut count = [0; 8];
        (&counter).read_exact(&mut count).unwrap();
        (u64::from_ne_bytes(count) > 0).then_some(())
    })
    .unwrap();
}

/// Opens the program in both ways (with and without map_files, as far as the rights here allow) and checks
/// that it is the expected one each time.
fn assert_opens(child: &Running, expected: &[u8]) {
    let process = Process::open(child.pid()).unwrap();
    let opened = program_of(&process).open(&process).unwrap();
    assert_eq!(contents(&opened), expected);
    if is_root() {
        assert_hit(&opened, &process);
        let by_name = as_nobody(|| {
            let process = Process::open(child.pid()).unwrap();
            contents(&program_of(&process).open(&process).unwrap())
        });
        assert_eq!(by_name, expected);
    }
}

#[test]
fn addresses_and_memory_agree_with_the_file() {
    for flags in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
        let fixture = Beat::compile(flags);
        let child = Beat::run(&fixture.program);
        let process = Process::open(child.pid()).unwrap();
        let program = program_of(&process);
        assert_eq!(program.path_in_process, fixture.program);
        assert!(!program.deleted);

        let bytes = fs::read(&fixture.program).unwrap();
        let (offset, address) = beat(&bytes);
        let start = usize::try_from(offset.0).unwrap();
        let at = program.addresses_of(offset).next().unwrap();
        let mut code = [0; 4];
        process.memory().unwrap().read_exact(at, &mut code).unwrap();
        assert_eq!(code, bytes[start..start + 4]);
        assert_eq!(address.0.wrapping_add(program.load_bias(offset, address).unwrap()), at.0);
        if flags.contains(&"-no-pie") {
            assert_eq!(at, address);
        }

        let mappings = process.mappings().unwrap();
        assert_eq!(mappings.file_at(at).unwrap().1, offset);
        assert!(mappings.files.iter().any(|file| file.path_in_process.to_string_lossy().contains("libc")));
        assert_eq!(mappings.anonymous.iter().filter(|mapping| mapping.name.is_none()).count(), 1);
        assert!(
            mappings.anonymous.iter().any(|mapping| mapping.name.as_deref() == Some(OsStr::new("[vdso]")))
        );
    }
}

#[test]
fn names_of_any_bytes() {
    let fixture = Beat::compile(&[]);
    let expected = fs::read(&fixture.program).unwrap();
    for name in [&b"a b"[..], b"two\nlines", b"\xff\xfe", b"really (deleted)", b"\\012", b"[vdso]"] {
        let program = fixture.directory.path().join(OsStr::from_bytes(name));
        copy_program(&fixture.program, &program).unwrap();
        let child = Beat::run(&program);
        let process = Process::open(child.pid()).unwrap();
        let mapped = program_of(&process);
        // What the kernel writes of these two cannot be told from a deleted file and from a newline.
        match name {
            b"really (deleted)" => assert!(mapped.deleted),
            b"\\012" => assert!(mapped.path_in_process.ends_with("\n")),
            _ => assert_eq!(mapped.path_in_process, program),
        }
        if name == b"\\012" && is_root() {
            // Only its inode leads to it.
            assert_eq!(contents(&mapped.open(&process).unwrap()), expected);
        } else if name != b"\\012" {
            assert_opens(&child, &expected);
        }
    }
}

#[test]
fn a_deleted_program() {
    let fixture = Beat::compile(&[]);
    let expected = fs::read(&fixture.program).unwrap();
    let child = Beat::run(&fixture.program);
    fs::remove_file(&fixture.program).unwrap();
    let process = Process::open(child.pid()).unwrap();
    let program = program_of(&process);
    assert!(program.deleted);
    assert_eq!(program.path_in_process, fixture.program);
    if !is_root() {
        return skip!("needs root, to open a deleted program");
    }
    let opened = program.open(&process).unwrap();
    assert_eq!(contents(&opened), expected);
    assert_hit(&opened, &process);
    let error = as_nobody(|| program.open(&process)).unwrap_err();
    assert!(matches!(error, MappedFileError::Nameless { .. }), "{error}");
}

#[test]
fn a_replaced_program() {
    let fixture = Beat::compile(&[]);
    let expected = fs::read(&fixture.program).unwrap();
    let child = Beat::run(&fixture.program);
    let other = fixture.directory.path().join("other");
    fs::copy("/bin/true", &other).unwrap();
    fs::rename(&other, &fixture.program).unwrap();
    let process = Process::open(child.pid()).unwrap();
    let program = program_of(&process);
    if !is_root() {
        let error = program.open(&process).unwrap_err();
        assert!(matches!(error, MappedFileError::Replaced { .. }), "{error}");
        return skip!("needs root, to open a replaced program");
    }
    let opened = program.open(&process).unwrap();
    assert_eq!(contents(&opened), expected);
    assert_hit(&opened, &process);
    let error = as_nobody(|| program.open(&process)).unwrap_err();
    assert!(matches!(error, MappedFileError::Replaced { .. }), "{error}");
    assert!(error.to_string().contains("CAP_CHECKPOINT_RESTORE"), "{error}");
}

#[test]
fn a_program_without_a_file() {
    if !is_root() {
        return skip!("needs root, to open a memfd of another process");
    }
    let fixture = Beat::compile(&[]);
    let expected = fs::read(&fixture.program).unwrap();
    // Not closed on exec, so that the child finds it under the same number.
    let memory = rustix::fs::memfd_create("a jit (deleted)", rustix::fs::MemfdFlags::empty()).unwrap();
    let mut memory = fs::File::from(memory);
    memory.write_all(&expected).unwrap();
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let child = Running::start_and_wait(&mut Command::new(path));
    let process = Process::open(child.pid()).unwrap();
    let program = program_of(&process);
    assert_eq!(program.path_in_process, Path::new("/memfd:a jit (deleted)"));
    assert!(program.deleted);
    let opened = program.open(&process).unwrap();
    assert_eq!(contents(&opened), expected);
    assert_hit(&opened, &process);
}

#[test]
fn a_program_on_overlayfs_in_another_mount_namespace() {
    if !is_root() {
        return skip!("needs root, to mount");
    }
    let fixture = Beat::compile(&[]);
    let expected = fs::read(&fixture.program).unwrap();
    let place = directory();
    let child = in_thread(|| {
        processes::own_mounts();
        // Layers on two file systems: stat and the mapping then number the file's device differently.
        processes::mount("tmpfs", place.path(), "mode=755");
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| place.path().join(name));
        for directory in [&upper, &work, &merged] {
            fs::create_dir(directory).unwrap();
        }
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            fixture.directory.path().display(),
            upper.display(),
            work.display()
        );
        processes::mount("overlay", &merged, &layers);
        Beat::run(&merged.join("beat"))
    });
    // Here, its path does not exist.
    let program = place.path().join("merged/beat");
    assert!(!program.exists());
    let process = Process::open(child.pid()).unwrap();
    assert_eq!(program_of(&process).path_in_process, program);
    let metadata = process.open_file(&program).unwrap().metadata().unwrap();
    assert_eq!(metadata.len(), expected.len() as u64);
    let device = program_of(&process).identity.device;
    if (libc::major(metadata.dev()), libc::minor(metadata.dev())) == device {
        skip!(
            "stat and the mapping agree on the device with this kernel, so telling them apart is not shown"
        );
    }
    assert_opens(&child, &expected);
}

#[test]
fn a_program_below_another_root() {
    if !is_root() {
        return skip!("needs root, to change the root directory");
    }
    let fixture = Beat::compile(&["-static"]);
    let expected = fs::read(&fixture.program).unwrap();
    let jail = fixture.directory.path();
    fs::create_dir(jail.join("etc")).unwrap();
    fs::write(jail.join("etc/passwd"), "inside").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", jail.join("link")).unwrap();
    std::os::unix::fs::symlink("../../../../etc/passwd", jail.join("climbing")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, jail.join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0)
        .unwrap();
    let user = format!("--userspec={NOBODY}:{NOBODY}");
    let child = Running::start_and_wait(Command::new("chroot").arg(user).arg(jail).arg("/beat"));
    let process = Process::open(child.pid()).unwrap();
    assert_eq!(program_of(&process).path_in_process, Path::new("/beat"));
    assert_opens(&child, &expected);

    // Files are those that the process would open, never ours.
    for name in ["/etc/passwd", "etc/passwd", "/link", "/climbing"] {
        let mut text = String::new();
        process.open_file(name.as_ref()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside", "{name}");
    }
    assert_eq!(process.open_file("/usr".as_ref()).unwrap_err().kind(), io::ErrorKind::NotFound);
    for name in ["/pipe", "/etc"] {
        let error = process.open_file(name.as_ref()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}: {error}");
    }
}

#[test]
fn a_process_in_another_pid_namespace() {
    if !is_root() {
        return skip!("needs root, to make a PID namespace");
    }
    let fixture = Beat::compile(&[]);
    let mut command = Command::new("unshare");
    let child =
        Running::start_and_wait(command.args(["--pid", "--fork", "--kill-child"]).arg(&fixture.program));
    let process = Process::open(child.pid()).unwrap();
    let found = process.descendants().unwrap();
    assert_eq!(found.processes.len(), 1, "{found:?}");
    let inner = &found.processes[0];
    assert_eq!(inner.comm().unwrap(), "beat");
    assert_eq!(inner.namespace_pid().unwrap().get(), 1);
    assert_ne!(inner.pid().get(), 1);
    assert!(inner.started() >= process.started());
    assert_eq!(inner.threads().unwrap(), 1);
    assert_eq!(inner.tracer().unwrap(), None);
    assert_eq!(inner.command_line().unwrap(), [fixture.program.as_os_str()]);
    assert_eq!(inner.executable().unwrap(), fixture.program);
}

/// Only the capabilities that [`Privileges`] reports as missing decide whether a uprobe can be opened.
#[test]
fn the_capabilities_that_uprobes_need() {
    if !is_root() {
        return skip!("needs root, to have capabilities to drop");
    }
    let fixture = Beat::compile(&[]);
    let child = Beat::run(&fixture.program);
    let (offset, _) = beat(&fs::read(&fixture.program).unwrap());
    let open = || count_hits(&fixture.program, offset, child.pid()).map(drop);
    if let Err(error) = open() {
        return skip!("uprobes cannot be set here: {error}");
    }
    let [bpf, perfmon, ptrace, admin] =
        [Capability::Bpf, Capability::Perfmon, Capability::SysPtrace, Capability::SysAdmin]
            .map(Capability::number);
    for kept in [&[][..], &[bpf, ptrace], &[perfmon], &[bpf, perfmon], &[admin]] {
        let (missing, opened) = in_thread(|| {
            processes::keep_only(kept);
            (Privileges::read().unwrap().missing(AttachBy::PerfEvent), open())
        });
        // BPF is for the program, of which there is none here.
        let needed = missing.iter().any(|capability| *capability != Capability::Bpf);
        assert_eq!(opened.is_err(), needed, "{kept:?}: {missing:?}, {opened:?}");
        if let Err(error) = opened {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
