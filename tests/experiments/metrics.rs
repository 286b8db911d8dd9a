//! Ways to count a service's work: commands, benchmarks, several at once, and messages about those that do
//! not work.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, time::Instant};

use serde_json::Value;
use speed_bump_testing::wait::PATIENCE;

use crate::{
    planted::{Found, planted, planted_large, planted_tiny, planted_with},
    sweep::assert_same_report,
};

const RENDER: [&str; 2] = ["-t", "*/planted.py:render"];

fn slices(found: &Found) -> &Vec<Value> {
    found.json["slices"].as_array().unwrap()
}

/// Verdicts go by the first; the others are in each slice, and in the report.
#[test]
fn several_metrics_are_recorded_beside_each_other() {
    let Some(service) = planted("http") else { return };
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let gauge =
        format!("gauge:command:echo $$ > {}; echo 7; while sleep 0.02; do echo 7; done", pid.display());
    let unit = ["--progress", "*/planted.py:*.do_GET", "--sockets", "--metric", &gauge];
    let verdicts = [("render", "matters"), ("score", "does-not-matter")];
    let found = service.decided_of(&["render", "score"], "25s", &unit, &verdicts);
    assert_eq!(found.json["unit"]["source"], "--progress */planted.py:*.do_GET");
    let named = format!("--metric {gauge}");
    assert_eq!(found.json["metrics"], serde_json::json!(["--sockets", named]));
    for slice in slices(&found) {
        let metrics = &slice["metrics"];
        let requests = metrics["--sockets"]["units"].as_f64().unwrap();
        let calls = slice["units"].as_f64().unwrap();
        assert!((requests - calls).abs() <= 3.0, "{slice}");
        assert!(
            metrics["--sockets"]["quantiles"]["p99_ns"].as_u64()
                > metrics["--sockets"]["quantiles"]["p50_ns"].as_u64().map(|ns| ns - 1),
            "{slice}"
        );
        assert!((metrics[&named]["mean"].as_f64().unwrap() - 7.0).abs() < 1e-2, "{slice}");
    }
    let further = found.json["further"].as_array().unwrap();
    let of = |metric: &str, quantity: &str| {
        let is_it = |of: &&Value| of["metric"] == metric && of["quantity"] == quantity;
        let row = further.iter().find(is_it);
        assert!(row.is_some(), "{metric} {quantity}\n{}", found.printed);
        row.unwrap().clone()
    };
    // The rate falls with what matters, and latencies grow.
    let rate = of("--sockets", "rate");
    assert!(rate["moves"][0]["by"].as_f64().unwrap() < 0.0, "{}", found.printed);
    let p50 = of("--sockets", "p50");
    assert!(p50["moves"][0]["by"].as_f64().unwrap() > 0.0, "{}", found.printed);
    assert_eq!(of(&named, "mean")["moves"][0]["name"], "render");
    assert!(found.printed.contains("further metric"), "{}", found.printed);
    // The command has ended with the sweep.
    let pid = fs::read_to_string(&pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
}

/// A command counts units.
#[test]
fn a_command_may_count_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("units");
    let path = log.to_str().unwrap();
    let Some(service) = planted_with("logged", &[path]) else { return };
    let count = format!("command:echo 0; while sleep 0.005; do stat -c %s {path}; done");
    let found = service.found(&["render"], &["--metric", &count], &["--for", "30s", "--slice", "400ms"]);
    assert_eq!(found.json["aborted"], Value::Null, "{}", found.printed);
    found.assert_sensitivity("render", 1.0);
}

/// The time from the start of one function to the end of another is measured, for any number of requests.
#[test]
fn units_may_begin_with_one_function_and_end_with_another() {
    let Some(service) = planted("open") else { return };
    let unit = ["--progress", "*/planted.py:begun..*/planted.py:done"];
    let found = service.found(&["work"], &unit, &["--for", "25s"]);
    found.assert_not_wrong("work", "matters", 1.0);
    assert_eq!((&found.json["by"], &found.json["open_loop"]), (&"latency".into(), &true.into()));
    // A request each 5 ms, which takes 1.5 ms and a little.
    let takes = found.json["time_per_unit_ns"].as_f64().unwrap();
    assert!(takes > 1_000_000.0, "{takes}\n{}", found.printed);
    for name in ["begun", "done"] {
        let candidates = found.json["candidates"].as_array().unwrap();
        assert!(candidates.iter().all(|of| of["name"] != name), "{name} may be delayed");
    }
}

/// Beyond a bound on p99, delays end, with a code of its own and a report.
#[test]
fn a_bound_on_p99_ends_it() {
    let Some(service) = planted_large("http") else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let flags = ["--for", "40s", "--max-slowdown", "90%", "--guard", "p99<11ms", "--closed-loop"];
    let begun = Instant::now();
    loop {
        let arguments = [&RENDER[..], &flags, &["--json", json.to_str().unwrap()]].concat();
        let run = service.sweep(&arguments);
        assert_eq!(run.status.code(), Some(6), "{}\n{}", run.stderr, run.stdout);
        assert!(run.stderr.contains("a guard ended the experiment: p99 is "), "{}", run.stderr);
        assert_same_report(&json, &run.stdout);
        let found: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert!(found["guard"].as_str().unwrap().ends_with("must be < 11ms"), "{}", found["guard"]);
        assert!(found["aborted"].as_str().unwrap().starts_with("a guard ended it: p99 is "));
        // Where the machine is busy with something else, it may be broken before any delay.
        let phases = found["phases"].as_array().unwrap();
        if phases.len() > 1 {
            assert!(
                found["slices"].as_array().unwrap().iter().any(|of| of["doses"] != serde_json::json!([]))
            );
            return;
        }
        assert!(begun.elapsed() < 4 * PATIENCE, "never without delays within the bound: {}", run.stderr);
    }
}

#[test]
fn a_metric_that_cannot_serve_is_told_of_before_any_delay() {
    let Some(service) = planted_tiny("shadow") else { return };
    let sweep = |metric: &str| service.sweep(&[&RENDER[..], &["--metric", metric, "--for", "20s"]].concat());
    let still = sweep("command:while sleep 0.01; do echo 5; done");
    assert_eq!(still.status.code(), Some(2), "{}", still.stderr);
    assert!(still.stderr.contains("no unit of work was done"), "{}", still.stderr);
    let words = sweep("command:echo many; sleep 100");
    assert_eq!(words.status.code(), Some(2), "{}", words.stderr);
    assert!(words.stderr.contains("printed `many`, which is not a number"), "{}", words.stderr);
    let ended = sweep("command:exit 3");
    assert!(ended.stderr.contains("ended (exit status: 3): it must repeatedly print"), "{}", ended.stderr);
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    for (metric, words) in [
        ("command:i=0; while :; do i=$((i+100)); echo $i; sleep 1; done", "too seldom to be compared"),
        // It falls, but for a step up in a second or so: nearly every slice ends lower than it began.
        ("command:i=0; while sleep 0.01; do i=$((i+1)); echo $((i / 100 * 1100 - i)); done", "jumped back"),
    ] {
        let file = ["--json", json.to_str().unwrap()];
        let run = service.sweep(&[&RENDER[..], &["--metric", metric, "--for", "20s"], &file].concat());
        if run.status.code() == Some(2) {
            // It was lower at the end of the first count than at its beginning.
            assert!(run.stderr.contains(words) || run.stderr.contains("no unit of work"), "{}", run.stderr);
            continue;
        }
        assert_eq!(run.status.code(), Some(8), "{}", run.stderr);
        // It may not have moved at all within slices.
        let is_told = run.stdout.contains(words) || run.stdout.contains("is brought up to date less often");
        assert!(is_told, "{}", run.stdout);
        let found: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        let slices = found["slices"].as_array().unwrap();
        assert!(slices.iter().all(|slice| slice["doses"] == serde_json::json!([])), "{}", run.stdout);
    }
}

/// A benchmark that asks the service forty times.
#[test]
fn a_slice_may_be_a_run_of_a_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service");
    let path = path.to_str().unwrap();
    let Some(service) = planted_with("served", &[path]) else { return };
    let ask = format!(
        "python3 -S -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{path}\"); \
         print(\"asked\", sum(len(s.recv(s.send(b\"x\"))) for _ in range(40)))'"
    );
    let found = service.found(&["render", "score"], &["--bench", &ask], &["--for", "20s"]);
    found.assert_not_wrong("render", "matters", 1.0);
    found.assert_not_wrong("score", "does-not-matter", 0.0);
    assert!(slices(&found).iter().all(|slice| slice["units"] == 1.0));
    // A number that it prints instead.
    let regex = ["--bench", &ask, "--bench-regex", "asked ([0-9]+)", "--for", "10s"];
    let run = service.sweep(&[&RENDER[..], &regex].concat());
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("unit: unit that the benchmark counts; one takes 25ms"), "{}", run.stdout);
    // One that fails is reported, with its output.
    let run = service.sweep(&[&RENDER[..], &["--bench", "echo no luck >&2; exit 4"]].concat());
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("failed (exit status: 4): no luck"), "{}", run.stderr);
}
