//! Commands that the tool starts itself.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Command, ExitStatus},
};

use speed_bump_testing::{
    session::Ended,
    tool::{self, Running},
    wait::PATIENCE,
};
use speed_bump_tests::helper::GETPPID;
use tempfile::TempDir;

/// The tool with a command of its own.
pub(crate) struct Started {
    pub(crate) running: Running,
    folder: TempDir,
}

/// Starts a command with targets of this text. It has the environment, the folder and the arguments that it
/// was given.
pub(crate) fn start(targets: &str, flags: &[&str], command: &Command) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let (file, report) = (folder.path().join("targets.txt"), folder.path().join("report.json"));
    fs::write(&file, targets).unwrap();
    let mut tool = Command::new(tool::path().unwrap());
    tool.arg("run").arg("--targets").arg(&file).arg("--json").arg(&report).args(flags);
    tool.arg("--").arg(command.get_program()).args(command.get_args());
    tool.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Started { running: Running::start(&mut tool).unwrap(), folder }
}

impl Started {
    /// Waits for the end.
    pub(crate) fn finish(self) -> Ended {
        let run = self.running.finish(PATIENCE).unwrap();
        let text = fs::read(self.folder.path().join("report.json"));
        let text = text.unwrap_or_else(|error| panic!("{error}: {}\n{}", run.status, run.stderr));
        Ended { report: serde_json::from_slice(&text).unwrap(), run }
    }
}

/// Starts a command, waits for its end, and wants it to succeed.
pub(crate) fn run(targets: &str, flags: &[&str], command: &Command) -> Ended {
    let ended = start(targets, flags, command).finish();
    assert!(ended.run.status.success(), "{command:?}: {}\n{}", ended.run.status, ended.run.stderr);
    ended
}

/// What the tool says of a program that it could not hold at its exec.
const NOT_HELD: &str = "could not be held at its start";
/// How often a session is tried in which something was not held. Programs that start together on two
/// processors need luck: one of them holds, and the other one is the loader's.
const TRIES: usize = 25;

/// The session in which all that was executed was held at its start. Holding needs a processor that nobody
/// takes, which other programs of the machine may all have for a moment; so it is tried again, and fails when
/// it never comes about.
pub(crate) fn all_held(session: impl Fn() -> Ended) -> Ended {
    let mut told = String::new();
    for _ in 0..TRIES {
        let ended = session();
        if !ended.run.stderr.contains(NOT_HELD) {
            return ended;
        }
        told = ended.run.stderr;
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    panic!(
        "in none of {TRIES} sessions all programs were held at their start: there was no free processor, or \
         holding does not work: {told}"
    );
}

/// How the tool ends with this command, which makes no target's function run.
pub(crate) fn status<S: AsRef<OsStr>>(flags: &[&str], program: &str, arguments: &[S]) -> ExitStatus {
    let mut command = Command::new(program);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.txt");
    fs::write(&file, GETPPID).unwrap();
    command.args(arguments);
    let mut tool = Command::new(tool::path().unwrap());
    tool.arg("run").arg("--targets").arg(&file).args(flags).arg("--").arg(program).args(arguments);
    Running::start(&mut tool).unwrap().finish(PATIENCE).unwrap().status
}

/// A script in a folder.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}
