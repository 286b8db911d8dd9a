//! A job: a file with a line for each program to run as root, and the commands that write and run it.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _, lchown},
        process::ExitStatusExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use speed_bump_testing::places;

/// The file's name; the PID of the xtask that wrote it is in the middle.
const PREFIX: &str = "as-root-";
const SUFFIX: &str = ".jsonl";

/// Notes a program in a job instead of running it: cargo runs this in place of tests.
#[derive(Args)]
pub(crate) struct Note {
    /// The job.
    job: PathBuf,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<String>,
}

/// Runs the programs of a job.
#[derive(Args)]
pub(crate) struct AsRoot {
    /// The job; it is removed.
    job: PathBuf,
}

/// A program that is to run.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    program: String,
    arguments: Vec<String>,
    folder: PathBuf,
    environment: BTreeMap<String, String>,
}

impl Program {
    /// The program of a command, from this folder. Variables that are not UTF-8 are left out.
    pub(super) fn from_command(command: &Command) -> Result<Self> {
        let text = |text: &std::ffi::OsStr| {
            text.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", text.display()))
        };
        let mut environment: BTreeMap<_, _> = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => environment.insert(text(name)?, text(value)?),
                None => environment.remove(&text(name)?),
            };
        }
        Ok(Self {
            program: text(command.get_program())?,
            arguments: command.get_args().map(text).collect::<Result<_>>()?,
            folder: match command.get_current_dir() {
                Some(folder) => folder.to_owned(),
                None => env::current_dir().context("cannot read the current folder")?,
            },
            environment,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).env_clear().envs(&self.environment);
        command
    }
}

/// A job that is being written. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct Job {
    path: PathBuf,
}

impl Job {
    /// An empty job. Only its owner may read the file, since it holds the environment.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        remove_stale(folder);
        let path = folder.join(format!("{PREFIX}{}{SUFFIX}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn add(&self, program: &Program) -> Result<()> {
        add(&self.path, program)
    }

    /// Closes the job and keeps its file.
    pub(super) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // This fails if we keep the file, or if the process that ran the job has removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes jobs that never ran, because root was refused, and whose writers have ended.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn add(job: &Path, program: &Program) -> Result<()> {
    let line = serde_json::to_string(program)? + "\n";
    let written =
        OpenOptions::new().append(true).open(job).and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", job.display()))
}

/// `xtask note-program`: cargo calls it in place of a program that it has built.
pub(crate) fn note(note: &Note) -> Result<ExitCode> {
    let [program, arguments @ ..] = note.program.as_slice() else { bail!("no program is named") };
    let mut command = Command::new(program);
    command.args(arguments);
    // Documentation tests are in other folders, and are deleted after they have run. They need no root.
    if !fs::canonicalize(program)?.starts_with(fs::canonicalize(places::target())?) {
        return Ok(status(command.status().with_context(|| format!("cannot run {program}"))?));
    }
    add(&note.job, &Program::from_command(&command)?)?;
    Ok(ExitCode::SUCCESS)
}

/// `xtask as-root`: runs all programs, and gives the files that they made in the working tree to the job's
/// owner. Returns the exit code of the first that failed.
pub(crate) fn as_root(options: &AsRoot) -> Result<ExitCode> {
    let job = &options.job;
    let read = || -> Result<_> { Ok((fs::read_to_string(job)?, File::open(job)?.metadata()?)) };
    let (text, owner) = read().with_context(|| format!("cannot read {}", job.display()))?;
    fs::remove_file(job).with_context(|| format!("cannot remove {}", job.display()))?;
    let programs: Vec<Program> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} is no job of this xtask", job.display()))?;
    let mut failed = None;
    for program in &programs {
        if programs.len() > 1 {
            eprintln!("     Running {}", program.program);
        }
        let ended = program.command().status().with_context(|| format!("cannot run {}", program.program));
        let success = ended.as_ref().is_ok_and(std::process::ExitStatus::success);
        if !success && failed.is_none() {
            failed = Some(ended);
        }
    }
    for folder in [Some(places::root()), job.parent().map(Path::to_owned)].into_iter().flatten() {
        hand_back(&folder, owner.uid(), owner.gid());
    }
    failed.map_or(Ok(ExitCode::SUCCESS), |ended| Ok(status(ended?)))
}

/// Gives root's files in a folder to a user. If that fails, a file stays root's.
fn hand_back(folder: &Path, user: u32, group: u32) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // The links themselves, not their targets.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.uid() == 0 && user != 0 {
            let _ = lchown(entry.path(), Some(user), Some(group));
        }
        if metadata.is_dir() {
            hand_back(&entry.path(), user, group);
        }
    }
}

/// An exit code as a shell has it.
fn status(status: std::process::ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_program_runs_as_it_was_noted() {
        let folder = tempfile::tempdir().unwrap();
        let job = Job::new(folder.path()).unwrap();
        let left = folder.path().join("left");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "printf '%s\\n' \"$1\" \"$NOTED\" \"$HOME\" \"$PWD\" > \"$2\"; exit 3", "sh"]);
        command.arg("a 'word' of \"several\"").arg(&left);
        command.env("NOTED", "a\nb").env_remove("HOME").current_dir("/usr");
        let program = Program::from_command(&command).unwrap();
        job.add(&program).unwrap();
        assert_eq!(fs::metadata(job.path()).unwrap().mode() & 0o777, 0o600);
        let read: Program =
            serde_json::from_str(fs::read_to_string(job.path()).unwrap().lines().next().unwrap()).unwrap();
        assert_eq!(read, program);
        assert_eq!(read.command().status().unwrap().code(), Some(3));
        assert_eq!(fs::read_to_string(&left).unwrap(), "a 'word' of \"several\"\na\nb\n\n/usr\n");
        let path = job.path().to_owned();
        // Above the greatest PID.
        let stale = folder.path().join("as-root-4194305.jsonl");
        fs::write(&stale, "").unwrap();
        remove_stale(folder.path());
        assert!(path.exists() && !stale.exists());
        drop(job);
        assert!(!path.exists());
    }

    #[test]
    fn what_root_made_becomes_the_users() {
        if !rustix::process::geteuid().is_root() {
            return speed_bump_testing::skip!("giving files away needs root");
        }
        const NOBODY: u32 = 65_534;
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("made")).unwrap();
        fs::write(folder.path().join("made/file"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        hand_back(folder.path(), NOBODY, NOBODY);
        for made in ["made", "made/file", "link"] {
            let owner = fs::symlink_metadata(folder.path().join(made)).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (NOBODY, NOBODY), "{made}");
        }
        assert_eq!(fs::metadata("/etc/passwd").unwrap().uid(), 0);
    }
}
