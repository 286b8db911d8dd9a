//! `caller=` of native functions: which calls belong to which target, by where they return to.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use serde_json::json;
use speed_bump_testing::{
    Attached, Fixture, Service, case_ran,
    exact::{self, Subject},
    fixture::copy_program,
    places,
    session::{Ended, obstacle, obstacle_to_frequency, obstacle_to_long_spins},
    skip, skip_case, tool,
    wait::PATIENCE,
};
use speed_bump_tests::calls::{list, run};

/// The fixture, with its library beside it.
fn compile(flags: &[&str]) -> Fixture {
    let source = places::fixtures().join("called.c");
    let fixture = Fixture::compile(&source, &[flags, &["-pthread", "-rdynamic", "-ldl"]].concat()).unwrap();
    let of_library = [flags, &["-shared", "-fPIC", "-DLIBRARY"]].concat();
    let library = Fixture::compile(&source, &of_library).unwrap();
    copy_program(library.program(), &fixture.folder().join("libcaller.so")).unwrap();
    fixture
}

fn start(fixture: &Fixture) -> Service {
    let library = fixture.folder().join("libcaller.so");
    Service::start(Command::new(fixture.program()).arg(library)).unwrap()
}

/// Calls and delayed calls of each target.
fn counts(ended: &Ended) -> Vec<(u64, u64)> {
    (0..ended.report["targets"].as_array().unwrap().len()).map(|target| ended.counts(target)).collect()
}

/// Changes the targets of a session.
fn set(session: &Attached, words: &[&str]) {
    let number = session.pid().to_string();
    let ran = tool::run(&[&["set", "--session", &number], words].concat(), PATIENCE).unwrap();
    assert!(ran.status.success(), "{words:?}: {}", ran.stderr);
}

/// Each way to call a function: what the fixture is told, a target, and how many calls belong to it.
const WAYS: &[(&str, &str, u64)] = &[
    ("hot 31", "burn caller=hot", 31),
    ("hot 32", "burn caller=*/program:hot", 32),
    ("hot 33", "burn caller=*/libcaller.so:hot", 0),
    ("cold 34", "burn caller=c?l[d]", 34),
    ("cold 35", "burn caller=hot", 0),
    ("partly 36", "burn caller=partly", 36),
    ("by_pointer 37", "burn caller=by_pointer", 37),
    ("around 39", "burn caller=around", 39),
    ("around 40", "burn caller=within", 0),
    ("again 41", "again caller=again", 41),
    ("again 42", "again caller=obey", 1),
    ("by_thread 43", "burn caller=in_thread", 43),
    ("by_thread 44", "burn caller=by_thread", 0),
    // The address behind the call is no longer its caller's.
    ("given_up 45", "leaves caller=gives_up", 45),
    ("in_library 46", "burn caller=in_library", 46),
    ("in_library 47", "burn caller=*/libcaller.so:*", 47),
    ("in_library 48", "burn caller=*/program:*", 0),
    ("hot 49", "burn caller=*", 49),
];

#[test]
fn the_caller_is_the_function_that_a_call_returns_to() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-no-pie", "-fcf-protection=full"]] {
        let fixture = compile(flags);
        let mut service = start(&fixture);
        service.ask("open").unwrap();
        let jumps = if flags == ["-O0"] { "jumps" } else { "before_jump" };
        let jump = format!("burn caller={jumps}");
        let ways = WAYS.iter().copied().chain([("before_jump 38", jump.as_str(), 38)]);
        for (told, target, calls) in ways {
            let targets = format!("native:*/program:{target}\n");
            let session = Attached::start(service.pid(), &targets, &["--delay", "1us"]).unwrap();
            service.ask(told).unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(counts(&ended), [(calls, calls)], "{flags:?}: {target} in `{told}`");
        }
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn a_moved_piece_of_a_function_is_the_function() {
    // As the compiler moves it: without a piece of its own, the case above says nothing.
    let fixture = compile(&["-O2"]);
    let symbols = std::fs::read(fixture.program()).unwrap();
    assert!(symbols.windows(12).any(|name| name == b"partly.cold\0"));
}

#[test]
fn the_first_line_with_a_caller_takes_the_call() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    const TARGETS: &str = "\
        native:*/program:burn caller=hot delay=1us\n\
        native:*/program:burn caller=*/program:?o* delay=2us frequency=10\n\
        native:*/program:again caller=again delay=0\n\
        native:*/program:burn id=rest delay=1us\n\
        native:*/program:burn id=late\n\
        native:*/program:burn caller=cold id=later\n";
    let fixture = compile(&["-O2"]);
    let mut service = start(&fixture);
    service.ask("open").unwrap();
    let session = Attached::start(service.pid(), TARGETS, &[]).unwrap();
    for told in ["hot 301", "cold 200", "by_pointer 100", "again 9", "in_library 7"] {
        service.ask(told).unwrap();
    }
    let ended = session.stop().unwrap();
    let expected = [(301, 301), (200, 20), (9, 0), (107, 107), (0, 0), (0, 0)];
    assert_eq!(counts(&ended), expected, "{}", ended.run.stderr);
    let target = ended.target(0);
    assert_eq!((&target["pattern"], &target["caller"]), (&json!("native:*/program:burn"), &json!("hot")));
    assert_eq!(target["id"], "native:*/program:burn caller=hot");
    assert_eq!(target["functions"][0]["name"], "burn");
    assert!(service.quit().unwrap().success());
}

#[test]
fn other_calls_are_neither_counted_nor_delayed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    // Whoever calls `worked` is `time_calls`: a call that was delayed would take too long.
    let targets = "native:*/program:worked caller=obey delay=10s\nnative:*/program:worked delay=0 id=rest\n";
    let longest = obstacle_to_long_spins().map_or(targets.to_owned(), |_| targets.replace("10s", "25us"));
    let session = Attached::start(service.pid(), &longest, &[]).unwrap();
    service.ask("time worked 0 1 50").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(counts(&ended), [(0, 0), (50, 0)], "{}", ended.run.stderr);
    assert!(service.quit().unwrap().success());
}

#[test]
fn the_delay_of_a_callers_calls_is_exact() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    let attach = |service: &mut Service, delay: &str| {
        let targets = "native:*/program:worked caller=time_calls\nnative:*/program:worked delay=0 id=rest\n";
        Attached::start(service.pid(), targets, &["--engine", "bpf", "--delay", delay])
    };
    let mut subject = Subject { service: &mut service, function: "worked", attach };
    subject.short().unwrap().assert_exact("a short delay");
    case_ran!();
    match obstacle_to_long_spins() {
        Some(why) => skip_case!("a long delay", "{why}"),
        None => subject.long(1_000_000).unwrap().assert_exact("a long delay"),
    }
    assert!(service.quit().unwrap().success());
}

#[test]
fn callers_of_targets_that_come_and_go_are_told_apart() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile(&["-O2"]);
    let mut service = start(&fixture);
    // A library that is not there yet when the session begins.
    let targets = "native:*/program:again caller=again delay=0\n";
    let session = Attached::start(service.pid(), targets, &["--delay", "1us", "-vv"]).unwrap();
    set(&session, &["--add", "native:*/program:burn", "caller=hot"]);
    service.ask("hot 1").unwrap();
    service.ask("cold 10").unwrap();
    set(&session, &["--add", "native:*/program:burn", "caller=cold"]);
    service.ask("hot 100").unwrap();
    service.ask("cold 1000").unwrap();
    set(&session, &["--add", "native:*/program:burn"]);
    set(&session, &["--drop", "native:*/program:burn caller=hot"]);
    service.ask("hot 10000").unwrap();
    service.ask("cold 10000").unwrap();
    set(&session, &["native:*/program:burn", "caller=cold", "delay=0"]);
    service.ask("cold 1").unwrap();
    set(&session, &["--drop", "native:*/program:burn caller=cold"]);
    service.ask("cold 20").unwrap();
    set(&session, &["--drop", "native:*/program:burn"]);
    service.ask("hot 5").unwrap();
    set(&session, &["--add", "native:*/program:burn", "caller=hot"]);
    service.ask("hot 6").unwrap();
    service.ask("cold 7").unwrap();
    let ended = session.stop().unwrap();
    let expected = [(0, 0), (101, 101), (11_001, 11_000), (10_020, 10_020), (6, 6)];
    assert_eq!(counts(&ended), expected, "{}", ended.run.stderr);
    assert!(service.quit().unwrap().success());
}

#[test]
fn a_library_that_is_opened_later_has_callers() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile(&["-O2"]);
    let mut service = start(&fixture);
    let targets = "native:*/program:burn caller=in_library\nnative:*/program:burn delay=0\n\
                   native:*/libcaller.so:in_library delay=0\n";
    let session = Attached::start(service.pid(), targets, &["--delay", "1us", "-v"]).unwrap();
    service.ask("hot 3").unwrap();
    service.ask("open").unwrap();
    session.wait_for("more probe sites").unwrap();
    service.ask("in_library 70").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(counts(&ended), [(70, 70), (3, 0), (1, 0)], "{}", ended.run.stderr);
    assert!(ended.run.stderr.contains("no function that is loaded matches `caller=in_library`"));
    assert!(service.quit().unwrap().success());
}

#[test]
fn processes_and_their_children_have_callers_at_addresses_of_their_own() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile(&["-O2"]);
    let (mut service, mut other) = (start(&fixture), start(&fixture));
    let targets = "native:*/program:burn caller=hot\nnative:*/program:burn delay=0\n";
    let pid = other.pid().to_string();
    let flags = ["--delay", "1us", "--pid", &pid, "-vv"];
    let session = Attached::start(service.pid(), targets, &flags).unwrap();
    let answer = service.ask("fork").unwrap();
    session.wait_for(&format!("child {} is covered", answer[0]["pid"])).unwrap();
    for told in ["child hot 100", "child cold 10", "hot 1000", "cold 20"] {
        service.ask(told).unwrap();
    }
    other.ask("hot 5").unwrap();
    other.ask("cold 7").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(counts(&ended), [(1_105, 1_105), (37, 0)], "{}", ended.run.stderr);
    assert!(service.quit().unwrap().success() && other.quit().unwrap().success());
}

#[test]
fn a_child_that_executes_the_program_anew_has_callers_at_other_addresses() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile(&["-O2"]);
    let mut service = start(&fixture);
    let targets = "native:*/program:burn caller=hot\nnative:*/program:burn delay=0\n";
    let session = Attached::start(service.pid(), targets, &["--delay", "1us", "-vv"]).unwrap();
    let answer = service.ask("exec").unwrap();
    session.wait_for(&format!("child {} is covered anew", answer[0]["pid"])).unwrap();
    for told in ["child hot 100", "child cold 10", "hot 1000", "cold 20"] {
        service.ask(told).unwrap();
    }
    let ended = session.stop().unwrap();
    assert_eq!(counts(&ended), [(1_100, 1_100), (30, 0)], "{}", ended.run.stderr);
    assert!(service.quit().unwrap().success());
}

/// Times of calls that count, beside calls of the same function that do not.
#[test]
fn calls_are_timed_by_caller() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    const TARGETS: &str = "\
        native:*/program:burn caller=hot delay=100us\n\
        native:*/program:burn caller=around delay=200us\n\
        native:*/program:around delay=0\n\
        native:*/program:cold delay=0\n\
        native:*/program:again caller=obey delay=1ms\n";
    let fixture = compile(&["-O2"]);
    let mut service = start(&fixture);
    let session = Attached::start(service.pid(), TARGETS, &["--times"]).unwrap();
    let [hot, around, cold, again] = ["hot 50", "around 60", "cold 70", "again 8"].map(|told| {
        let answer = service.ask(told).unwrap();
        answer[0]["ns"].as_u64().unwrap()
    });
    let ended = session.stop().unwrap();
    assert_eq!(counts(&ended), [(50, 50), (60, 60), (1, 0), (1, 0), (1, 1)], "{}", ended.run.stderr);
    assert_eq!(ended.report["warnings"], json!([]), "{}", ended.run.stderr);
    // A delay is part of the own time of its call, and of no other function's.
    let delays = [50 * 100_000, 60 * 200_000, 0, 0, 1_000_000];
    for (target, (delays, whole)) in delays.into_iter().zip([hot, around, around, cold, again]).enumerate() {
        let function = &ended.target(target)["functions"][0];
        let [own, all] = ["own_ns", "cumulative_ns"].map(|key| function[key].as_u64().unwrap());
        // What the traps take is subtracted as it was measured, which is no more exact than that.
        assert!(
            own >= delays - delays / 10 && own <= all && all <= whole,
            "{delays} ns to {whole} ns: {function}"
        );
        assert_eq!(function["primitive_calls"], ended.counts(target).0, "{function}");
    }
    let [within, above] = [1, 2].map(|target| &ended.target(target)["functions"][0]);
    let ns = |function: &serde_json::Value, key: &str| function[key].as_u64().unwrap();
    assert!(ns(above, "cumulative_ns") >= ns(above, "own_ns") + ns(within, "own_ns"), "{above} {within}");
    // What `cold` calls does not count, and so is its own.
    let cold = &ended.target(3)["functions"][0];
    assert_eq!(cold["own_ns"], cold["cumulative_ns"], "{cold}");
    assert!(service.quit().unwrap().success());
}

#[test]
fn a_caller_that_is_not_there_is_told() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile(&["-O2"]);
    let service = start(&fixture);
    let targets = "native:*/program:burn caller=*/program:colt\nnative:*/program:burn caller=hot\n";
    let listed = list(service.pid(), targets, &[]);
    assert!(listed.status.success(), "{}", listed.stderr);
    let said = "no function that is loaded matches `caller=*/program:colt`: similar names are `";
    assert!(listed.stderr.contains(said), "{}", listed.stderr);
    assert!(listed.stderr.contains("/program:cold`"), "{}", listed.stderr);
    assert!(!listed.stderr.contains("caller=hot"), "{}", listed.stderr);
    let strict = run(service.pid(), targets, &["--strict"]);
    assert_eq!(strict.status.code(), Some(3), "{}", strict.stderr);
    assert!(strict.stderr.contains("matches `caller=*/program:colt`"), "{}", strict.stderr);
    assert!(service.quit().unwrap().success());
}

#[test]
fn who_cannot_tell_callers_refuses_them() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = compile(&["-O2"]);
    let service = start(&fixture);
    let many: String = (0..33).map(|at| format!("native:*/program:burn caller=f{at}\n")).collect();
    for (targets, flags, why) in [
        ("usdt:*:libc:setjmp caller=main\n", &[][..], "and not of USDT probes (caller=)"),
        ("native:*/program:burn caller=hot\n", &["--engine", "kmod"], "cannot tell who calls a function"),
        (&many, &[], "name 33 different callers (`caller=`), and there is room for 32"),
    ] {
        let refused = run(service.pid(), targets, flags);
        assert_eq!(refused.status.code(), Some(2), "{targets}: {}", refused.stderr);
        assert!(refused.stderr.contains(why), "{targets}: {}", refused.stderr);
    }
    assert!(service.quit().unwrap().success());
}
