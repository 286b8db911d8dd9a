//! Tests sampling with real processes.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use speed_bump_testing::side_by_side;

use super::{profile::ThreadSeen, *};
use crate::python::pythons;

const PROGRAM: &str = "
import threading, time

class Work:
    def often(self):
        end = time.perf_counter() + 0.03
        while time.perf_counter() < end:
            pass

    def seldom(self):
        end = time.perf_counter() + 0.01
        while time.perf_counter() < end:
            pass

def idle():
    threading.Event().wait()

def loop(work):
    while True:
        work.often()
        work.seldom()

threading.Thread(target=idle, daemon=True).start()
print('ready', flush=True)
loop(Work())
";

/// The layouts must lead to the stacks for every version on this machine.
#[test]
fn functions_of_every_python_are_seen_with_their_shares() {
    side_by_side::on_each(&pythons::from(3, 8), |python| {
        let running = python.start(&[], PROGRAM);
        let profile = sample(&[running.pid()], false, Duration::from_millis(1_500), || true).unwrap();
        let name = |short: &str| match python.minor() {
            ..=10 => short.to_owned(),
            _ => format!("Work.{short}"),
        };
        let of = |wanted: &str| profile.functions.iter().find(|of| of.name == wanted && of.line.is_some());
        let all = || format!("{python}: {profile:#?}");
        let (often, seldom) = (of(&name("often")), of(&name("seldom")));
        let (Some(often), Some(seldom)) = (often, seldom) else { unreachable!("{}", all()) };
        assert_eq!((often.file.to_str(), often.line), (Some("<string>"), Some(5)), "{}", all());
        // The true ratio is 3 to 1. The bounds leave room for a busy machine.
        let of_both = often.own as f64 / (often.own + seldom.own) as f64;
        assert!((0.5..0.95).contains(&of_both), "{of_both}: {}", all());
        assert!(profile.samples > 0 && profile.dropped * 4 < profile.samples, "{}", all());
        // Whenever a function is on a stack, its caller is there too. Samples also include waits.
        let caller = of("loop").unwrap();
        assert!(caller.anywhere >= often.own + seldom.own, "{}", all());
        assert!(caller.own < often.own, "{}", all());
        assert!(caller.depth < often.depth, "{}", all());
        let waits = of(if python.minor() <= 10 { "wait" } else { "Condition.wait" }).unwrap();
        assert!(waits.running.0 * 4 < often.running.0, "{}", all());
        assert_ne!(waits.threads.keys().next(), often.threads.keys().next(), "{}", all());
    });
}

const LOCKED: &str = "
import threading, time

lock = threading.Lock()
lock.acquire()
for _ in range(2):
    threading.Thread(target=lock.acquire, daemon=True).start()
print('ready', flush=True)
while True:
    time.sleep(0.01)
";

/// Two threads wait for one lock. Up to 3.12 they share a futex; from 3.13 on each thread has its own.
#[test]
fn threads_that_wait_for_one_lock_are_seen_to() {
    for python in pythons::from(3, 8).into_iter().filter(|python| python.minor() <= 12) {
        let running = python.start(&[], LOCKED);
        let profile = sample(&[running.pid()], false, Duration::from_millis(500), || true).unwrap();
        let interpreter = profile.interpreters.get(&running.pid()).unwrap();
        assert!(interpreter.has_gil, "{python}");
        let of_program = |seen: &&ThreadSeen| {
            seen.locks.iter().copied().filter(|lock| !interpreter.is_own_lock(*lock)).collect::<Vec<u64>>()
        };
        let waits: Vec<Vec<u64>> = profile.threads.values().map(|seen| of_program(&seen)).collect();
        let waiting: Vec<&Vec<u64>> = waits.iter().filter(|locks| !locks.is_empty()).collect();
        let [one, other] = waiting.as_slice() else { unreachable!("{python}: {profile:#?}") };
        assert_eq!(one, other, "{python}: {profile:#?}");
    }
}

/// If samples cost too much, they become less frequent.
#[test]
fn looks_that_cost_too_much_come_less_often() {
    let interval = Nanos(10_000_000);
    assert_eq!(paced(interval, 0.0), interval);
    assert_eq!(paced(interval, MAX_COST), interval);
    assert_eq!(paced(interval, 2.0 * MAX_COST), Nanos(20_000_000));
    assert_eq!(paced(interval, 1.0), SLOWEST);
    assert_eq!(paced(Nanos(50_000_000), 0.001), Nanos(50_000_000), "not more often again");
}

#[test]
fn samples_do_not_keep_step_with_the_service() {
    let (interval, mut random) = (Nanos(10_000_000), 88_172_645_463_325_252);
    let all: Vec<u64> = (0..1_000).map(|_| varied(interval, &mut random).0).collect();
    assert!(all.iter().all(|of| (7_500_000..12_500_000).contains(of)));
    let mean = all.iter().sum::<u64>() / 1_000;
    assert!((9_800_000..10_200_000).contains(&mean), "{mean}");
    assert!(varied(Nanos(0), &mut random).0 == 0);
}

const SLEEPS: &str = "
import time

def works():
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass

def sleeps():
    time.sleep(0.2)

print('ready', flush=True)
while True:
    works()
    sleeps()
";

/// For each stack, samples tell work from waits, and give what a thread waited for.
#[test]
fn work_is_told_from_waits_on_each_stack() {
    side_by_side::on_each(&pythons::from(3, 8), |python| {
        let running = python.start(&[], SLEEPS);
        let profile = sample(&[running.pid()], false, Duration::from_millis(1_500), || true).unwrap();
        let of = |name: &str| {
            let is_it = |stack: &&profile::StackSeen| {
                let leaf = stack.functions.first().and_then(|place| profile.functions.get(*place as usize));
                leaf.is_some_and(|of| of.name == name)
            };
            let stacks: Vec<_> = profile.stacks.iter().filter(is_it).collect();
            let works: u64 = stacks.iter().map(|stack| stack.works).sum();
            let slept: u64 = stacks.iter().filter_map(|stack| stack.waits.get("sleep")).sum();
            (works, slept)
        };
        let all = || format!("{python}: {profile:#?}");
        let (works, slept) = of("works");
        assert!(works > slept && works > 5, "{}", all());
        // A thread that has woken up may still wait for a processor.
        let (works, slept) = of("sleeps");
        assert!(slept > works && slept > 5, "{}", all());
        // The paths of the interpreter's files lead to its standard library.
        let interpreter = profile.interpreters.get(&running.pid()).unwrap();
        let has_os = interpreter.standard_library.iter().any(|folder| folder.join("os.py").exists());
        assert!(has_os, "{}", all());
    });
}

#[test]
fn what_is_not_there_cannot_be_sampled() {
    let error = sample(&[Pid::own()], false, Duration::from_millis(10), || true).unwrap_err();
    assert!(error.to_string().starts_with("none of the processes can be looked into: "), "{error}");
}
