//! Running other programs: every failure names the command and what it said.

use std::{
    env,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::places;

/// The cargo that runs this, in the root of the working tree.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(places::root());
    command
}

/// Runs a command to its end, its output shown.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status =
        command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns its standard output; its standard error is part of the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        bail!("`{}` failed: {status}\n{}", line(command), said.trim_end());
    }
    String::from_utf8(stdout).with_context(|| format!("`{}` printed what is not UTF-8", line(command)))
}

/// Runs a command to its end and returns its standard output; its standard error is shown.
pub(crate) fn output_shown(command: &mut Command) -> Result<String> {
    output(command.stderr(Stdio::inherit()))
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}
