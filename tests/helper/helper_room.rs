//! How much there is room for: functions in the helper's block, and the block in the process's limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use speed_bump_testing::{PythonBuild, Service, pythons};
use speed_bump_tests::{
    calls::{counts, one_of_each_version, run, start},
    helper::{attach, one_by_one},
};

/// Loads so many functions from a file of their own, and calls each once when asked.
fn load(service: &mut Service, functions: u32) {
    let text = format!("'\\n'.join('def many%d(): pass' % i for i in range({functions}))");
    service.ask(&format!("SPACE = {{}}; exec(compile({text}, '<many>', 'exec'), SPACE)")).unwrap();
    service.ask("MANY = [f for name, f in SPACE.items() if name.startswith('many')]").unwrap();
}

/// The oldest and the newest: one with a frame hook, one with `sys.monitoring`.
fn both_ways() -> Vec<&'static PythonBuild> {
    let all = pythons();
    all.first().into_iter().chain(all.last().filter(|_| all.len() > 1)).collect()
}

#[test]
fn thirty_thousand_functions_are_counted_and_delayed() {
    const FUNCTIONS: u32 = 30_000;
    one_by_one(&both_ways(), |python| {
        let mut service = start(python, &[]);
        load(&mut service, FUNCTIONS);
        let session = attach(&service, "<many>:many*\n", &["--delay", "1us"]);
        service.ask("for f in MANY: f()").unwrap();
        let ended = session.stop().unwrap();
        let all = u64::from(FUNCTIONS);
        assert_eq!(ended.counts(0), (all, all), "{python}\n{}", ended.run.stderr);
        assert_eq!(counts(&ended, "many29999"), (1, 1), "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn functions_beyond_the_room_are_said_not_to_be_covered() {
    const FUNCTIONS: u32 = 20_000;
    /// Where BPF programs count.
    const ROOM: u64 = 16_384;
    one_by_one(&both_ways(), |python| {
        let mut service = start(python, &[]);
        load(&mut service, FUNCTIONS);
        let session = attach(&service, "<many>:many*\n", &["--engine", "bpf", "--delay", "1us"]);
        service.ask("for f in MANY: f()").unwrap();
        let ended = session.stop().unwrap();
        let (calls, delayed) = ended.counts(0);
        assert_eq!((calls, delayed), (ROOM, ROOM), "{python}\n{}", ended.run.stderr);
        let said = "those that came last are not covered, so they are neither counted nor delayed";
        assert!(ended.run.stderr.contains(said), "{python}\n{}", ended.run.stderr);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// Leaves a process so many KiB of what this line of its status counts, and no more.
fn leave(service: &Service, resource: Resource, line: &str, kibibytes: u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let taken = status.lines().find_map(|status| status.strip_prefix(line)).unwrap();
    let taken: u64 = taken.trim_end_matches("kB").trim().parse().unwrap();
    limit(service, resource, Some((taken + kibibytes) << 10));
}

fn limit(service: &Service, resource: Resource, current: Option<u64>) {
    let limit = Rlimit { current, ..getrlimit(resource) };
    prlimit(Pid::from_raw(service.pid()), resource, limit).unwrap();
}

#[test]
fn a_process_with_64_mib_of_address_space_left_is_covered() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = start(python, &[]);
        leave(&service, Resource::As, "VmSize:", 64 << 10);
        let session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
        service.ask("times(100, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (100, 100), "{python}\n{}", ended.run.stderr);
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn limits_that_leave_too_little_are_named() {
    let cases = [
        // What is refused before anything is done.
        (Resource::As, "VmSize:", 6 << 10, "6 MiB of address space left of its limit"),
        // What the helper finds when it wants a stack for its thread.
        (Resource::Data, "VmData:", 512, "of address space, of data or of locked memory (ulimit -v, -d, -l"),
    ];
    one_by_one(&both_ways(), |python| {
        for (resource, line, left, named) in cases {
            let mut service = start(python, &[]);
            leave(&service, resource, line, left);
            let refused = run(service.pid(), "*/calls.py:plain\n", &["--entry", "helper"]);
            assert!(!refused.status.success(), "{python}");
            assert!(refused.stderr.contains(named), "{python}: {}", refused.stderr);
            // So little is not enough for what the test asks for either.
            limit(&service, resource, getrlimit(resource).maximum);
            service.ask("times(3, plain, 1)").unwrap();
            assert!(service.quit().unwrap().success(), "{python}");
        }
    });
}
