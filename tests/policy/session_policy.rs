//! When calls are delayed and when they are only counted: window, delay 0, flags and environment.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{Ended, command, obstacle},
    skip,
    tool::{Run, Running},
    wait::PATIENCE,
};

const HOT: &str = "native:*/service:hot\n";

fn start(threads: u32) -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap();
    (fixture, service)
}

/// A session of 100 calls, with these flags and environment variables.
fn hundred_calls(service: &mut Service, flags: &[&str], variables: &[(&str, &str)]) -> Ended {
    let set = |command: &mut Command| {
        command.envs(variables.iter().copied());
    };
    let session = Attached::start_with(service.pid(), HOT, flags, set).unwrap();
    service.ask("call hot 100").unwrap();
    session.stop().unwrap()
}

#[test]
fn a_delay_of_zero_counts_and_delays_nothing() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let ended = hundred_calls(&mut service, &["--delay", "0"], &[]);
    assert_eq!(ended.counts(0), (100, 0));
    assert_eq!((&ended.target(0)["requested_ns"], &ended.target(0)["delivered_ns"]), (&0.into(), &0.into()));
}

#[test]
fn before_the_window_calls_are_counted_and_not_delayed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let ended = hundred_calls(&mut service, &["--start-after", "1000s", "--duration", "1s"], &[]);
    assert_eq!(ended.counts(0), (100, 0));
}

#[test]
fn the_window_opens_and_closes_and_ends_the_session() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    // Workers call all the time: some calls come before the window and some in it.
    let (_fixture, service) = start(4);
    let flags = ["--start-after", "1s", "--duration", "1s", "--delay", "2us"];
    let ended = Attached::start(service.pid(), HOT, &flags).unwrap().finish().unwrap();
    let (calls, delayed) = ended.counts(0);
    assert!(delayed > 0 && delayed < calls, "{delayed} of {calls}");
    let requested = ended.target(0)["functions"][0]["requested_ns"].as_u64().unwrap();
    assert_eq!(requested, delayed * 2000);
    assert!(ended.run.stderr.contains("the window closed"), "{}", ended.run.stderr);
    assert!(service.quit().unwrap().success());
}

#[test]
fn frequency_counts_calls_inside_the_window_alone() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let ended = hundred_calls(&mut service, &["--start-after", "1000s", "--frequency", "7"], &[]);
    assert_eq!(ended.counts(0), (100, 0));
    assert_eq!(hundred_calls(&mut service, &["--frequency", "7"], &[]).counts(0), (100, 14));
    // Beyond every call: none is the Nth.
    assert_eq!(hundred_calls(&mut service, &["--frequency", "101"], &[]).counts(0), (100, 0));
    let most = u64::MAX.to_string();
    assert_eq!(hundred_calls(&mut service, &["--frequency", &most], &[]).counts(0), (100, 0));
}

#[test]
fn environment_variables_are_defaults_for_the_flags() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let variables = [("SPEED_BUMP_DELAY_NS", "3000"), ("SPEED_BUMP_FREQUENCY", "4")];
    let ended = hundred_calls(&mut service, &[], &variables);
    assert_eq!(ended.counts(0), (100, 25));
    assert_eq!((&ended.target(0)["requested_ns"], &ended.target(0)["frequency"]), (&3000.into(), &4.into()));

    let ended = hundred_calls(&mut service, &["--delay", "5us", "--frequency", "10"], &variables);
    assert_eq!(ended.counts(0), (100, 10));
    assert_eq!((&ended.target(0)["requested_ns"], &ended.target(0)["frequency"]), (&5000.into(), &10.into()));

    let ended = hundred_calls(&mut service, &[], &[("SPEED_BUMP_START_MS", "1000000")]);
    assert_eq!(ended.counts(0), (100, 0));
    let ended = hundred_calls(&mut service, &["--start-after", "0"], &[("SPEED_BUMP_START_MS", "1000000")]);
    assert_eq!(ended.counts(0), (100, 100));

    let duration = |command: &mut Command| {
        command.env("SPEED_BUMP_DURATION_MS", "50");
    };
    let session = Attached::start_with(service.pid(), HOT, &[], duration).unwrap();
    assert!(session.finish().unwrap().run.stderr.contains("the window closed"));
    // The flag's 0 is until stopped.
    let ended = hundred_calls(&mut service, &["--duration", "0"], &[("SPEED_BUMP_DURATION_MS", "1")]);
    assert!(ended.run.stderr.contains("stopped by SIGINT"), "{}", ended.run.stderr);
    assert_eq!(ended.counts(0).0, 100);
}

#[test]
fn a_variable_names_the_targets_file() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start(0);
    let (cold, broken) = (fixture.folder().join("cold.txt"), fixture.folder().join("no such file"));
    std::fs::write(&cold, "native:*/service:cold\n").unwrap();
    let attach = |flags: &[&str], variable: &std::path::Path| -> Run {
        let mut command = Command::new(speed_bump_testing::tool::path().unwrap());
        command.args(["--pid", &service.pid().to_string(), "--duration", "1ms", "--json", "-"]).args(flags);
        Running::start(command.env("SPEED_BUMP_TARGETS", variable)).unwrap().finish(PATIENCE).unwrap()
    };
    let run = attach(&[], &cold);
    assert!(run.status.success() && run.stdout.contains("native:*/service:cold"), "{}", run.stderr);
    let run = attach(&[], &broken);
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("no such file: no such targets file"), "{}", run.stderr);
    let run = attach(&["--targets", cold.to_str().unwrap()], &broken);
    assert!(run.status.success(), "{}", run.stderr);
}

#[test]
fn targets_come_from_the_command_line_or_from_standard_input() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start(0);
    let file = fixture.folder().join("targets from elsewhere.txt");
    std::fs::write(&file, "native:*/service:cold\n").unwrap();
    let attach = |flags: &[&str]| -> Run {
        let mut command = Command::new("sh");
        command.args(["-c", r#"file=$1; shift; exec "$@" < "$file""#, "sh"]).arg(&file);
        command.arg(speed_bump_testing::tool::path().unwrap());
        command.args(["-p", &service.pid().to_string(), "--duration", "1ms", "--json", "-"]).args(flags);
        // Both come before it.
        command.env("SPEED_BUMP_TARGETS", "/no such file");
        Running::start(&mut command).unwrap().finish(PATIENCE).unwrap()
    };
    let ids = |run: &Run| -> Vec<String> {
        assert!(run.status.success(), "{}", run.stderr);
        let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let targets = report["targets"].as_array().unwrap();
        targets.iter().map(|target| target["id"].as_str().unwrap().to_owned()).collect()
    };
    let run = attach(&["-t", "native:*/service:hot", "--target", "native:*/service:outer delay=2us"]);
    assert_eq!(ids(&run), ["native:*/service:hot", "native:*/service:outer"], "{}", run.stderr);
    let run = attach(&["--targets", "-"]);
    assert_eq!(ids(&run), ["native:*/service:cold"], "{}", run.stderr);
    let run = attach(&["-t", "native:*/service:hot", "-t", "nothing"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--target:2: `nothing`"), "{}", run.stderr);
}

#[test]
fn unacceptable_variables_are_refused_also_where_a_flag_overrides_them() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start(0);
    let all = ["--delay", "1us", "--frequency", "1", "--start-after", "0", "--duration", "1ms"];
    for (name, value, problem) in [
        ("SPEED_BUMP_DELAY_NS", "fast", "`fast` is not an integer"),
        ("SPEED_BUMP_DELAY_NS", "10us", "`10us` is not an integer"),
        ("SPEED_BUMP_DELAY_NS", "-1", "-1 is below the minimum 0"),
        ("SPEED_BUMP_DELAY_NS", "10000000001", "above the maximum"),
        ("SPEED_BUMP_FREQUENCY", "0", "0 is below the minimum 1"),
        ("SPEED_BUMP_FREQUENCY", "1.5", "`1.5` is not an integer"),
        ("SPEED_BUMP_START_MS", "-5", "-5 is below the minimum 0"),
        ("SPEED_BUMP_START_MS", "", "`` is not an integer"),
        ("SPEED_BUMP_DURATION_MS", "forever", "`forever` is not an integer"),
    ] {
        for flags in [&[][..], &all] {
            let mut command = command(fixture.folder(), service.pid(), HOT, flags).unwrap();
            let run = Running::start(command.env(name, value)).unwrap().finish(PATIENCE).unwrap();
            assert_eq!(run.status.code(), Some(2), "{name}={value}: {}", run.stderr);
            assert!(run.stderr.contains(&format!("{name}: ")), "{}", run.stderr);
            assert!(run.stderr.contains(problem), "{}", run.stderr);
        }
    }
}

#[test]
fn every_call_that_is_not_delayed_is_told_of_or_counted_as_left_out() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let ended = hundred_calls(&mut service, &["--start-after", "1000s", "-vv"], &[]);
    let why = format!("hot in process {} not delayed: outside the window", service.pid());
    let told = ended.run.stderr.lines().filter(|line| line.ends_with(&why)).count();
    let left_out: usize = ended
        .run
        .stderr
        .lines()
        .filter_map(|line| {
            line.strip_suffix(" more decisions like these")?.rsplit(' ').next()?.parse::<usize>().ok()
        })
        .sum();
    assert_eq!(told + left_out, 100, "{}", ended.run.stderr);
    assert!(told > 0 && left_out > 0, "{told} told, {left_out} left out");
}
