//! The test programs that run in guests: built here, put where they look for things there.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;
use speed_bump_testing::{places as tree, skip, wait};

use super::{files::Files, places, root};
use crate::{
    release, shell,
    system::{self, Need},
};

/// A test program, and how long it may take in a guest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The file in speed-bump-user/tests.
    pub(super) name: &'static str,
    limit_s: u32,
}

/// What runs: the main paths of the tool, each against the real kernel. What tests its own code runs on the host.
pub(super) const PROGRAMS: [Program; 9] = [
    Program { name: "native_functions", limit_s: 900 },
    Program { name: "session_usdt", limit_s: 900 },
    Program { name: "session_policy", limit_s: 900 },
    Program { name: "session_leaving", limit_s: 900 },
    Program { name: "session_children", limit_s: 900 },
    Program { name: "helper_calls", limit_s: 900 },
    Program { name: "python_perf_map", limit_s: 900 },
    Program { name: "run_command", limit_s: 900 },
    Program { name: "run_python", limit_s: 900 },
];

/// The package whose tests they are.
const PACKAGE: &str = "speed-bump-user";
/// The job that runs them, and one that lets a person do it.
const TESTS: &str = include_str!("tests.sh");
const SHELL: &str = include_str!("shell.sh");
const GCC: &str = include_str!("gcc.sh");
/// How many times slower than an ordinary machine a guest is that is translated on a busy host.
const SLOWNESS: u32 = 5;
/// Where the job has what was compiled in earlier guests.
const COMPILED: &str = "/guest/compiled";

/// Built programs, by name, and the tool.
#[derive(Debug)]
pub(super) struct Built {
    tests: BTreeMap<String, PathBuf>,
    tool: PathBuf,
}

const STRIP: Need =
    Need { program: "strip", package: "binutils", purpose: "to leave debugging information out of guests" };

/// Builds these programs and the tool.
pub(super) fn build(programs: &[&Program]) -> Result<Built> {
    system::ensure(&[STRIP])?;
    let mut command = shell::cargo();
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--package", PACKAGE]);
    for program in programs {
        command.args(["--test", program.name]);
    }
    let messages = shell::output_shown(&mut command)?;
    let tests = executables(&messages);
    // Its optimised build: here it starts in seconds otherwise.
    let tool = release::build()?;
    Ok(Built { tests, tool })
}

/// The test programs among cargo's messages, by the names of their targets.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["target"]["kind"][0] == "test")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect()
}

/// The job that runs these programs, or a shell, with all that they need.
pub(super) fn job(programs: &[&Program], built: &Built, shell: bool) -> Result<Files> {
    let files = Files::new(&places::all())?;
    let (root, target) = (tree::root(), tree::target());
    // Programs find the tree by its lock file.
    files.copy_stripped(&built.tool, &built.tool)?;
    let mut list = String::new();
    for program in programs {
        let path =
            built.tests.get(program.name).with_context(|| format!("cargo built no {}", program.name))?;
        files.copy_stripped(path, path)?;
        let _ = writeln!(list, "{} {} {}", program.name, program.limit_s, path.display());
    }
    let package = root.join(PACKAGE);
    for part in [root.join("Cargo.lock"), root.join("Cargo.toml"), tree::fixtures(), package.join("tests")] {
        files.copy(&part, &part)?;
    }
    files.copy(&package.join("Cargo.toml"), &package.join("Cargo.toml"))?;
    files.folder(&target.join("tmp"))?;
    if places::compiled().is_dir() {
        files.copy(&places::compiled(), Path::new(COMPILED))?;
    }
    let environment = [
        ("CARGO_MANIFEST_DIR", package.display().to_string()),
        ("SPEED_BUMP_TOOL", built.tool.display().to_string()),
        (skip::FILE_VARIABLE, "/results/skips.txt".to_owned()),
        ("SPEED_BUMP_PYTHONS", root::PYTHONS.to_owned()),
        (wait::SLOWNESS_VARIABLE, SLOWNESS.to_string()),
        ("RUST_BACKTRACE", "1".to_owned()),
    ];
    let mut text = format!("cd \"{}\"\n", package.display());
    for (name, value) in environment {
        let _ = writeln!(text, "export {name}=\"{value}\"");
    }
    files.write(Path::new("/guest/environment"), &text, 0o644)?;
    files.write(Path::new("/guest/programs"), &list, 0o644)?;
    let job = if shell { SHELL } else { TESTS };
    for (command, text) in [("job", job), ("tests", TESTS), ("bin/gcc", GCC), ("bin/cc", GCC)] {
        files.write(&Path::new("/guest").join(command), text, 0o755)?;
    }
    Ok(files)
}

/// Keeps what a guest compiled, for the next.
pub(super) fn keep_compiled(results: &Path) -> Result<()> {
    let compiled = results.join("compiled");
    if compiled.is_dir() {
        let kept = places::compiled();
        shell::output(
            Command::new("cp").args(["--archive", "--no-target-directory"]).arg(compiled).arg(kept),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_told_by_name() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"speed_bump_user"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"speed-bump-ebpf"},"executable":"/t/debug/speed-bump-ebpf"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"session_usdt"},"executable":"/t/debug/deps/session_usdt-1"}
{"reason":"build-finished","success":true}
"#;
        let found: Vec<_> = executables(messages).into_iter().collect();
        assert_eq!(found, [("session_usdt".to_owned(), PathBuf::from("/t/debug/deps/session_usdt-1"))]);
    }
}
