#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn interpreters_say_what_the_table_says_of_them() {
    if pythons().is_empty() {
        return crate::skip!("this machine has no Python 3.8 or newer");
    }
    for python in pythons() {
        let mut command = python.interpreter();
        let output = command.args(["-c", "import sys; print(*sys.version_info[:3], sep='.')"]).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        let (major, minor, micro) = python.version;
        assert_eq!(said.trim(), format!("{major}.{minor}.{micro}"), "{python}");
        assert!(python.library.is_file(), "{python}: {}", python.library.display());
        assert!(!python.trampolines || python.minor() >= (3, 12), "{python}");
    }
}

#[test]
fn one_that_does_not_work_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("python3");
    let examined = |text: &str| {
        // The script is read by name: to execute a file that another thread's child holds open fails.
        fs::write(&program, text).unwrap();
        let mut command = Command::new("sh");
        ask(command.arg(&program)).map(|answer| answer.map(|answer| answer.version))
    };
    for (text, error) in [
        ("echo no such library >&2; exit 127", "exit status: 127: no such library"),
        ("echo hello", "it answers nonsense"),
        ("kill -9 $$", "signal: 9"),
    ] {
        let said = format!("{:#}", examined(text).unwrap_err());
        assert!(said.contains(error), "{text}: {said}");
    }
    let answer = r#"echo '{"implementation": "pypy", "version": [3, 10, 1], "version_text": "3.10.1",
            "trampolines": false, "free_threaded": false, "has_jit": true, "files": []}'"#;
    assert!(examined(answer).unwrap().is_none());
    assert_eq!(examined(&answer.replace("pypy", "cpython")).unwrap(), Some((3, 10, 1)));
    let absent = examine(Origin::System, Form::Direct, folder.path().join("absent"));
    assert!(absent.is_err(), "{absent:?}");
}

#[test]
fn a_container_sees_other_paths_than_the_host() {
    let Some(python) = pythons().iter().find(|python| python.form == Form::Container) else {
        return crate::skip!("no fetched Python, or not root: run `cargo xtask pythons` as root");
    };
    let script = places::fixtures().join("service.py");
    let mut service = crate::Service::start(python.command(&script).arg("0")).unwrap();
    let seen = fs::read_link(format!("/proc/{}/exe", service.pid())).unwrap();
    assert!(seen.starts_with("/usr/bin"), "{}", seen.display());
    let root = PathBuf::from(format!("/proc/{}/root", service.pid()));
    assert!(root.join("host").join(script.strip_prefix("/").unwrap()).is_file());
    assert!(!root.join(script.strip_prefix("/").unwrap()).exists());
    service.ask("report").unwrap();
}
