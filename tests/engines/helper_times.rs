//! `--times`: own and cumulative times of Python functions, by the helper.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};
use speed_bump_testing::{
    Agent, Attached, PythonBuild, Service,
    exact::{self, Subject},
    pythons,
    session::Ended,
};
use speed_bump_tests::calls::{functions, one_of_each_version, start_timed};
use speed_bump_tests::helper::{attach, on_each, one_by_one, tools};

const TIMES: [&str; 3] = ["--times", "--delay", "0"];
const ALL: &str = "*timed.py:*\n";
/// How long the fixture's `spinning` takes, in ns.
const SPUN: u64 = 10_000_000;

/// The first object that a statement says.
fn said(service: &mut Service, statement: &str, key: &str) -> Value {
    service.ask(&format!("say({key}={statement})")).unwrap()[0][key].clone()
}

/// How long a call of the fixture takes by the program's own clock, in ns.
fn measured(service: &mut Service, call: &str) -> u64 {
    said(service, &format!("timed.measured({call})"), "measured").as_u64().unwrap()
}

/// What the report says of one function.
struct Times {
    calls: u64,
    resumed: u64,
    primitive: u64,
    primitive_resumed: u64,
    own: u64,
    cumulative: u64,
}

impl Times {
    fn read(function: &Value) -> Self {
        let number = |key: &str| {
            assert!(function[key].is_u64(), "no {key}: {function}");
            function[key].as_u64().unwrap()
        };
        Self {
            calls: number("calls"),
            resumed: number("resumed"),
            primitive: number("primitive_calls"),
            primitive_resumed: number("primitive_resumed"),
            own: number("own_ns"),
            cumulative: number("cumulative_ns"),
        }
    }

    /// All calls and the primitive ones, as cProfile counts them: including resumed ones.
    fn as_in_a_profile(&self) -> (u64, u64) {
        (self.calls + self.resumed, self.primitive + self.primitive_resumed)
    }
}

/// The function of this name.
fn times(ended: &Ended, name: &str) -> Times {
    let function = functions(ended).into_iter().find(|function| function["name"] == name);
    assert!(function.is_some(), "no {name}: {}", ended.report);
    Times::read(function.unwrap())
}

/// There is no warning for the user.
fn assert_quiet(ended: &Ended, python: &PythonBuild) {
    assert_eq!(ended.report["warnings"], json!([]), "{python}: {}", ended.run.stderr);
}

/// The counter's rate is known, and the program's clock is corrected, to better than this: a thousandth.
fn a_little_less(ns: u64) -> u64 {
    ns - ns / 1000
}

fn a_little_more(ns: u64) -> u64 {
    ns + ns / 1000
}

#[test]
fn calls_and_primitive_calls_are_those_of_cprofile() {
    on_each(|python| {
        let mut service = start_timed(python);
        for (targets, is_all) in [
            (ALL, true),
            ("*timed.py:direct\n*timed.py:odd\n*timed.py:nested\n", false),
            ("*timed.py:waiting\n*timed.py:raising\n*timed.py:Thing.*\n", false),
        ] {
            let session = attach(&service, targets, &TIMES);
            let profile = said(&mut service, "timed.profiled(timed.everything)", "profile");
            let ended = session.stop().unwrap();
            assert_quiet(&ended, python);
            let mut compared = 0;
            for entry in profile.as_array().unwrap() {
                let [name, line, calls, primitive] = [0, 1, 2, 3].map(|at| &entry[at]);
                let found = functions(&ended).into_iter().find(|function| {
                    let of_report = function["name"].as_str().unwrap();
                    let last = of_report.rsplit('.').next().unwrap();
                    last == name.as_str().unwrap() && function["line"] == *line
                });
                assert!(found.is_some() || !is_all, "{python}: {entry}: {}", ended.report);
                let Some(found) = found else { continue };
                let counted = Times::read(found).as_in_a_profile();
                let expected = (calls.as_u64().unwrap(), primitive.as_u64().unwrap());
                assert_eq!(counted, expected, "{python} {targets}: {entry}: {found}");
                compared += 1;
            }
            assert!(compared >= if is_all { 19 } else { 3 }, "{python} {targets}: {profile}");
            let own: u64 = functions(&ended).iter().map(|function| Times::read(function).own).sum();
            let whole = ended.report["duration_ns"].as_u64().unwrap();
            assert!(own <= whole, "{python} {targets}: {own} of {whole}");
        }
    });
}

#[test]
fn without_times_nothing_is_timed() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, ALL, &["--delay", "0"]);
        if python.minor() >= (3, 12) {
            let events = "[e for i in range(6) if sys.monitoring.get_tool(i) for e in \
                          [sys.monitoring.get_events(i)]]";
            assert_eq!(said(&mut service, events, "events"), json!([1]), "{python}: PY_START alone");
        }
        service.ask("timed.everything()").unwrap();
        let ended = session.stop().unwrap();
        for key in ["own_ns", "cumulative_ns", "primitive_calls", "resumed"] {
            assert!(functions(&ended).iter().all(|function| function.get(key).is_none()), "{python}: {key}");
        }
        assert!(!ended.run.stderr.contains("cumulative"), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn times_are_within_what_the_program_measures() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, ALL, &TIMES);
        let above = measured(&mut service, &format!("timed.above, {SPUN}"));
        let recursing = measured(&mut service, &format!("timed.recursing, 3, {SPUN}"));
        let suspended = measured(&mut service, &format!("timed.suspended, 4, {SPUN}"));
        let ended = session.stop().unwrap();
        assert_quiet(&ended, python);
        let of = |name| times(&ended, name);

        let (spinning, caller) = (of("spinning"), of("above"));
        assert_eq!((spinning.calls, spinning.own), (6, spinning.cumulative), "{python}: a leaf");
        assert!(spinning.own >= a_little_less(6 * SPUN), "{python}: {}", spinning.own);
        assert!(spinning.own <= a_little_more(above + recursing), "{python}: {}", spinning.own);
        assert!(caller.cumulative >= a_little_less(2 * SPUN), "{python}: {}", caller.cumulative);
        assert!(caller.cumulative <= a_little_more(above), "{python}: {} {above}", caller.cumulative);
        assert!(caller.own + a_little_less(2 * SPUN) <= caller.cumulative, "{python}: {}", caller.own);

        // Of the recursion the outermost call alone.
        let recursion = of("recursing");
        assert_eq!((recursion.calls, recursion.primitive), (4, 1), "{python}");
        assert!(recursion.cumulative >= a_little_less(4 * SPUN), "{python}: {}", recursion.cumulative);
        assert!(recursion.cumulative <= a_little_more(recursing), "{python}: {}", recursion.cumulative);

        // The generator's time is not that in which it is suspended: twice as much, four times.
        let (generator, user) = (of("spinning_generator"), of("suspended"));
        assert_eq!((generator.calls, generator.resumed), (1, 4), "{python}");
        assert!(generator.cumulative >= a_little_less(4 * SPUN), "{python}: {}", generator.cumulative);
        let most = a_little_more(suspended - 8 * SPUN);
        assert!(generator.cumulative <= most, "{python}: {} of {suspended}", generator.cumulative);
        assert!(user.own >= a_little_less(8 * SPUN), "{python}: {}", user.own);
        assert!(user.own + generator.own <= user.cumulative, "{python}");
        assert!(user.cumulative <= a_little_more(suspended), "{python}: {}", user.cumulative);
    });
}

#[test]
fn own_time_is_without_that_of_selected_functions_alone() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, "*timed.py:above\n", &TIMES);
        let above = measured(&mut service, &format!("timed.above, {SPUN}"));
        let caller = times(&session.stop().unwrap(), "above");
        assert_eq!(caller.own, caller.cumulative, "{python}: what it calls is not timed");
        let within = a_little_less(2 * SPUN)..=a_little_more(above);
        assert!(within.contains(&caller.own), "{python}: {} of {within:?}", caller.own);
    });
}

#[test]
fn each_thread_has_calls_of_its_own() {
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, ALL, &TIMES);
        let direct = measured(&mut service, "timed.in_threads, 16, timed.direct, 50");
        let whole = measured(&mut service, &format!("timed.in_threads, 4, timed.spinning, {SPUN}"));
        let ended = session.stop().unwrap();
        assert_quiet(&ended, python);
        let recursion = times(&ended, "direct");
        assert_eq!((recursion.calls, recursion.primitive), (16 * 51, 16), "{python}");
        assert!(recursion.own <= recursion.cumulative, "{python}");
        assert!(recursion.cumulative <= 16 * a_little_more(direct), "{python}: {}", recursion.cumulative);
        let spinning = times(&ended, "spinning");
        assert_eq!((spinning.calls, spinning.primitive), (4, 4), "{python}");
        let within = a_little_less(4 * SPUN)..=4 * a_little_more(whole);
        assert!(within.contains(&spinning.own), "{python}: {} of {within:?}", spinning.own);
    });
}

#[test]
fn delays_are_part_of_the_function() {
    const DELAYED: &str = "*timed.py:leaf delay=5ms\n*timed.py:* delay=0\n";
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, DELAYED, &TIMES);
        let whole = measured(&mut service, "timed.catching");
        let ended = session.stop().unwrap();
        assert_quiet(&ended, python);
        let (leaf, caller) = (times(&ended, "leaf"), times(&ended, "catching"));
        assert_eq!(ended.counts(0), (1, 1), "{python}");
        assert!(leaf.own >= a_little_less(5_000_000), "{python}: {}", leaf.own);
        assert!(caller.own + a_little_less(5_000_000) <= caller.cumulative, "{python}: {}", caller.own);
        assert!(caller.cumulative <= a_little_more(whole), "{python}: {} of {whole}", caller.cumulative);
    });
}

#[test]
fn delays_are_as_exact_where_calls_are_timed() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let attach = |service: &mut Service, delay: &str| {
            let flags = ["--entry", "helper", "--times", "--delay", delay];
            Attached::start(service.pid(), "*/exact.py:worked\n", &flags)
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        subject.short().unwrap().assert_exact(&format!("{python}, a short delay"));
        subject.long(2_000_000).unwrap().assert_exact(&format!("{python}, a long delay"));
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn calls_in_progress_when_a_session_begins_or_ends_are_left_out() {
    const WAIT: &str = "import threading; \
                        LOCK = threading.Lock(); \
                        LOCK.acquire(); \
                        GENERATOR = timed.numbers(3); \
                        next(GENERATOR); \
                        WAITING = threading.Thread(target=timed.calling, args=(LOCK.acquire,)); \
                        WAITING.start()";
    on_each(|python| {
        let mut service = start_timed(python);
        service.ask(WAIT).unwrap();
        let session = attach(&service, ALL, &TIMES);
        service.ask("timed.leaf(); LOCK.release(); WAITING.join(); next(GENERATOR)").unwrap();
        let ended = session.stop().unwrap();
        assert_quiet(&ended, python);
        let calling = times(&ended, "calling");
        assert_eq!((calling.calls, calling.own, calling.cumulative), (0, 0, 0), "{python}: began before");
        let generator = times(&ended, "numbers");
        assert_eq!((generator.calls, generator.resumed), (0, 1), "{python}: went on");
        assert!(generator.own > 0, "{python}");
        assert_eq!(times(&ended, "leaf").calls, 2, "{python}");

        let session = attach(&service, ALL, &TIMES);
        service.ask(WAIT).unwrap();
        let ended = session.stop().unwrap();
        assert_quiet(&ended, python);
        let calling = times(&ended, "calling");
        assert_eq!((calling.calls, calling.primitive, calling.own), (1, 1, 0), "{python}: not over");
        assert_eq!(tools(python, &mut service), [Value::Null; 0], "{python}");

        // Calls in progress then do not affect the next session.
        let session = attach(&service, ALL, &TIMES);
        service.ask("LOCK.release(); WAITING.join(); timed.direct(20)").unwrap();
        let ended = session.stop().unwrap();
        assert_quiet(&ended, python);
        assert_eq!(times(&ended, "calling").own, 0, "{python}");
        let direct = times(&ended, "direct");
        assert_eq!((direct.calls, direct.primitive), (21, 1), "{python}");
    });
}

#[test]
fn calls_beyond_the_depth_are_left_out_and_told_of() {
    const DEEP: &str = "import sys, threading; \
                        sys.setrecursionlimit(8000); \
                        BEFORE = threading.stack_size(1 << 29); \
                        timed.in_threads(1, timed.direct, 3000); \
                        threading.stack_size(BEFORE); \
                        timed.direct(10)";
    on_each(|python| {
        let mut service = start_timed(python);
        let session = attach(&service, ALL, &TIMES);
        service.ask(DEEP).unwrap();
        let ended = session.stop().unwrap();
        let direct = times(&ended, "direct");
        assert_eq!(direct.calls, 3012, "{python}");
        assert!(direct.own <= direct.cumulative, "{python}");
        // Beyond them is nothing that is known.
        let said = format!("{}", ended.report["warnings"]);
        assert!(
            said.contains("calls are left out: they were nested more than 2048 deep"),
            "{python}: {said}"
        );
    });
}

#[test]
fn a_forked_child_has_times_of_its_own() {
    const FORK: &str = "\
import os
from time import perf_counter_ns
BEGAN = perf_counter_ns()
CHILD = timed.forking(10_000_000)
FORKED = perf_counter_ns() - BEGAN
if CHILD == 0:
    os._exit(0)
assert os.waitpid(CHILD, 0)[1] == 0";
    on_each(|python| {
        for (flags, in_child) in [(&TIMES[..], 1), (&["--times", "--delay", "0", "--no-children"], 0)] {
            let mut service = start_timed(python);
            let session = attach(&service, ALL, flags);
            let text = serde_json::to_string(FORK).unwrap();
            service.ask(&format!("exec({text}, globals())")).unwrap();
            let forked = said(&mut service, "FORKED", "forked").as_u64().unwrap();
            let ended = session.stop().unwrap();
            assert_quiet(&ended, python);
            // In the child it returns 10 ms later. That call is the parent's.
            let forking = times(&ended, "forking");
            assert_eq!(forking.calls, 1, "{python}");
            assert!(forking.cumulative <= a_little_more(forked), "{python}: {}", forking.cumulative);
            let spinning = times(&ended, "spinning");
            assert_eq!((spinning.calls, spinning.primitive), (in_child, in_child), "{python}");
            assert!(spinning.own >= in_child * a_little_less(SPUN), "{python}: {}", spinning.own);
        }
    });
}

#[test]
fn snapshots_of_the_agent_have_times() {
    on_each(|python| {
        let mut service = start_timed(python);
        let mut agent = Agent::start().unwrap();
        let prepare = json!({
            "do": "prepare", "pids": [service.pid()], "targets": ["*timed.py:direct"], "times": true
        });
        agent.ask(&prepare).unwrap();
        agent.ask(&json!({"do": "start"})).unwrap();
        service.ask("timed.direct(9)").unwrap();
        let snapshot = agent.ask(&json!({"do": "snapshot"})).unwrap();
        let seen = Times::read(&snapshot["functions"][0]);
        assert_eq!((seen.calls, seen.primitive), (10, 1), "{python}: {snapshot}");
        assert!(seen.own > 0 && seen.own <= seen.cumulative, "{python}: {snapshot}");
        agent.ask(&json!({"do": "stop"})).unwrap();
    });
}

#[test]
fn where_calls_cannot_be_timed_is_told_at_the_start() {
    on_each(|python| {
        let service = start_timed(python);
        let refused = |flags: &[&str]| {
            let flags: Vec<&str> = TIMES.iter().chain(flags).copied().collect();
            format!("{:#}", Attached::start(service.pid(), ALL, &flags).unwrap_err())
        };
        for engine in ["bpf", "signal"] {
            let said = refused(&["--engine", engine]);
            let expected = format!("the engine `{engine}` cannot time calls of Python functions (--times)");
            assert!(said.contains(&expected), "{python}: {said}");
        }
        for flags in [&["--no-inject"][..], &["--entry", "perf-map"]] {
            let said = refused(flags);
            assert!(said.contains("are timed by the helper in the process (--times)"), "{python}: {said}");
        }
    });
}
