//! Python targets that mean compiled code: a module of Cython's, functions that numba has compiled.

#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

use speed_bump_testing::{
    Attached, PythonBuild, Service, places, pythons, session::obstacle, skip, tool, wait::PATIENCE,
};

/// Answers as the fixtures do: runs `work(N)` of what `SOURCE` has defined for each line with a number.
const LOOP: &str = "
import json, sys
print(json.dumps({'event': 'ready'}), flush=True)
for line in sys.stdin:
    work(int(line))
    print(json.dumps({'event': 'done'}), flush=True)
";

/// Debian's own interpreter, if a package was fetched for it.
fn with(package: &str) -> Option<&'static PythonBuild> {
    let is_there = places::python_packages((3, 11)).join(package).is_dir();
    let mut builds = pythons().iter().filter(|build| build.minor() == (3, 11) && !build.free_threaded);
    builds.find(|_| is_there)
}

fn start(build: &PythonBuild, folder: &Path, source: &str) -> Service {
    let program = folder.join("program.py");
    std::fs::write(&program, format!("{source}{LOOP}")).unwrap();
    let path = format!("{}:{}", places::python_packages((3, 11)).display(), folder.display());
    Service::start(build.command(&program).env("PYTHONPATH", path)).unwrap()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_cython_module_as_a_python_target_is_said_to_be_native() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(build) = with("Cython") else {
        return skip!("no packages are here: run `cargo xtask packages`, which needs PyPI");
    };
    let folder = tempfile::tempdir().unwrap();
    let source = "def handle(x):\n    return x * 2\n\nclass Server:\n    def serve(self, x):\n        \
                  return x * 3\n";
    std::fs::write(folder.path().join("quick.pyx"), source).unwrap();
    let packages = places::python_packages((3, 11));
    let mut cython = build.interpreter();
    cython.args(["-m", "cython", "-3", "quick.pyx"]).env("PYTHONPATH", packages);
    run(cython.current_dir(folder.path()));
    let headers = "import sysconfig; print(sysconfig.get_path('include'))";
    let headers = build.interpreter().args(["-c", headers]).output().unwrap();
    let headers = String::from_utf8(headers.stdout).unwrap();
    let library = "quick.cpython-311-x86_64-linux-gnu.so";
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-shared", "-fPIC", "-I", headers.trim(), "quick.c", "-o", library]);
    run(gcc.current_dir(folder.path()));

    let program = "import quick\ndef work(times):\n    for x in range(times): quick.handle(x)\n";
    let mut service = start(build, folder.path(), program);
    let pid = service.pid().to_string();
    let path = folder.path().join(library);
    let symbol = "__pyx_pw_5quick_1handle";
    for target in ["quick:handle", "*/quick.pyx:handle", "*:handle"] {
        let listed = tool::run(&["list", "--pid", &pid, "-t", target], PATIENCE).unwrap();
        let told = &listed.stderr;
        assert!(told.contains("compiled (by Cython)"), "{target}: {told}");
        assert!(told.contains(&format!("native:{}:{symbol}", path.display())), "{target}: {told}");
        assert!(!told.contains("similar names are"), "{target}: {told}");
    }
    // A session says so, too, and what it says to use counts.
    let session = Attached::start(service.pid(), "quick:handle\n", &[]).unwrap();
    service.ask("3").unwrap();
    let ended = session.stop().unwrap();
    let warnings = ended.report["warnings"].to_string();
    assert!(warnings.contains("compiled (by Cython)") && warnings.contains(symbol), "{warnings}");
    let target = format!("native:{}:{symbol}\n", path.display());
    let session = Attached::start(service.pid(), &target, &["--strict"]).unwrap();
    service.ask("7").unwrap();
    assert_eq!(session.stop().unwrap().counts(0), (7, 7));
}

#[test]
fn a_numba_function_called_by_a_compiled_one_is_said_to_be_compiled() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(build) = with("numba") else {
        return skip!("no packages are here: run `cargo xtask packages`, which needs PyPI");
    };
    let folder = tempfile::tempdir().unwrap();
    let program = "from numba import njit\n\n@njit\ndef inner(x):\n    return x + 1\n\n@njit\n\
                   def outer(n):\n    total = 0\n    for i in range(n):\n        total += inner(i)\n    \
                   return total\n\ndef plain(n):\n    return outer(n)\n\n\
                   def work(n):\n    return plain(n)\n\nwork(1)\n";
    let mut service = start(build, folder.path(), program);
    let session = Attached::start(service.pid(), "*/program.py:inner\n*/program.py:plain\n", &[]).unwrap();
    service.ask("1000").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([ended.counts(0), ended.counts(1)], [(0, 0), (1, 1)]);
    let warnings = ended.report["warnings"].to_string();
    assert!(
        warnings.contains("no call of inner (") && warnings.contains("`@njit` compiles it"),
        "{warnings}"
    );
    assert!(!warnings.contains("no call of plain"), "{warnings}");
}
