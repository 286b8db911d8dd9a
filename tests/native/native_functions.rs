//! Native functions of a C service and its library: what is selected, and exact counts of calls and delays.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::json;
use speed_bump_testing::{
    Attached, Fixture, Service, case_ran,
    exact::{self, Subject},
    session::{obstacle, obstacle_to_frequency, obstacle_to_long_spins},
    skip, skip_case, tool,
    wait::wait_until,
};
use speed_bump_tests::helper::GETPPID;

fn start(threads: u32) -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap();
    (fixture, service)
}

#[test]
fn functions_of_the_executable_and_of_a_library_are_counted_exactly() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(0);
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_cold\nnative:*/service:inner\n";
    let session = Attached::start(service.pid(), targets, &["--delay", "1us"]).unwrap();
    service.ask("call hot 1000").unwrap();
    service.ask("call work_cold 7").unwrap();
    service.ask("call work_hot 5").unwrap();
    service.ask("call outer 20").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([0, 1, 2].map(|target| ended.counts(target)), [(1000, 1000), (7, 7), (40, 40)]);
    let hot = &ended.target(0)["functions"][0];
    assert_eq!(hot["name"], "hot");
    assert_eq!(hot["file"], json!(fixture.program()));
    assert_eq!(
        (&hot["calls"], &hot["delayed"], &hot["requested_ns"]),
        (&json!(1000), &json!(1000), &json!(1_000_000))
    );
    assert!(service.quit().unwrap().success());
}

#[test]
fn delays_are_exact() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    let attach = |service: &mut Service, delay: &str| {
        let flags = ["--engine", "bpf", "--delay", delay];
        Attached::start(service.pid(), "native:*/program:worked\n", &flags)
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
fn delays_are_as_exact_where_calls_are_timed() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    let attach = |service: &mut Service, delay: &str| {
        let flags = ["--engine", "bpf", "--times", "--delay", delay];
        Attached::start(service.pid(), "native:*/program:worked\n", &flags)
    };
    let mut subject = Subject { service: &mut service, function: "worked", attach };
    subject.long(1_000_000).unwrap().assert_exact("a long delay");
    assert!(service.quit().unwrap().success());
}

#[test]
fn calls_of_many_threads_are_counted_exactly() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_leaf frequency=7\n";
    let session = Attached::start(service.pid(), targets, &["--delay", "2us"]).unwrap();
    service.ask("spread hot 500 32").unwrap();
    service.ask("spread work_leaf 500 32").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([ended.counts(0), ended.counts(1)], [(16_000, 16_000), (16_000, 16_000 / 7)]);
}

#[test]
fn workers_that_run_before_during_and_after_are_counted_as_they_count_themselves() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(8);
    service.ask("pause").unwrap();
    let session =
        Attached::start(service.pid(), "native:*/service:hot\nnative:*/*:work_outer\n", &[]).unwrap();
    service.ask("reset").unwrap();
    service.ask("resume").unwrap();
    wait_until("the workers call", || Ok(service.function("hot")?.calls >= 1000)).unwrap();
    service.ask("pause").unwrap();
    let ended = session.stop().unwrap();
    for (target, name) in ["hot", "work_outer"].into_iter().enumerate() {
        let calls = service.function(name).unwrap().calls;
        assert_eq!(ended.counts(target), (calls, calls), "{name}: {}", ended.target(target));
    }
    service.ask("resume").unwrap();
    assert!(service.quit().unwrap().success());
}

#[test]
fn threads_that_preempt_one_another_in_delays_are_told_apart() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    // More of them than processors, and delays in which a preemptible kernel changes over to another one. The
    // targets ask for different things, so that a mixture of two calls shows.
    let (_fixture, mut service) = start(8);
    let targets = "native:*/service:hot delay=3ms\n\
                   native:*/service:leaf delay=2ms frequency=3\n\
                   native:*/*:work_outer delay=5ms\n";
    service.ask("pause").unwrap();
    let session = Attached::start(service.pid(), targets, &[]).unwrap();
    service.ask("reset").unwrap();
    service.ask("resume").unwrap();
    wait_until("the workers call", || Ok(service.function("hot")?.calls >= 400)).unwrap();
    service.ask("pause").unwrap();
    let ended = session.stop().unwrap();
    for (target, (name, frequency, delay_ns)) in
        [("hot", 1, 3_000_000), ("leaf", 3, 2_000_000), ("work_outer", 1, 5_000_000)].into_iter().enumerate()
    {
        let times = service.function(name).unwrap();
        let (calls, told) = (times.calls, ended.target(target));
        assert_eq!(ended.counts(target), (calls, calls / frequency), "{name}: {told}");
        let requested_ns = told["functions"][0]["requested_ns"].as_u64().unwrap();
        assert_eq!(requested_ns, calls / frequency * delay_ns, "{name}: {told}");
        if frequency == 1 {
            exact::delivered(told, times.total_ns);
        }
    }
    assert!(service.quit().unwrap().success());
}

#[test]
fn aliases_are_one_function_with_all_its_names() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(0);
    let session =
        Attached::start(service.pid(), "native:*/service:aliased*\nnative:*:work_aliased_too\n", &[])
            .unwrap();
    service.ask("call aliased 5").unwrap();
    service.ask("call aliased_too 7").unwrap();
    service.ask("call work_aliased 2").unwrap();
    service.ask("call work_aliased_too 4").unwrap();
    let file = fixture.folder().join("aliases.txt");
    std::fs::write(&file, "native:*/service:aliased*\n").unwrap();
    let pid = service.pid().to_string();
    let listed = tool::run(
        &["list", "--pid", &pid, "--targets", file.to_str().unwrap()],
        speed_bump_testing::wait::PATIENCE,
    );
    let ended = session.stop().unwrap();
    assert_eq!([ended.counts(0), ended.counts(1)], [(12, 12), (6, 6)]);
    assert_eq!(ended.target(0)["functions"].as_array().unwrap().len(), 1);
    let listed = listed.unwrap();
    assert!(listed.status.success(), "{}", listed.stderr);
    let names = ["  aliased (", "also called aliased_too"];
    assert!(names.iter().all(|name| listed.stdout.contains(name)), "{}", listed.stdout);
}

#[test]
fn a_function_that_is_single_stepped_has_a_cheaper_neighbour_named() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    // `leaf` adds and returns, which the kernel steps; `caller` saves registers first, and `both` calls
    // twice.
    let source = "#include <stdio.h>\n#define OWN __attribute__((noinline, noclone, noipa))\n\
        OWN static long leaf(long x) { return x * 3; }\n\
        OWN static long shared(long x) { return x * 5; }\n\
        OWN long caller(long x) { return leaf(x) + shared(x); }\n\
        OWN long other(long x) { return shared(x) + x; }\n\
        int main(void) { char byte; puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout);\n\
        while (fread(&byte, 1, 1, stdin)) { putchar((int)(caller(byte) + other(byte))); } return 0; }\n";
    let fixture = Fixture::compile_text(source, &["-O2"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let file = fixture.folder().join("targets.txt");
    std::fs::write(&file, "native:*/program:leaf\nnative:*/program:shared\n").unwrap();
    let (pid, file) = (service.pid().to_string(), file.to_str().unwrap());
    let listed =
        tool::run(&["list", "--pid", &pid, "--targets", file], speed_bump_testing::wait::PATIENCE).unwrap();
    assert!(listed.status.success(), "{}", listed.stderr);
    let (of_leaf, of_shared) = listed.stdout.split_once("line 2").unwrap();
    assert!(of_leaf.contains("varying by microseconds"), "{of_leaf}");
    let advice = "`caller` is the only function of this file that calls it directly";
    assert!(of_leaf.contains(advice), "{of_leaf}");
    assert!(of_shared.contains("varying by microseconds"), "{of_shared}");
    assert!(!of_shared.contains("the only function"), "{of_shared}");
}

#[test]
fn frequency_counts_per_target_over_its_functions() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let targets = "native:*/service:hot frequency=3\n\
                   native:*/service:[cl][oe][al][df] frequency=10 id=several\n\
                   native:*/libwork.so:work_hot\n";
    let session = Attached::start(service.pid(), targets, &["--frequency", "4"]).unwrap();
    service.ask("call hot 100").unwrap();
    // Two functions of one target: every tenth call of either.
    service.ask("call cold 25").unwrap();
    service.ask("call leaf 25").unwrap();
    service.ask("call work_hot 99").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!([0, 1, 2].map(|target| ended.counts(target)), [(100, 33), (50, 5), (99, 24)]);
    assert_eq!(
        [0, 1, 2].map(|target| ended.target(target)["frequency"].clone()),
        [3, 10, 4].map(|n| json!(n))
    );
    assert_eq!(ended.target(1)["id"], "several");
}

#[test]
fn options_of_a_line_win_over_the_flags() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    let (fixture, mut service) = start(0);
    let library = fixture.library();
    let targets = format!(
        "native:*/service:hot delay=30us id=the-hot-one\n{}:work_hot 10000\nnative:*/service:cold\n",
        library.display()
    );
    let session = Attached::start(service.pid(), &targets, &["--delay", "20us"]).unwrap();
    for name in ["hot", "work_hot", "cold"] {
        service.ask(&format!("call {name} 100")).unwrap();
    }
    let ended = session.stop().unwrap();
    assert_eq!([0, 1, 2].map(|target| ended.counts(target)), [(100, 100); 3]);
    let requested = |target| ended.target(target)["requested_ns"].as_u64().unwrap();
    assert_eq!([requested(0), requested(1), requested(2)], [30_000, 10_000, 20_000]);
    let sums = |target| ended.target(target)["functions"][0]["requested_ns"].as_u64().unwrap();
    assert_eq!([sums(0), sums(1), sums(2)], [3_000_000, 1_000_000, 2_000_000]);
    for (target, name) in ["hot", "work_hot", "cold"].into_iter().enumerate() {
        exact::delivered(ended.target(target), service.function(name).unwrap().total_ns);
    }
    assert_eq!(ended.target(0)["id"], "the-hot-one");
    // The kernel module's own form: a path and a bare number of nanoseconds.
    assert_eq!(ended.target(1)["kind"], "native");
    assert_eq!(ended.target(1)["functions"][0]["file"], json!(library));
}

#[test]
fn the_first_line_wins_and_exclusions_win_over_all() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start(0);
    let targets = "native:*/libwork.so:work_hot\n\
                   native:*/libwork.so:work_*\n\
                   !*/libwork.so:*_cold\n\
                   native:*/libwork.so:work_outer\n";
    let session = Attached::start(service.pid(), targets, &[]).unwrap();
    service.ask("call work_hot 3").unwrap();
    service.ask("call work_cold 4").unwrap();
    service.ask("call work_outer 5").unwrap();
    service.ask("call work_leaf 6").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.functions(0), ["work_hot"]);
    assert_eq!(ended.functions(1), ["work_aliased", "work_inner", "work_leaf", "work_outer"]);
    assert_eq!(ended.functions(2), [""; 0]);
    // work_outer calls work_inner twice.
    assert_eq!([0, 1, 2].map(|target| ended.counts(target).0), [3, 5 + 10 + 6, 0]);
    assert_eq!(ended.report["targets"].as_array().unwrap().len(), 3);
}

#[test]
fn an_indirect_function_is_told_and_not_probed() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, service) = start(0);
    let file = fixture.folder().join("indirect.txt");
    std::fs::write(&file, "native:*/libc[-.]*:strlen\n").unwrap();
    let pid = service.pid().to_string();
    let arguments = ["--pid", &pid, "--targets", file.to_str().unwrap(), "--strict"];
    let run = tool::run(&arguments, speed_bump_testing::wait::PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    assert!(run.stderr.contains("strlen in /") && run.stderr.contains("is an IFUNC"), "{}", run.stderr);
    let listed = tool::run(
        &["list", arguments[0], &pid, arguments[2], arguments[3]],
        speed_bump_testing::wait::PATIENCE,
    );
    let listed = listed.unwrap();
    assert!(listed.status.success(), "{}", listed.stderr);
    assert!(
        listed.stdout.contains("selects 0 functions") && listed.stdout.contains("is an IFUNC"),
        "{}",
        listed.stdout
    );
}

#[test]
fn functions_of_libc_that_python_calls() {
    if let Some(why) = obstacle().or_else(obstacle_to_frequency) {
        return skip!("{why}");
    }
    let Some(python) = speed_bump_testing::pythons().first() else { return skip!("no Python") };
    // Answers as the fixtures do, so that it can be driven like them.
    let script = r#"
import json, os, sys
print(json.dumps({"event": "ready", "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        os.getppid()
    print('{"event":"done"}', flush=True)
"#;
    let mut service = Service::start(python.interpreter().args(["-c", script])).unwrap();
    let targets = format!("{} frequency=2\n", GETPPID.trim_end());
    let session = Attached::start(service.pid(), &targets, &[]).unwrap();
    service.ask("1001").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (1001, 500));
    service.ask("3").unwrap();
}

#[test]
fn a_session_says_which_other_functions_are_the_same_code() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    // As a linker leaves it that folds functions with the same instructions.
    let source = "#include <stdio.h>\n#define OWN __attribute__((noipa))\n\
        volatile int sink;\n\
        OWN int twin_a(int x) { return sink = x + 1; }\n\
        int twin_b(int x) __attribute__((noipa, alias(\"twin_a\")));\n\
        OWN int alone(int x) { return x + 2; }\n\
        int main(void) { int times; puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout);\n\
        while (scanf(\"%d\", &times) == 1) { while (times-- > 0) { twin_a(1); twin_b(2); alone(3); }\n\
        puts(\"{\\\"event\\\":\\\"done\\\"}\"); fflush(stdout); } return 0; }\n";
    let fixture = Fixture::compile_text(source, &["-O1"]).unwrap();
    let mut service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let told = |service: &mut Service, targets: &str| {
        let session = Attached::start(service.pid(), targets, &[]).unwrap();
        service.ask("5").unwrap();
        let ended = session.stop().unwrap();
        (ended.counts(0).0, ended.report["warnings"].to_string())
    };
    let (calls, warnings) = told(&mut service, "native:*/program:twin_a\n");
    assert_eq!(calls, 10);
    assert!(
        warnings.contains("`twin_a` of ") && warnings.contains("is one code with `twin_b`"),
        "{warnings}"
    );
    // A user who asks for both knows that, and most functions are alone.
    for (targets, calls) in [("native:*/program:twin_*\n", 10), ("native:*/program:alone\n", 5)] {
        let (counted, warnings) = told(&mut service, targets);
        assert_eq!(counted, calls);
        assert!(!warnings.contains("is one code with"), "{warnings}");
    }
}
