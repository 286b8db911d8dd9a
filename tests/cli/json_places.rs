//! The destination of `--json`: files are replaced as a whole, other kinds of file stay what they are, and a
//! report that cannot be written goes to standard error, with an exit code for that.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    io::Read as _,
    os::{
        fd::AsRawFd as _,
        unix::{fs::FileTypeExt as _, fs::symlink, net::UnixListener},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{Receiver, channel},
    thread,
};

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::Signal,
};
use serde_json::Value;
use speed_bump_testing::{
    Fixture, Service,
    session::{command, obstacle},
    skip,
    tool::{self, Run, Running},
    wait::PATIENCE,
};
use speed_bump_tests::helper::GETPPID;
use tempfile::TempDir;

const TARGETS: &str = "native:*/service:hot delay=2us id=mine\n";

/// The number of calls in a session.
const CALLS: u64 = 10;

struct Place {
    fixture: Fixture,
    service: Service,
    folder: TempDir,
}

impl Place {
    fn new() -> Option<Self> {
        if let Some(why) = obstacle() {
            skip!("{why}");
            return None;
        }
        let fixture = Fixture::service().unwrap();
        let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
        Some(Self { fixture, service, folder: tempfile::tempdir().unwrap() })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn node(&self, name: &str, kind: FileType, major: u32, minor: u32) -> PathBuf {
        let path = self.at(name);
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), makedev(major, minor)).unwrap();
        path
    }

    fn command(&self, json: &Path) -> Command {
        let flags = ["--json", json.to_str().unwrap(), "--verbose"];
        command(self.fixture.folder(), self.service.pid(), TARGETS, &flags).unwrap()
    }

    /// A session in which the calls are made, then `act` runs, and then it ends.
    fn session(&mut self, command: &mut Command, meanwhile: impl FnOnce()) -> Run {
        let mut running = Running::start(command).unwrap();
        running.wait_for_stderr("attached; ", PATIENCE).unwrap();
        self.service.ask(&format!("call hot {CALLS}")).unwrap();
        meanwhile();
        running.signal(Signal::INT).unwrap();
        running.finish(PATIENCE).unwrap()
    }

    /// Such a destination is refused before anything is attached, with these words.
    fn refuses(&self, json: &Path, words: &str) {
        let run = Running::start(&mut self.command(json)).unwrap().finish(PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
        assert!(run.stderr.contains(words) && !run.stderr.contains("attached; "), "{}", run.stderr);
    }
}

fn is_report(text: &str) {
    let report: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(report["schema"], "speed-bump/session/1");
    assert_eq!(report["targets"][0]["calls"], CALLS, "{report}");
}

/// The whole report is on standard error, and the exit code shows that.
fn is_on_stderr(run: &Run) {
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    is_report(&report_of(run));
    let last = run.stderr.lines().last().unwrap();
    assert!(last.starts_with("speed-bump-ebpf: error: cannot write the report to "), "{last}");
    assert!(last.contains("standard error"), "{last}");
}

/// The JSON on standard error.
fn report_of(run: &Run) -> String {
    let from = run.stderr.lines().skip_while(|line| *line != "{");
    let mut lines: Vec<_> = from.take_while(|line| *line != "}").collect();
    lines.push("}");
    lines.join("\n")
}

/// Reads a FIFO to its end, on a thread of its own: opening waits for a writer.
fn reader_of(fifo: &Path) -> Receiver<String> {
    let (sender, text) = channel();
    let fifo = fifo.to_owned();
    thread::spawn(move || sender.send(fs::read_to_string(fifo).unwrap()));
    text
}

#[test]
fn a_device_stays_a_device() {
    let Some(mut place) = Place::new() else { return };
    // As /dev/null.
    let null = place.node("null", FileType::CharacterDevice, 1, 3);
    let run = place.session(&mut place.command(&null), || ());
    assert!(run.status.success(), "{}", run.stderr);
    assert!(null.symlink_metadata().unwrap().file_type().is_char_device());
    // As /dev/full.
    let full = place.node("full", FileType::CharacterDevice, 1, 7);
    let run = place.session(&mut place.command(&full), || ());
    is_on_stderr(&run);
    assert!(full.symlink_metadata().unwrap().file_type().is_char_device());
    assert_eq!(place.folder.path().read_dir().unwrap().count(), 2);
}

#[test]
fn the_reader_of_a_fifo_gets_the_report() {
    let Some(mut place) = Place::new() else { return };
    let fifo = place.node("fifo", FileType::Fifo, 0, 0);
    // Before the session, and when it ends.
    let early = reader_of(&fifo);
    let run = place.session(&mut place.command(&fifo), || ());
    assert!(run.status.success(), "{}", run.stderr);
    is_report(&early.recv_timeout(PATIENCE).unwrap());
    let mut late = None;
    let run = place.session(&mut place.command(&fifo), || late = Some(reader_of(&fifo)));
    assert!(run.status.success(), "{}", run.stderr);
    is_report(&late.unwrap().recv_timeout(PATIENCE).unwrap());
    assert!(fifo.symlink_metadata().unwrap().file_type().is_fifo());
}

#[test]
fn a_fifo_that_nobody_reads_holds_up_nobody() {
    let Some(mut place) = Place::new() else { return };
    let fifo = place.node("fifo", FileType::Fifo, 0, 0);
    let run = place.session(&mut place.command(&fifo), || ());
    is_on_stderr(&run);
    assert!(fifo.symlink_metadata().unwrap().file_type().is_fifo());
}

#[test]
fn a_folder_that_goes_loses_no_report() {
    let Some(mut place) = Place::new() else { return };
    let folder = place.at("folder");
    fs::create_dir(&folder).unwrap();
    let run =
        place.session(&mut place.command(&folder.join("report.json")), || fs::remove_dir(&folder).unwrap());
    is_on_stderr(&run);
    assert!(!folder.exists());
}

/// A file system of a few pages. It goes when this is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), Some(c"size=64k")).unwrap();
        Self(folder)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_loses_neither_this_report_nor_the_last() {
    let Some(mut place) = Place::new() else { return };
    let small = Small::mount(place.at("small"));
    let report = small.0.join("report.json");
    fs::write(&report, "the last one").unwrap();
    let run = place.session(&mut place.command(&report), || {
        // As much as fits.
        assert!(fs::write(small.0.join("filler"), vec![0; 128 << 10]).is_err());
    });
    is_on_stderr(&run);
    assert_eq!(fs::read_to_string(&report).unwrap(), "the last one");
    let mut names: Vec<_> = small.0.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["filler", "report.json"], "half a report was left");
}

#[test]
fn names_of_descriptors_lead_to_them() {
    let Some(mut place) = Place::new() else { return };
    // Not /dev/stdout, which a tool that takes it for a file would replace.
    for name in ["/dev/fd/1", "/proc/self/fd/1"] {
        let run = place.session(&mut place.command(Path::new(name)), || ());
        assert!(run.status.success(), "{}", run.stderr);
        is_report(&run.stdout);
    }
    // As `--json >(...)` of a shell has it.
    let (mut reader, writer) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let mut command = place.command(Path::new(&format!("/dev/fd/{}", writer.as_raw_fd())));
    let run = place.session(&mut command, || drop(writer));
    assert!(run.status.success(), "{}", run.stderr);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    is_report(&text);
    place.refuses(Path::new("/dev/fd/999"), "Bad file descriptor");
}

#[test]
fn what_takes_no_report_is_refused() {
    let Some(place) = Place::new() else { return };
    let _socket = UnixListener::bind(place.at("socket")).unwrap();
    let null = place.node("null", FileType::CharacterDevice, 1, 3);
    symlink(&null, place.at("link")).unwrap();
    // Of a number that no driver has.
    let disk = place.node("disk", FileType::BlockDevice, 0, 0);
    for (path, words) in [
        (place.at("socket"), "it is a socket"),
        (place.at("link"), "it is a symbolic link"),
        (disk, "it is a disk"),
        (place.at("none/report.json"), "No such file or directory"),
        (place.folder.path().to_owned(), "is a directory"),
    ] {
        place.refuses(&path, words);
    }
    assert!(place.at("link").is_symlink());
    assert_eq!(place.folder.path().read_dir().unwrap().count(), 4);
}

#[test]
fn a_command_has_its_own_exit_code_unless_only_the_report_failed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (targets, gone) = (folder.path().join("targets.txt"), folder.path().join("gone"));
    fs::write(&targets, GETPPID).unwrap();
    for (own, expected) in [(0, 4), (3, 3)] {
        fs::create_dir(&gone).unwrap();
        let script = format!("rmdir {}; exit {own}", gone.display());
        let mut command = Command::new(tool::path().unwrap());
        command.args(["run", "--quiet", "--targets"]).arg(&targets);
        command.arg("--json").arg(gone.join("report.json")).args(["--", "sh", "-c", &script]);
        let run = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
        assert_eq!(run.status.code(), Some(expected), "{}", run.stderr);
        let report: Value = serde_json::from_str(&report_of(&run)).unwrap();
        assert_eq!(report["schema"], "speed-bump/session/1");
        assert!(run.stderr.contains("cannot write the report to "), "{}", run.stderr);
    }
}
