//! Programs that take their functions from the garbage collector (`gc.freeze()`), as servers do before they
//! fork.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use speed_bump_testing::{
    PythonBuild, Service, places, pythons,
    pythons::Form,
    session::{command, obstacle},
    skip,
    tool::Running,
    wait::PATIENCE,
};
use speed_bump_tests::calls::{counts, list, start};
use speed_bump_tests::helper::{attach, on_each};

/// A function of each kind that has a name of more than one component, and what calls it once.
const FROZEN: [(&str, &str); 7] = [
    ("plain", "plain(1)"),
    ("K.m", "INSTANCE.m()"),
    ("K.class_method", "K.class_method()"),
    ("K.static_method", "K.static_method()"),
    ("K.value", "INSTANCE.value"),
    ("outer.<locals>.inner", "outer(1)"),
    ("wrap.<locals>.wrapper", "wrapped()"),
];

const TARGETS: &str = "*/calls.py:plain\n*/calls.py:K.*\n*/calls.py:outer.*\n<command>:wrap.*\n";

/// A program with a wrapped function beside those of the fixture, all of whose objects are frozen.
fn frozen(python: &PythonBuild) -> Service {
    let mut service = start(python, &[]);
    let define = "def wrap(f):\\n def wrapper(): return f()\\n return wrapper\\nwrapped = wrap(int)";
    service.ask(&format!("exec(compile('{define}', '<command>', 'exec'), globals())")).unwrap();
    service.ask("import gc; gc.freeze()").unwrap();
    service
}

#[test]
fn functions_of_a_frozen_program_are_counted_exactly() {
    on_each(|python| {
        let mut service = frozen(python);
        let session = attach(&service, TARGETS, &["--delay", "1us"]);
        for (_, call) in FROZEN {
            service.ask(&format!("for _ in range(200): {call}")).unwrap();
        }
        let ended = session.stop().unwrap();
        for (name, _) in FROZEN {
            assert_eq!(counts(&ended, name), (200, 200), "{python}: {name}: {}", ended.run.stderr);
        }
    });
}

/// In a build without a GIL they are found when they are called, and that is said.
#[test]
fn functions_of_a_frozen_program_are_listed() {
    on_each(|python| {
        let service = frozen(python);
        let run = list(service.pid(), TARGETS, &["--all"]);
        assert!(run.status.success(), "{python}: {}", run.stderr);
        if python.free_threaded {
            assert!(run.stderr.contains("(gc.freeze)"), "{python}: {}", run.stderr);
            return;
        }
        for (name, _) in FROZEN {
            assert!(run.stdout.contains(&format!("\n  {name} (")), "{python}: {name}: {}", run.stdout);
        }
        assert!(!run.stderr.contains("selects nothing"), "{python}: {}", run.stderr);
        assert!(!run.stderr.contains("gc.freeze"), "{python}: {}", run.stderr);

        let folder = tempfile::tempdir().unwrap();
        let flags = ["--entry", "helper", "--strict", "--duration", "10ms"];
        let mut strict = command(folder.path(), service.pid(), TARGETS, &flags).unwrap();
        let run = Running::start(&mut strict).unwrap().finish(PATIENCE).unwrap();
        assert!(run.status.success(), "{python}: {}", run.stderr);
    });
}

/// A forked child finds names by itself when targets change, as it has no thread of the helper's.
#[test]
fn functions_of_a_frozen_programs_children_are_counted_when_targets_change() {
    on_each(|python| {
        let mut service = frozen(python);
        let mut session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
        service.ask("child(Forked)").unwrap();
        session.write_targets("*/calls.py:K.*\n").unwrap();
        session.signal(rustix::process::Signal::USR1).unwrap();
        session.wait_for("1 target added, 1 dropped").unwrap();
        service.ask("CHILD.ask('for _ in range(200): INSTANCE.m()')").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended, "K.m"), (200, 200), "{python}: {}", ended.run.stderr);
    });
}

/// How many requests are made.
const REQUESTS: u64 = 50;

#[test]
fn gunicorn_that_preloads_and_freezes_its_application_is_counted_exactly() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let builds = pythons().iter().filter(|build| build.form != Form::Container && !build.free_threaded);
    let folder = |build: &&PythonBuild| places::python_packages(build.minor());
    let found: Vec<_> = builds.filter(|build| folder(build).join("gunicorn").is_dir()).collect();
    if found.is_empty() {
        return skip!("no gunicorn is here: run `cargo xtask packages`, which needs PyPI");
    }
    for python in found {
        let settings = places::fixtures().join("gunicorn_settings.py");
        let mut command = python.command_with(&["-m", "gunicorn", "--config"], &settings);
        command
            .arg("gunicorn_application")
            .env("PYTHONPATH", folder(&python))
            .current_dir(places::fixtures());
        let service = Service::start(&mut command).unwrap_or_else(|error| panic!("{python}: {error:#}"));
        let port = u16::try_from(service.ready()["port"].as_u64().unwrap()).unwrap();
        let targets = "*/gunicorn_application.py:Application.handle\n*/gunicorn_application.py:Page.*\n\
                       */gunicorn_application.py:Application.handle.<locals>.render\n";
        let session = attach(&service, targets, &["--delay", "1us"]);
        for _ in 0..REQUESTS {
            assert!(get(port).ends_with("hello"), "{python}");
        }
        let ended = session.stop().unwrap();
        let called = ["Application.handle", "Page.title", "Page.body", "Application.handle.<locals>.render"];
        for name in called {
            let counted = counts(&ended, name);
            assert_eq!(counted, (REQUESTS, REQUESTS), "{python}: {name}: {}", ended.run.stderr);
        }
    }
}

/// What the server answers.
fn get(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
