//! Own and cumulative times of a session as a profile: that Python's own `pstats` reads the file and prints
//! the same, and that other programs open it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    time::Duration,
};

use serde_json::Value;
use speed_bump_testing::{
    PythonBuild, case_ran, places, pythons, pythons::Form, session::obstacle, skip, skip_case, tool,
};
use speed_bump_tests::{calls::start_timed, helper::attach};

/// A session of the fixture's calls, with its JSON and its profile.
struct Recorded {
    folder: tempfile::TempDir,
    python: &'static PythonBuild,
    /// What cProfile counted: name, line, calls and primitive calls, and the same of each that was called.
    expected: Value,
}

/// Recorded once; `None` where this machine cannot.
static RECORDED: LazyLock<Option<Recorded>> = LazyLock::new(|| {
    if obstacle().is_some() {
        return None;
    }
    let python = pythons().iter().rfind(|python| python.form != Form::Container)?;
    let folder = tempfile::tempdir().unwrap();
    let mut service = start_timed(python);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, profile) = (path("session.json"), path("session.prof"));
    let flags = ["--times", "--callers", "--delay", "0", "--pstats", &profile];
    let session = attach(&service, "*timed.py:*\n", &flags);
    let said = service.ask("say(profile=timed.profiled(timed.everything))").unwrap();
    let ended = session.stop().unwrap();
    fs::write(&json, ended.report.to_string()).unwrap();
    Some(Recorded { expected: said[0]["profile"].clone(), folder, python })
});

/// The session; a skip where there is none.
#[track_caller]
fn recorded() -> Option<&'static Recorded> {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return None;
    }
    if RECORDED.is_none() {
        skip!("this machine has no Python 3.8 or newer");
    }
    RECORDED.as_ref()
}

impl Recorded {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What `report` prints of it.
    #[track_caller]
    fn report(&self, more: &[&str]) -> String {
        let json = self.path("session.json");
        let all: Vec<&str> =
            ["report", json.to_str().unwrap()].into_iter().chain(more.iter().copied()).collect();
        let run = tool::run(&all, Duration::from_secs(60)).unwrap();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        run.stdout
    }

    /// What `pstats` prints of the profile, after this was done with it, as `stats`.
    #[track_caller]
    fn pstats(&self, what: &str) -> String {
        let script =
            format!("import pstats, sys\nstats = pstats.Stats(sys.argv[1])\nstats.files = []\n{what}\n");
        output(self.python.command(Path::new("-c")).arg(script).arg(self.path("session.prof")))
    }
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Lines of both, without those that end a table.
#[track_caller]
fn assert_same(ours: &str, theirs: &str, how: &str) {
    let [ours, theirs] = [ours, theirs].map(|text| text.trim_end().lines().collect::<Vec<_>>());
    assert_eq!(ours, theirs, "{how}");
}

#[test]
fn it_is_printed_as_pstats_prints_it() {
    let Some(recorded) = recorded() else { return };
    for (flags, calls) in [
        (&[][..], "stats.print_stats()"),
        (&["--sort", "calls"], "stats.sort_stats('calls').print_stats()"),
        (&["--sort", "cumulative"], "stats.sort_stats('cumulative').print_stats()"),
        (&["--sort", "time"], "stats.sort_stats('time').print_stats()"),
        (&["--sort", "name"], "stats.sort_stats('name').print_stats()"),
        (&["--sort", "file"], "stats.sort_stats('file').print_stats()"),
        (&["--sort", "line"], "stats.sort_stats('line').print_stats()"),
        (&["--sort", "module"], "stats.sort_stats('module').print_stats()"),
        (&["--sort", "nfl"], "stats.sort_stats('nfl').print_stats()"),
        (&["--sort", "pcalls"], "stats.sort_stats('pcalls').print_stats()"),
        (&["--sort", "stdname"], "stats.sort_stats('stdname').print_stats()"),
        (&["--sort", "pc,nam"], "stats.sort_stats('pc', 'nam').print_stats()"),
        (&["--sort", "calls", "--sort", "line"], "stats.sort_stats('calls', 'line').print_stats()"),
        (&["--sort", "line", "--reverse"], "stats.sort_stats('line').reverse_order().print_stats()"),
        (&["--strip-dirs", "--sort", "name"], "stats.strip_dirs().sort_stats('name').print_stats()"),
        (&["--sort", "line", "--limit", "5"], "stats.sort_stats('line').print_stats(5)"),
        (&["--sort", "line", "--limit", "0.3"], "stats.sort_stats('line').print_stats(0.3)"),
        (
            &["--sort", "line", "--limit", "ing", "--limit", "0.5", "--limit", "2"],
            "stats.sort_stats('line').print_stats('ing', 0.5, 2)",
        ),
        (&["--callers", ""], "stats.print_callers('')"),
        (&["--callers", "leaf"], "stats.print_callers('leaf')"),
        (&["--callees", "everything|direct"], "stats.print_callees('everything|direct')"),
        (
            &["--sort", "name", "--reverse", "--callees", "ing", "--limit", "3"],
            "stats.sort_stats('name').reverse_order().print_callees('ing', 3)",
        ),
        (
            &["--strip-dirs", "--sort", "cumulative", "--callers", "even", "--callees", "odd"],
            "stats.strip_dirs().sort_stats('cumulative').print_callers('even'); stats.print_callees('odd')",
        ),
    ] {
        assert_same(&recorded.report(flags), &recorded.pstats(calls), calls);
    }
}

#[test]
fn sessions_are_added_as_pstats_adds_them() {
    let Some(recorded) = recorded() else { return };
    let (json, profile) = (recorded.path("session.json"), recorded.path("session.prof"));
    let ours = recorded.report(&["--add", json.to_str().unwrap(), "--sort", "line"]);
    let calls = format!("stats.add({:?}); stats.files = []; stats.sort_stats('line').print_stats()", profile);
    assert_same(&ours, &recorded.pstats(&calls), "added");
}

/// Whether a function of ours is this one of cProfile's, which has the last part of a qualified name.
fn is_same(of: &Value, entry: &Value) -> bool {
    let name = of[0].as_str().unwrap().rsplit('.').next().unwrap();
    name == entry[0].as_str().unwrap() && of[1] == entry[1]
}

/// Each function that cProfile saw of the same run, with its calls.
#[test]
fn calls_are_those_of_cprofile() {
    let Some(recorded) = recorded() else { return };
    let script = "import json, pstats, sys
stats = pstats.Stats(sys.argv[1]).stats
rows = [[name, line, calls, primitive] for (_, line, name), (primitive, calls, *_) in stats.items()]
print(json.dumps(rows))";
    let mut command = recorded.python.command(Path::new("-c"));
    let found: Value =
        serde_json::from_str(&output(command.arg(script).arg(recorded.path("session.prof")))).unwrap();
    let found = found.as_array().unwrap();
    let expected = recorded.expected.as_array().unwrap();
    assert!(expected.len() >= 19, "{expected:?}");
    for entry in expected {
        let of = found.iter().find(|of| is_same(of, entry)).unwrap();
        assert_eq!((&of[2], &of[3]), (&entry[2], &entry[3]), "{entry}");
    }
}

/// Each pair of functions that cProfile saw of the same run, with its calls. What something else called, such
/// as the event loop, has that as its caller, though no target selects it.
#[test]
fn callers_are_those_of_cprofile() {
    let Some(recorded) = recorded() else { return };
    let script = "import json, pstats, sys
rows = [
    [name, line, [[by[2], by[1], calls, primitive] for by, (calls, primitive, *_) in callers.items()], calls]
    for (_, line, name), (_, calls, _, _, callers) in pstats.Stats(sys.argv[1]).stats.items()
]
print(json.dumps(rows))";
    let mut command = recorded.python.command(Path::new("-c"));
    let found: Value =
        serde_json::from_str(&output(command.arg(script).arg(recorded.path("session.prof")))).unwrap();
    let found = found.as_array().unwrap();
    let mut pairs = 0;
    for caller in recorded.expected.as_array().unwrap() {
        for callee in caller[4].as_array().unwrap() {
            let of = found.iter().find(|of| is_same(of, callee)).unwrap();
            let by = of[2].as_array().unwrap().iter().find(|by| is_same(by, caller)).unwrap();
            assert_eq!((&by[2], &by[3]), (&callee[2], &callee[3]), "{} calls {callee}", caller[0]);
            pairs += 1;
        }
    }
    assert!(pairs >= 18, "{pairs}");
    for of in found.iter().filter(|of| of[3] != 0) {
        let by_all: u64 = of[2].as_array().unwrap().iter().map(|by| by[2].as_u64().unwrap()).sum();
        assert_eq!(Some(by_all), of[3].as_u64(), "{of}");
    }
    // The event loop's own functions are there as callers, with no calls.
    let only_callers: Vec<_> = found.iter().filter(|of| of[3] == 0).collect();
    assert!(
        only_callers.iter().any(|of| of[0].as_str().is_some_and(|name| name.ends_with("_run"))),
        "{found:?}"
    );
    assert!(only_callers.iter().all(|of| of[2].as_array().is_some_and(Vec::is_empty)), "{only_callers:?}");
}

/// The file that the session wrote is the one that `report` makes of its JSON.
#[test]
fn the_profile_can_be_made_again() {
    let Some(recorded) = recorded() else { return };
    let again = recorded.path("again.prof");
    recorded.report(&["--pstats", again.to_str().unwrap()]);
    assert_eq!(fs::read(&again).unwrap(), fs::read(recorded.path("session.prof")).unwrap());
}

/// Of PyPI: gprof2dot draws a graph of it, snakeviz and tuna make their pages' data.
#[test]
fn other_programs_open_it() {
    let Some(recorded) = recorded() else { return };
    let packages = places::python_packages((3, 11));
    let system = Path::new("/usr/bin/python3");
    for (package, script) in [
        ("gprof2dot.py", "import gprof2dot; gprof2dot.main(['-f', 'pstats', '-n0', '-e0', sys.argv[1]])"),
        (
            "snakeviz",
            "import pstats, snakeviz.stats; print(snakeviz.stats.table_rows(pstats.Stats(sys.argv[1])))",
        ),
        ("tuna", "import json; from tuna.main import read; print(json.dumps(read(sys.argv[1])))"),
    ] {
        if !packages.join(package).exists() {
            skip_case!(package, "it is not there: `cargo xtask packages` fetches it");
            continue;
        }
        let mut command = Command::new(system);
        command.env("PYTHONPATH", &packages).args(["-c", &format!("import sys; {script}")]);
        let shown = output(command.arg(recorded.path("session.prof")));
        // The others may be too short to be drawn.
        assert!(shown.contains("everything"), "{package}: {shown}");
        // A graph has an edge for each caller.
        let edges = shown.matches(" -> ").count();
        assert!(package != "gprof2dot.py" || edges >= 18, "{package}: {edges} edges in {shown}");
        case_ran!();
    }
}

#[test]
fn what_has_no_times_makes_no_profile() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("session.json");
    fs::write(&json, r#"{"schema": "speed-bump/session/1", "duration_ns": 1, "targets": []}"#).unwrap();
    let run = tool::run(&["report", json.to_str().unwrap()], Duration::from_secs(60)).unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(
        run.stderr.contains("no call was timed in this session: record one with --times"),
        "{}",
        run.stderr
    );
    let run = tool::run(&["report", json.to_str().unwrap(), "--csv"], Duration::from_secs(60)).unwrap();
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    let run = tool::run(&["--pid", "1", "-t", "x", "--callers"], Duration::from_secs(60)).unwrap();
    assert!(run.stderr.contains("--times"), "{}", run.stderr);
    let run = tool::run(&["--pid", "1", "-t", "x", "--pstats", "p"], Duration::from_secs(60)).unwrap();
    assert!(run.stderr.contains("--times"), "{}", run.stderr);
}
