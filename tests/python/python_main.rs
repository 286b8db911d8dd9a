//! Lines for `__main__`: the file that a process runs, however it was started.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use speed_bump_testing::{
    Attached, PythonBuild, Service, pythons, pythons::Form, session::obstacle, side_by_side, skip, tool,
};
use tempfile::TempDir;

/// For each line of its input, calls `f` of its own ten times and `f` of another file twenty.
const APP: &str = "\
import other, sys
def f(): pass
print('{\"event\":\"ready\"}', flush=True)
for line in sys.stdin:
    for _ in range(10): f(); other.f(); other.f()
    print('{\"event\":\"done\"}', flush=True)
";
const TARGETS: &str = "__main__:f\n*:f\n";

fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("app.py"), APP).unwrap();
    fs::write(folder.path().join("other.py"), "def f(): pass\n").unwrap();
    folder
}

/// A command in the folder of the files.
fn command(python: &PythonBuild, arguments: &[&str], folder: &Path) -> Command {
    let mut command = python.interpreter();
    command.args(arguments).current_dir(folder).env("PYTHONPATH", folder);
    command
}

fn on_each(case: impl Fn(&PythonBuild) + Sync) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    // Those that execute as themselves, with a folder of the host to work in.
    let pythons: Vec<_> = pythons().iter().filter(|python| python.form == Form::Direct).collect();
    if pythons.is_empty() {
        return skip!("this machine has no Python 3.8 or newer");
    }
    side_by_side::on_each(&pythons, |python| case(python));
}

#[test]
fn main_is_the_file_that_a_running_process_runs() {
    on_each(|python| {
        let folder = files();
        let whole = folder.path().join("app.py").to_str().unwrap().to_owned();
        for arguments in [&["app.py"][..], &["-u", "./app.py"], &["-m", "app"], &[&whole], &["-c", APP]] {
            let mut service = Service::start(&mut command(python, arguments, folder.path())).unwrap();
            let session = Attached::start(service.pid(), TARGETS, &["--delay", "0"]).unwrap();
            service.ask("go").unwrap();
            let ended = session.stop().unwrap();
            let calls = [0, 1].map(|target| ended.counts(target).0);
            assert_eq!(calls, [10, 20], "{python} {arguments:?}: {}", ended.run.stderr);
        }
    });
}

#[test]
fn main_is_the_file_that_a_command_runs() {
    on_each(|python| {
        let folder = files();
        let (targets, report) = (folder.path().join("targets"), folder.path().join("report"));
        fs::write(&targets, TARGETS).unwrap();
        let mut run = Command::new(tool::path().unwrap());
        run.args(["run", "--delay", "0", "--targets"]).arg(&targets).arg("--json").arg(&report).arg("--");
        let of = command(python, &["app.py"], folder.path());
        run.arg(of.get_program())
            .args(of.get_args())
            .current_dir(folder.path())
            .env("PYTHONPATH", folder.path());
        let mut child = run.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
        assert!(child.wait().unwrap().success(), "{python}");
        let report: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        let calls = [0, 1].map(|target: usize| {
            let functions = report["targets"][target]["functions"].as_array().unwrap().iter();
            functions.map(|function| function["calls"].as_u64().unwrap()).sum::<u64>()
        });
        assert_eq!(calls, [10, 20], "{python}: {report}");
    });
}
