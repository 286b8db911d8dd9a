//! A sweep with functions whose names no target, or hardly one, can express: the others get their verdicts.

#![allow(clippy::unwrap_used)]

use std::fs;

use speed_bump_testing::{Service, pythons, pythons::Form, session::obstacle, skip};

use crate::{
    planted::{Found, Planted},
    share::Share,
};

#[test]
fn functions_without_names_and_of_any_names_leave_the_others_their_verdicts() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut builds = pythons().iter().filter(|build| build.form != Form::Container);
    let Some(oldest) = builds.next() else { return skip!("this machine has no Python 3.8 or newer") };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("odd.py");
    fs::write(&script, include_str!("odd_names/odd.py")).unwrap();
    for build in std::iter::once(oldest).chain(builds.next_back()) {
        let share = Share::small();
        let planted = Planted::new(Service::start(&mut build.command(&script)).unwrap(), share);
        let json = folder.path().join("out.json");
        let unit = ["--progress", "*/odd.py:unit", "--closed-loop", "--for", "25s"];
        let run = planted.sweep(&[&unit[..], &["--json", json.to_str().unwrap()]].concat());
        assert_eq!(run.status.code(), Some(0), "{build}: {}", run.stderr);
        let json = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        let found = Found { json, printed: run.stdout };
        // There are many functions for little time.
        found.assert_not_wrong("ordinary", "matters", 1.0);
        let remarks = found.json["sampling"]["remarks"].to_string();
        for text in ["whose name or file is empty", "longer than 4 KiB"] {
            assert!(remarks.contains(text), "{build}: {text}: {remarks}");
        }
        let factors = found.json["factors"].as_array().unwrap();
        let reason = |factor: &serde_json::Value| factor["reason"].as_str().unwrap_or_default().to_owned();
        let is_long = factors.iter().any(|factor| reason(factor).contains("no target selects it"));
        assert!(is_long, "{build}: {}", found.printed);
    }
}
