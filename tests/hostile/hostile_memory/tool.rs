//! The loader under a limit of address space, and the most memory that it ever had.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use speed_bump_testing::{tool, wait::PATIENCE};
use tempfile::TempDir;

/// Address space that the loader gets, in KiB, so that a test that fails does not take the machine's memory.
const ADDRESS_SPACE_KIB: u32 = 6 << 20;

/// A run of the loader.
pub(crate) struct Tool {
    child: Child,
    folder: TempDir,
    started: Instant,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The most memory that it had resident, in MiB.
    pub(crate) peak_mib: i64,
}

impl Tool {
    /// Runs it with these arguments and a targets file of this text.
    pub(crate) fn start(arguments: &[&str], pid: i32, targets: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("targets.txt");
        fs::write(&file, targets).unwrap();
        let file = ["--targets", file.to_str().unwrap()];
        Self::in_folder(folder, &[arguments, &file].concat(), pid)
    }

    /// Runs it with these arguments alone.
    pub(crate) fn on(arguments: &[&str], pid: i32) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), arguments, pid)
    }

    fn in_folder(folder: TempDir, arguments: &[&str], pid: i32) -> Self {
        let output = |name: &str| Stdio::from(File::create(folder.path().join(name)).unwrap());
        let child = Command::new("sh")
            .args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$0\" \"$@\"")])
            .arg(tool::path().unwrap())
            .args(arguments)
            .args(["--pid", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .unwrap();
        Self { child, folder, started: Instant::now() }
    }

    /// A session that writes its report to [`Ended::stdout`].
    pub(crate) fn session(flags: &[&str], pid: i32, targets: &str) -> Self {
        Self::start(&[&["--json", "-"], flags].concat(), pid, targets)
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Ended {
        let pid = self.child.id();
        let deadline = Instant::now() + PATIENCE;
        let mut peak_kib = 0;
        let status = loop {
            peak_kib = most_resident_kib(pid).unwrap_or(0).max(peak_kib);
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.child.kill().unwrap();
            }
            thread::sleep(Duration::from_millis(2));
        };
        let read = |name: &str| String::from_utf8_lossy(&fs::read(self.path(name)).unwrap()).into_owned();
        let ended =
            Ended { status, stdout: read("stdout"), stderr: read("stderr"), peak_mib: peak_kib / 1024 };
        eprintln!("{}, {} MiB at most, after {:?}", ended.status, ended.peak_mib, self.started.elapsed());
        ended
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// The most that a process has had resident since it executed its program. (`ru_maxrss` has what there was
/// before, too: the memory of the test, of which the process was forked.)
fn most_resident_kib(pid: u32) -> Option<i64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let name = status.lines().next()?.strip_prefix("Name:")?.trim();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    name.starts_with("speed-bump").then(|| most.trim().strip_suffix(" kB")?.parse().ok())?
}

impl Ended {
    /// What it said, cut to what a person reads.
    pub(crate) fn said(&self) -> String {
        let cut = |text: &str| text.chars().take(4_000).collect::<String>();
        format!("{}\n{}\n{}", self.status, cut(&self.stderr), cut(&self.stdout))
    }

    /// The report of a session that ended well.
    pub(crate) fn report(&self) -> Value {
        assert!(self.status.success(), "{}", self.said());
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The warnings in the report.
    pub(crate) fn warnings(&self) -> Vec<String> {
        serde_json::from_value(self.report()["warnings"].clone()).unwrap()
    }
}
