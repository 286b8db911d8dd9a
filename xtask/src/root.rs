//! Runs as root only what needs it: the user builds.
//!
//! If we are root already, we ask for nothing. Otherwise we write a *job*: a line for each program to run,
//! with its arguments, folder and environment. sudo, doas or pkexec then runs this very xtask with the job
//! (`xtask as-root`), whatever each of them does to the environment. When the job's programs have ended, the
//! files that they made in the working tree are given to the user, so that the next build can replace them.

mod job;

use std::{
    env,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail};
use speed_bump_testing::places;

use crate::{shell, system};
use job::{Job, Program};

pub(crate) use job::{AsRoot, Note, as_root, note};

/// Path of the tool that was built before this xtask ran as root; cargo is not called again.
pub(crate) const TOOL_VARIABLE: &str = "SPEED_BUMP_XTASK_TOOL";

/// Programs that run a command as root, the most common first.
const MEANS: [&str; 3] = ["sudo", "doas", "pkexec"];

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The program that makes us root on this machine.
fn means() -> Option<PathBuf> {
    choose(system::find_program)
}

fn choose(find: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    MEANS.into_iter().find_map(find)
}

/// The command that runs a job as root.
fn command(means: &Path, job: &Path) -> Result<Command> {
    let mut command = Command::new(means);
    command.arg(own_program()?).arg("as-root").arg(job);
    Ok(command)
}

fn own_program() -> Result<PathBuf> {
    env::current_exe().context("cannot read /proc/self/exe")
}

/// Continues as root. If this is root, returns at once. Otherwise replaces this process by the same command,
/// run as root; `tool` is then not built again.
///
/// # Errors
/// No program here makes us root: the error has the command to run as root.
pub(crate) fn go_on_as_root(tool: &Path) -> Result<()> {
    if is_root() {
        return Ok(());
    }
    let mut again = Command::new(own_program()?);
    again.args(env::args_os().skip(1)).env(TOOL_VARIABLE, tool);
    let job = Job::new(&places::target())?;
    job.add(&Program::from_command(&again)?)?;
    // The process that runs the job removes its file.
    let job = job.keep();
    let Some(means) = means() else {
        bail!(
            "this needs root, and none of {} is installed. Run this as root:\n  {} as-root {}",
            MEANS.join(", "),
            own_program()?.display(),
            job.display()
        );
    };
    let mut command = command(&means, &job)?;
    eprintln!("attaching to a process needs root: asking {}", means.display());
    // We replace this process and do not wait, so that Ctrl-C reaches the demo, which then ends in order.
    Err(anyhow!(command.exec()).context(format!("cannot run {}", means.display())))
}

/// Runs a command as root.
///
/// # Errors
/// It fails, or nothing here makes us root.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    if is_root() {
        return shell::run(command);
    }
    let means = means().with_context(|| format!("none of {} is installed", MEANS.join(", ")))?;
    let job = Job::new(&places::target())?;
    job.add(&Program::from_command(command)?)?;
    shell::run(&mut self::command(&means, job.path())?)
}

/// How to run a cargo command that builds and runs programs (`test`, `bench`): the user builds, root runs the
/// programs.
pub(crate) struct Runs {
    /// The commands in order; each runs only if the one before has succeeded.
    pub(crate) commands: Vec<Command>,
    /// Must live until they have ended.
    _job: Option<Job>,
}

/// Splits a cargo command. If nothing makes us root, or with `no_root`, its programs run as the user.
///
/// # Errors
/// The job cannot be written.
pub(crate) fn split(mut cargo: Command, no_root: bool) -> Result<Runs> {
    if is_root() || no_root {
        return Ok(Runs { commands: vec![cargo], _job: None });
    }
    let Some(means) = means() else {
        eprintln!(
            "warning: not root, and none of {} is installed: what needs root is skipped",
            MEANS.join(", ")
        );
        return Ok(Runs { commands: vec![cargo], _job: None });
    };
    let job = Job::new(&places::target())?;
    // Cargo runs this in place of each program, with the program's arguments, folder and environment.
    let runner = [own_program()?.as_path(), Path::new("note-program"), job.path()]
        .map(|word| word.to_str().map(quoted).with_context(|| format!("{} is not UTF-8", word.display())));
    let runner = runner.into_iter().collect::<Result<Vec<_>>>()?.join(",");
    // Global options go before the subcommand, which is its first argument.
    let arguments: Vec<_> = cargo.get_args().map(ToOwned::to_owned).collect();
    let mut noting = Command::new(cargo.get_program());
    noting.args(["--config", &format!("target.'cfg(all())'.runner=[{runner}]")]).args(arguments);
    if let Some(folder) = cargo.get_current_dir() {
        noting.current_dir(folder);
    }
    for (name, value) in cargo.get_envs() {
        match value {
            Some(value) => noting.env(name, value),
            None => noting.env_remove(name),
        };
    }
    cargo = command(&means, job.path())?;
    Ok(Runs { commands: vec![noting, cargo], _job: Some(job) })
}

/// A TOML string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_first_of_sudo_doas_and_pkexec_is_taken() {
        let there = |names: &'static [&'static str]| {
            move |name: &str| names.contains(&name).then(|| Path::new("/usr/bin").join(name))
        };
        assert_eq!(choose(there(&["pkexec", "sudo", "doas"])), Some("/usr/bin/sudo".into()));
        assert_eq!(choose(there(&["pkexec", "doas"])), Some("/usr/bin/doas".into()));
        assert_eq!(choose(there(&["pkexec"])), Some("/usr/bin/pkexec".into()));
        assert_eq!(choose(there(&["su"])), None);
    }

    #[test]
    fn the_command_is_this_program_with_the_job() {
        let command = command(Path::new("/usr/bin/doas"), Path::new("/tmp/a job")).unwrap();
        assert_eq!(command.get_program(), "/usr/bin/doas");
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments[1..], ["as-root", "/tmp/a job"]);
        assert_eq!(Path::new(arguments[0]), own_program().unwrap());
    }

    #[test]
    fn paths_are_quoted_for_cargos_configuration() {
        assert_eq!(quoted(r#"/a "b"\c"#), r#""/a \"b\"\\c""#);
    }
}
