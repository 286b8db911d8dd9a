//! Live numbers for Prometheus: read by Prometheus' own parser, and the same as the report's.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use speed_bump_testing::{
    Service, case_ran, places, pythons,
    pythons::Form,
    session::obstacle,
    skip, skip_case,
    tool::{self, Running},
};
use speed_bump_tests::calls::start;

const PATIENCE: Duration = Duration::from_secs(60);

/// Name, labels and value.
type Sample = (String, Value, f64);

/// What Prometheus' own client makes of a text: the type of each family, and all samples. `None` without it.
fn parsed(text: &str) -> Option<(BTreeMap<String, String>, Vec<Sample>)> {
    let packages = places::python_packages((3, 11));
    if !packages.join("prometheus_client").is_dir() {
        skip_case!("prometheus_client", "it is not there: `cargo xtask packages` fetches it");
        return None;
    }
    let script = "import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
samples = [[s.name, s.labels, s.value] for family in families for s in family.samples]
print(json.dumps([{family.name: family.type for family in families}, samples]))";
    let mut child = Command::new("/usr/bin/python3")
        .env("PYTHONPATH", &packages)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    case_ran!();
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn value(samples: &[Sample], name: &str, label: (&str, &str)) -> f64 {
    let of = |(of, labels, _): &&Sample| of == name && labels[label.0] == label.1;
    samples.iter().find(of).unwrap_or_else(|| unreachable!("{name}: {samples:?}")).2
}

/// The text at the address that the tool says, while it runs.
fn scraped(running: &Running) -> String {
    running.wait_for_stderr("/metrics\n", PATIENCE).unwrap();
    let stderr = running.stderr();
    let address = stderr.split_once("http://").unwrap().1.split_once("/metrics").unwrap().0;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK") || head.starts_with("HTTP/1.1 200 OK"), "{head}");
    text.to_owned()
}

/// A service of the tests' own, in a Python that is in no container.
#[track_caller]
fn service() -> Option<Service> {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return None;
    }
    let Some(python) = pythons().iter().rfind(|python| python.form != Form::Container) else {
        skip!("this machine has no Python 3.8 or newer");
        return None;
    };
    let mut service = start(python, &[]);
    service.ask("import timed").unwrap();
    Some(service)
}

#[test]
fn a_session_is_seen_while_it_runs_and_when_it_is_over() {
    let Some(mut service) = service() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [file, json] = ["numbers.prom", "out.json"].map(|name| folder.path().join(name));
    let mut command = Command::new(tool::path().unwrap());
    command.args(["--pid", &service.pid().to_string(), "-t", "*timed.py:leaf", "--delay", "20us"]);
    command.args(["--prometheus", "0", "--prometheus-file"]).arg(&file).arg("--json").arg(&json);
    let mut running = Running::start(&mut command).unwrap();
    running.wait_for_stderr("attached; ", PATIENCE).unwrap();
    service.ask("for _ in range(500): timed.leaf()").unwrap();
    // Numbers are of the last half second.
    let until = Instant::now() + PATIENCE;
    let text = loop {
        let text = scraped(&running);
        if text.contains(r#"speed_bump_calls_total{target="*timed.py:leaf"} 500"#) || Instant::now() > until {
            break text;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    running.signal(Signal::INT).unwrap();
    let run = running.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let target = &report["targets"][0];
    let last = fs::read_to_string(&file).unwrap();
    assert!(last.contains("speed_bump_session_active 0\n"), "{last}");
    let Some((types, samples)) = parsed(&text) else { return };
    assert_eq!(types["speed_bump_calls"], "counter");
    assert_eq!(types["speed_bump_session_active"], "gauge");
    let of = |name: &str| value(&samples, name, ("target", "*timed.py:leaf"));
    assert_eq!(of("speed_bump_calls_total"), target["calls"].as_f64().unwrap());
    assert_eq!(of("speed_bump_delayed_calls_total"), target["delayed"].as_f64().unwrap());
    let delivered = target["delivered_ns"].as_f64().unwrap() / 1e9;
    assert!((of("speed_bump_delivered_delay_seconds_total") - delivered).abs() < 1e-9, "{text}");
    parsed(&last);
}

#[test]
fn a_sweep_is_seen_with_its_phase_and_its_slices() {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return;
    }
    let Some(python) = pythons().iter().rfind(|python| python.form != Form::Container) else {
        skip!("this machine has no Python 3.8 or newer");
        return;
    };
    let script = places::fixtures().join("planted.py");
    let service = Service::start(python.command(&script).arg("shadow")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::new(tool::path().unwrap());
    command.args(["sweep", "--pid", &service.pid().to_string(), "-t", "*/planted.py:render", "--for", "12s"]);
    command.args(["--progress", "*/planted.py:unit", "--prometheus", ":0", "--guard", "rate>1"]);
    let running = Running::start(command.arg("--json").arg(&json)).unwrap();
    let before = scraped(&running);
    assert!(before.contains("speed_bump_sweep_phase{phase=\"census\"} 1"), "{before}");
    running.wait_for_stderr("census: a unit takes ", PATIENCE).unwrap();
    let until = Instant::now() + PATIENCE;
    let during = loop {
        let text = scraped(&running);
        if text.contains("speed_bump_sweep_function_delay_seconds_total{") || Instant::now() > until {
            break text;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let run = running.finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let Some((types, samples)) = parsed(&during) else { return };
    assert_eq!(types["speed_bump_sweep_slices"], "counter");
    assert_eq!(value(&samples, "speed_bump_sweep_phase", ("phase", "census")), 0.0, "{during}");
    let counted = value(&samples, "speed_bump_sweep_slices_total", ("counts", "true"));
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let slices = report["slices"].as_array().unwrap().len() as f64;
    assert!(counted >= 1.0 && counted <= slices, "{counted} of {slices}");
    let function = ("function", "render");
    assert!(value(&samples, "speed_bump_sweep_function_delay_seconds_total", function) > 0.0, "{during}");
    assert!(during.contains("speed_bump_sweep_guards 1\n"), "{during}");
    assert!(during.contains("speed_bump_sweep_guard_broken 0\n"), "{during}");
}

#[test]
fn what_cannot_be_served_is_told_of() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = tool::run(&["--pid", "1", "-t", "x", "--prometheus", &address], PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("cannot serve numbers at {address}")), "{}", run.stderr);
    let run = tool::run(&["--pid", "1", "-t", "x", "--prometheus", "host:9"], PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
}

/// The dashboard asks for what there is, and is one by Grafana's own types.
#[test]
fn the_dashboard_asks_for_numbers_that_there_are() {
    let path = places::root().join("docs/grafana/speed-bump.json");
    let text = fs::read_to_string(&path).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let source = fs::read_to_string(places::root().join("speed-bump-user/src/exporter/families.rs")).unwrap();
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let names = expression.split(|c| !is_part(c)).filter(|name| name.starts_with("speed_bump_"));
            for name in names {
                assert!(source.contains(&format!("\"{name}\"")), "{name}");
                asked += 1;
            }
        }
    }
    assert!(asked >= 10, "{asked}");
    let packages = places::python_packages((3, 11));
    if !packages.join("grafana_foundation_sdk").is_dir() {
        skip_case!("grafana_foundation_sdk", "it is not there: `cargo xtask packages` fetches it");
        return;
    }
    let script = "import json, sys
from grafana_foundation_sdk.models.dashboard import Dashboard
dashboard = Dashboard.from_json(json.load(open(sys.argv[1])))
print(dashboard.title, len(dashboard.panels), len(dashboard.templating.list_val))";
    let output = Command::new(Path::new("/usr/bin/python3"))
        .env("PYTHONPATH", &packages)
        .args(["-c", script])
        .arg(&path)
        .output()
        .unwrap();
    let panels = dashboard["panels"].as_array().unwrap().len();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("speed-bump-ebpf {panels} 1\n"), "{}", String::from_utf8_lossy(&output.stderr));
    case_ran!();
}
