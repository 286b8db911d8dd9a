//! Services that need the whole machine. They come last: a test that waits for all of it holds up no other.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_testing::{Fixture, Service, places, session::obstacle, skip};

use crate::{
    planted::{Planted, UNIT, planted_alone},
    share::Share,
};

/// The server in C, beside no other service.
fn server_in_c() -> (Fixture, Planted) {
    let fixture = Fixture::compile(&places::fixtures().join("planted.c"), &["-O2", "-pthread"]).unwrap();
    let share = Share::whole();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    (fixture, Planted::new(service, share))
}

/// Without any flag, as of a server in Python.
#[test]
fn nothing_has_to_be_said_of_a_server_in_c() {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return;
    }
    let (_fixture, service) = server_in_c();
    let found = service.decided_of(&[], "25s", &[], &[("commit", "matters"), ("prepare", "does-not-matter")]);
    // A session that delays it by 200us makes a unit 209us longer (by 57us: 55): the delayed thread has the
    // lock, and takes a processor from what the others do meanwhile.
    found.assert_sensitivity_within("commit", 1.0, 1.05);
    assert_eq!(found.json["unit"]["source"], "--sockets");
    let sharing = &found.factor("commit")["sharing"];
    let threads = sharing["threads"].as_array().unwrap().len();
    assert_eq!(sharing["with_units"]["threads"], threads, "{}", found.printed);
}

/// Its rows differ, by what each caller does: a delay of its calls shows as the caller's would.
#[test]
fn a_native_function_is_asked_about_by_its_callers() {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return;
    }
    let (_fixture, service) = server_in_c();
    let targets = ["-t", "native:*/program:note caller=commit", "-t", "native:*/program:note caller=prepare"];
    // It takes no time itself, so that nothing is gained by making it faster.
    let names = ["note from commit", "note from prepare"];
    let found = service.decided_of(&[], "25s", &targets, &names.map(|name| (name, "does-not-matter")));
    found.assert_sensitivity_within("note from commit", 1.0, 1.05);
    let [shown, hidden] = names.map(|name| found.factor(name));
    assert!(hidden["high"].as_f64() < shown["low"].as_f64(), "{}", found.printed);
    let factor = shown;
    assert_eq!(
        (&factor["kind"], &factor["caller"]),
        (&"native".into(), &"commit".into()),
        "{}",
        found.printed
    );
}

/// In a process of its own it does not, where there is a processor for each.
#[test]
fn a_process_that_shares_nothing_does_not_matter() {
    let Some(service) = planted_alone("forked") else { return };
    let verdicts = [("tick", "does-not-matter"), ("render", "matters")];
    // Nothing runs beside it: by the rules that hold where none are given.
    let found = service.decided_by(&[], &["tick", "render"], "15s", &UNIT, &verdicts);
    found.assert_sensitivity("render", 1.0);
}

/// Three workers share what each of them loses. Nothing is named: the requests are those of the children.
#[test]
fn workers_behind_one_socket_share_what_each_loses() {
    let Some(service) = planted_alone("workers") else { return };
    let found = service.decided_of(&[], "25s", &[], &[("render", "matters")]);
    found.assert_sensitivity("render", 1.0 / 3.0);
    assert_eq!(found.json["unit"]["source"], "--sockets");
}
