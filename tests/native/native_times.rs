//! `--times` of native functions: how often they were called, and for how long, however they are left.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, process::Command};

use serde_json::{Value, json};
use speed_bump_testing::{
    Agent, Attached, Fixture, Service, places,
    session::{Ended, obstacle, obstacle_to_long_spins},
    skip,
};
use speed_bump_tests::calls::{functions, list};

const TIMES: [&str; 3] = ["--times", "--delay", "0"];
const ALL: &str = "native:*/program:*\n";
/// What functions of the fixture are told to work for, in ns.
const SPUN: u64 = 3_000_000;

/// Less than that by a tenth: what the traps take is subtracted as it was measured, which is no more exact
/// than that for what takes a hundred microseconds.
fn nearly(ns: u64) -> u64 {
    ns - ns / 10
}

/// Why native functions are not timed here.
fn why_not() -> Option<&'static str> {
    obstacle()
        .or_else(|| obstacle_to_long_spins().map(|_| "before Linux 5.17 native functions are not timed"))
}

/// The fixture as different compilers' settings make it.
fn on_each(case: impl Fn(&Fixture, &mut Service, &str)) {
    for optimised in ["-O0", "-O2"] {
        let source = places::fixtures().join("timed.c");
        let fixture = Fixture::compile(&source, &[optimised, "-pthread"]).unwrap();
        let mut service = Service::start(&mut Command::new(fixture.program())).unwrap();
        case(&fixture, &mut service, optimised);
        assert!(service.quit().unwrap().success(), "{optimised}");
    }
}

/// Has the fixture make calls; returns their result, and what they took by its clock.
fn took(service: &mut Service, command: &str) -> (i64, u64) {
    let answer = service.ask(command).unwrap();
    (answer[0]["result"].as_i64().unwrap(), answer[0]["ns"].as_u64().unwrap())
}

/// What the report says of a function.
#[derive(Clone, Copy, Debug)]
struct Times {
    calls: u64,
    delayed: u64,
    primitive: u64,
    own: u64,
    cumulative: u64,
}

/// Of each function that is timed.
fn times(ended: &Ended) -> BTreeMap<String, Times> {
    let timed = functions(ended).into_iter().filter(|function| function.get("own_ns").is_some());
    let all: BTreeMap<String, Times> = timed
        .map(|function| {
            let number = |key: &str| function[key].as_u64().unwrap();
            let times = Times {
                calls: number("calls"),
                delayed: number("delayed"),
                primitive: number("primitive_calls"),
                own: number("own_ns"),
                cumulative: number("cumulative_ns"),
            };
            (function["name"].as_str().unwrap().to_owned(), times)
        })
        .collect();
    for (name, times) in &all {
        assert!(times.own <= times.cumulative, "{name}: {times:?}");
        assert!(times.primitive <= times.calls, "{name}: {times:?}");
    }
    all
}

/// How many calls are in no time, by the warnings.
fn unmatched(ended: &Ended) -> u64 {
    let warnings = ended.report["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
    let counts = warnings.filter_map(|text| {
        let rest = text.strip_prefix("the times of ")?;
        rest.contains("their end was not seen").then(|| rest.split(' ').next()?.parse::<u64>().ok())?
    });
    counts.sum()
}

#[test]
fn own_time_is_without_that_of_other_timed_functions() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        let (result, whole) = took(service, &format!("call above 5 {SPUN}"));
        let ended = session.stop().unwrap();
        assert_eq!(result, 7);
        let times = times(&ended);
        let (above, leaf) = (times["above"], times["leaf"]);
        assert_eq!([above.calls, above.primitive, leaf.calls, leaf.primitive], [1; 4], "{optimised}");
        assert!(leaf.own >= nearly(SPUN) && leaf.own <= leaf.cumulative, "{optimised}: {leaf:?}");
        assert!(above.own >= nearly(SPUN), "{optimised}: {above:?}");
        assert!(above.cumulative >= above.own + nearly(SPUN), "{optimised}: {above:?}");
        assert!(above.own + leaf.own <= whole, "{optimised}: {above:?} {leaf:?} of {whole}");
        assert!(above.cumulative <= whole, "{optimised}: {above:?} of {whole}");
        assert_eq!(unmatched(&ended), 0, "{optimised}: {}", ended.report["warnings"]);
    });
}

#[test]
fn what_a_function_calls_that_is_not_selected_is_its_own_time() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), "native:*/program:above\n", &TIMES).unwrap();
        let (_, whole) = took(service, &format!("call above 5 {SPUN}"));
        let ended = session.stop().unwrap();
        let above = times(&ended)["above"];
        assert_eq!(above.own, above.cumulative, "{optimised}");
        assert!((nearly(2 * SPUN)..=whole).contains(&above.own), "{optimised}: {above:?} of {whole}");
    });
}

#[test]
fn of_a_recursion_the_outermost_call_alone_is_cumulative() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        let (_, whole) = took(service, &format!("call recursing 4 {SPUN}"));
        took(service, "call even 9 0");
        let ended = session.stop().unwrap();
        let times = times(&ended);
        let recursing = times["recursing"];
        assert_eq!((recursing.calls, recursing.primitive), (5, 1), "{optimised}");
        assert!(recursing.own >= nearly(5 * SPUN), "{optimised}: {recursing:?}");
        assert!(recursing.cumulative <= whole, "{optimised}: {recursing:?} of {whole}");
        for name in ["even", "odd"] {
            assert_eq!((times[name].calls, times[name].primitive), (5, 1), "{optimised} {name}");
        }
        assert_eq!(unmatched(&ended), 0, "{optimised}: {}", ended.report["warnings"]);
    });
}

#[test]
fn a_function_is_timed_by_whichever_way_it_is_left() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        let mut whole = BTreeMap::new();
        let mut results = Vec::new();
        for name in ["ways", "chosen", "perhaps", "tail"] {
            for n in 0..9 {
                let (result, ns) = took(service, &format!("call {name} {n} 100000"));
                *whole.entry(name).or_insert(0) += ns;
                results.push(result);
            }
        }
        let ended = session.stop().unwrap();
        let expected = [
            [7, 8, 9, 9, 10, 10, 10, 10, 10],
            [100, 1, 6, 33, 44, 105, 66, 16, -1],
            [0, 1, 2, 3, 4, 5, 7, 8, 9],
            [11, 12, 13, 14, 15, 16, 17, 18, 19],
        ];
        assert_eq!(results, expected.concat(), "{optimised}");
        let times = times(&ended);
        for (name, whole) in whole {
            let of = times[name];
            assert_eq!((of.calls, of.primitive), (9, 9), "{optimised} {name}");
            assert!(of.cumulative <= whole, "{optimised} {name}: {of:?} of {whole}");
            let worked = if name == "perhaps" { 0 } else { nearly(100_000) };
            assert!(of.own >= worked, "{optimised} {name}: {of:?}");
        }
        // Where the compiler makes its call a jump, it is over before that begins.
        let tail = times["tail"];
        assert!(tail.own >= nearly(9 * 100_000), "{optimised}: {tail:?}");
        assert!(tail.cumulative >= tail.own, "{optimised}: {tail:?}");
        if optimised == "-O2" {
            assert_eq!(tail.own, tail.cumulative, "{optimised}: {tail:?}");
        } else {
            assert!(tail.cumulative >= tail.own + nearly(9 * 100_000), "{optimised}: {tail:?}");
        }
        assert_eq!(unmatched(&ended), 0, "{optimised}: {}", ended.report["warnings"]);
    });
}

#[test]
fn calls_that_longjmp_leaves_are_left_out_and_the_others_are_not() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        for _ in 0..10 {
            assert_eq!(took(service, "call jumping 3 100000").0, 4, "{optimised}");
        }
        let ended = session.stop().unwrap();
        let times = times(&ended);
        assert_eq!(times["jumps"].calls, 40, "{optimised}");
        assert_eq!((times["jumps"].own, times["jumps"].cumulative), (0, 0), "{optimised}");
        assert_eq!((times["jumping"].calls, times["jumping"].primitive), (10, 10), "{optimised}");
        assert_eq!(times["leaf"].calls, 50, "{optimised}");
        assert!(times["leaf"].own >= nearly(50 * 100_000), "{optimised}: {:?}", times["leaf"]);
        let jumping = times["jumping"];
        assert!(jumping.cumulative >= jumping.own + nearly(50 * 100_000), "{optimised}: {jumping:?}");
        assert_eq!(unmatched(&ended), 40, "{optimised}: {}", ended.report["warnings"]);
    });
}

#[test]
fn exceptions_pass_through_timed_functions() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    for optimised in ["-O0", "-O2"] {
        let source = places::fixtures().join("thrown.cc");
        let fixture = match Fixture::compile(&source, &[optimised, "-lstdc++"]) {
            Ok(fixture) => fixture,
            Err(error) if format!("{error:#}").contains("cc1plus") => {
                return skip!("there is no C++ compiler");
            }
            Err(error) => panic!("{error:#}"),
        };
        let mut service = Service::start(&mut Command::new(fixture.program())).unwrap();
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        let answer = service.ask("call 100 100000").unwrap();
        assert_eq!(answer[0]["result"], 50 + 2500, "{optimised}");
        let ended = session.stop().unwrap();
        let times = times(&ended);
        for name in ["throwing", "between", "leaf", "catching"] {
            assert_eq!((times[name].calls, times[name].primitive), (100, 100), "{optimised} {name}");
        }
        assert!(times["leaf"].own >= nearly(100 * 100_000), "{optimised}: {:?}", times["leaf"]);
        // Half of the calls of two functions.
        assert_eq!(unmatched(&ended), 100, "{optimised}: {}", ended.report["warnings"]);
        assert!(service.quit().unwrap().success(), "{optimised}");
    }
}

#[test]
fn threads_and_children_have_calls_of_their_own() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        let (_, whole) = took(service, "spread recursing 9 100000 32");
        took(service, "fork leaf 1 100000");
        let ended = session.stop().unwrap();
        let times = times(&ended);
        let (recursing, leaf) = (times["recursing"], times["leaf"]);
        assert_eq!((recursing.calls, recursing.primitive), (32 * 10, 32), "{optimised}");
        assert!(recursing.own >= nearly(32 * 10 * 100_000), "{optimised}: {recursing:?}");
        assert!(recursing.cumulative <= whole, "{optimised}: {recursing:?} of {whole}");
        // The child's first calls may come before it is covered.
        assert!((2..=201).contains(&leaf.calls) && leaf.primitive == leaf.calls, "{optimised}: {leaf:?}");
        assert!(leaf.own >= nearly(leaf.calls * 100_000), "{optimised}: {leaf:?}");
        assert_eq!(unmatched(&ended), 0, "{optimised}: {}", ended.report["warnings"]);
    });
}

#[test]
fn other_stacks_and_threads_that_end_within_do_no_harm() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), ALL, &TIMES).unwrap();
        for _ in 0..20 {
            assert_eq!(took(service, "call switching 10 100").0, 10, "{optimised}");
            assert_eq!(took(service, "call interrupted 10 100").0, 11, "{optimised}");
            assert_eq!(took(service, "call ending 5 100").0, 10, "{optimised}");
        }
        took(service, &format!("call above 5 {SPUN}"));
        let ended = session.stop().unwrap();
        let times = times(&ended);
        let calls = |name: &str| times[name].calls;
        assert_eq!([calls("interrupted"), calls("above")], [20, 201], "{optimised}");
        assert_eq!(calls("leaf"), 20 * (10 + 10 + 11 + 5) + 1, "{optimised}");
        assert!(times["above"].own >= nearly(SPUN), "{optimised}: {:?}", times["above"]);
    });
}

#[test]
fn a_delay_is_part_of_the_functions_time() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    const DELAYED: &str = "native:*/program:leaf delay=2ms frequency=2\nnative:*/program:above delay=0\n";
    on_each(|_, service, optimised| {
        let session = Attached::start(service.pid(), DELAYED, &["--times"]).unwrap();
        let mut whole = 0;
        for _ in 0..20 {
            whole += took(service, "call above 5 0").1;
        }
        let ended = session.stop().unwrap();
        let times = times(&ended);
        let (leaf, above) = (times["leaf"], times["above"]);
        assert_eq!(
            (leaf.calls, leaf.delayed),
            (20, 10),
            "{optimised}: {} {}",
            ended.report,
            ended.run.stderr
        );
        let delays = nearly(10 * 2_000_000);
        assert!(leaf.own >= delays, "{optimised}: {leaf:?}");
        assert!(above.cumulative >= above.own + delays, "{optimised}: {above:?}");
        assert!(above.cumulative <= whole, "{optimised}: {above:?} of {whole}");
    });
}

#[test]
fn delays_may_change_and_targets_come_and_go_while_calls_are_timed() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let mut agent = Agent::start().unwrap();
        let prepare = json!({
            "do": "prepare", "pids": [service.pid()], "targets": ["native:*/program:leaf"], "times": true,
            "delay_ns": 0
        });
        agent.ask(&prepare).unwrap();
        agent.ask(&json!({"do": "start"})).unwrap();
        // Calls and own time of a function, which has to be timed.
        let of = |agent: &mut Agent, name: &str| {
            let snapshot = agent.ask(&json!({"do": "snapshot"})).unwrap();
            let functions = snapshot["functions"].as_array().unwrap();
            let function = functions.iter().find(|function| function["name"] == name).cloned();
            let function = function.unwrap_or_default();
            assert_eq!(function["primitive_calls"], function["calls"], "{optimised}: {snapshot}");
            (function["calls"].as_u64().unwrap(), function["own_ns"].as_u64().unwrap())
        };
        took(service, &format!("call above 1 {SPUN}"));
        let (calls, own) = of(&mut agent, "leaf");
        assert!(calls == 1 && own >= nearly(SPUN), "{optimised}: {calls} {own}");
        let delay = json!({"target": 0, "delay_ns": 5_000_000});
        agent.ask(&json!({"do": "set", "doses": [delay]})).unwrap();
        took(service, "call above 1 0");
        let (calls, own) = of(&mut agent, "leaf");
        assert!(calls == 2 && own >= nearly(SPUN + 5_000_000), "{optimised}: {calls} {own}");
        agent.ask(&json!({"do": "change-targets", "add": ["native:*/program:above"]})).unwrap();
        took(service, &format!("call above 1 {SPUN}"));
        let (calls, own) = of(&mut agent, "above");
        assert!(calls == 1 && own >= nearly(SPUN), "{optimised}: {calls} {own}");
        agent.ask(&json!({"do": "stop"})).unwrap();
    });
}

#[test]
fn a_function_that_cannot_be_timed_is_told_of_and_counted() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    const TARGETS: &str = "native:*/program:through\nnative:*/program:pointed\nnative:*/program:leaf\n";
    on_each(|_, service, optimised| {
        let listed = list(service.pid(), TARGETS, &["--times", "--all"]);
        let session = Attached::start(service.pid(), TARGETS, &TIMES).unwrap();
        assert_eq!(took(service, "call through 5 0").0, 7, "{optimised}");
        let ended = session.stop().unwrap();
        assert_eq!([ended.counts(0), ended.counts(1)], [(1, 1), (1, 1)].map(|(calls, _)| (calls, 0)));
        // Where it is not optimised, the pointer is called and not jumped to.
        let told = "calls of through in ";
        let is_told =
            ended.run.stderr.contains(told) && listed.stdout.contains("calls are not timed: its jump at");
        let timed = times(&ended);
        assert_eq!(is_told, optimised == "-O2", "{}\n{}", ended.run.stderr, listed.stdout);
        assert_eq!(timed.contains_key("through"), optimised == "-O0", "{optimised}");
        assert_eq!(timed["pointed"].calls, 1, "{optimised}");
    });
}

#[test]
fn without_times_no_way_out_is_probed() {
    if let Some(why) = why_not() {
        return skip!("{why}");
    }
    on_each(|_, service, optimised| {
        let sites = |flags: &[&str]| {
            let session = Attached::start(service.pid(), "native:*/program:ways\n", flags).unwrap();
            let ended = session.stop().unwrap();
            let said = ended.run.stderr.lines().find(|line| line.contains("probe sites of process"));
            let number = said.unwrap().split("attached ").nth(1).unwrap().split(' ').next().unwrap();
            (number.parse::<u32>().unwrap(), ended)
        };
        let (plain, ended) = sites(&["--delay", "0"]);
        assert_eq!(plain, 1, "{optimised}: {}", ended.run.stderr);
        assert!(functions(&ended)[0].get("own_ns").is_none(), "{optimised}: {}", ended.report);
        let (timed, ended) = sites(&TIMES);
        assert!(timed > 1, "{optimised}: {timed} {}", ended.run.stderr);
    });
}
