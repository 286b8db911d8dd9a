//! The engine `signal`: the helper spins, in user mode, and no process dies or is disturbed by the signals.

#![allow(clippy::unwrap_used, clippy::panic)]

mod asked;

use std::{fs, path::Path, process::Command, time::Duration};

use asked::Asked;
use serde_json::Value;
use speed_bump_linux::kernel::KernelFacts;
use speed_bump_testing::{
    Attached, Fixture, Service, case_ran,
    exact::{self, Subject},
    pythons,
    session::{obstacle, obstacle_to_long_spins},
    skip, skip_case,
    tool::{self, Run, Running},
    wait::{PATIENCE, wait_until},
};
use speed_bump_tests::calls::{one_of_each_version, start};
use speed_bump_tests::helper::{
    GETPPID, attach, on_each, one_by_one, spins_end_with_their_sessions, threads,
};

/// The signal that a session takes first.
const FIRST: u32 = libc::SIGURG.cast_unsigned();
const SIGNAL: [&str; 2] = ["--engine", "signal"];

fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    SIGNAL.into_iter().chain(flags.iter().copied()).collect()
}

/// Runs statements that take several lines.
fn run(service: &mut Service, text: &str) -> Vec<Value> {
    let text = serde_json::to_string(text).unwrap();
    service.ask(&format!("exec({text}, globals())")).unwrap()
}

/// Signals that the process handles, but for those that the C library keeps for itself: the first thread
/// makes it handle them.
fn caught(service: &mut Service) -> u64 {
    const C_LIBRARYS: u64 = 0b11 << 31;
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & !C_LIBRARYS
}

/// What a target's report says of its calls: seen, delayed, missed.
fn counts(ended: &speed_bump_testing::session::Ended) -> [u64; 3] {
    ["calls", "delayed", "missed"].map(|name| ended.target(0)[name].as_u64().unwrap())
}

#[test]
fn the_helper_spins_for_the_program_and_gives_its_signal_back() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let before = caught(&mut service);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "2ms"]));
        assert_ne!(caught(&mut service) & (1 << (FIRST - 1)), 0, "{python}");
        service.ask("times(20, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [20, 20, 0], "{python}: {}", ended.run.stderr);
        assert_eq!(ended.target(0)["engine"], "signal", "{python}");
        assert_eq!(caught(&mut service), before, "{python}");
    });
}

/// Asserts that delays of the helper's are exact.
fn assert_exact(service: &mut Service, function: &str, targets: &str, entry: &[&str], what: &str) {
    let attach = |service: &mut Service, delay: &str| {
        let flags = [entry, &["--delay", delay]].concat();
        Attached::start(service.pid(), targets, &with(&flags))
    };
    let mut subject = Subject { service, function, attach };
    let short = subject.short_with_signal().unwrap();
    if short.is_none() {
        skip_case!(what, "a trap takes too long for a short delay with a signal");
    }
    for measured in short.into_iter().chain([subject.long(2_000_000).unwrap()]) {
        measured.assert_exact(what);
        assert_eq!(measured.ended.target(0)["engine"], "signal", "{what}");
        assert_eq!(counts(&measured.ended)[2], 0, "{what}: missed");
    }
    case_ran!();
}

#[test]
fn delays_of_native_functions_are_exact() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    assert_exact(&mut service, "worked", "native:*/program:worked\n", &[], "a native function");
    assert_exact(&mut service, "probed", "usdt:*/program:exact:point\n", &[], "a USDT probe");
    assert!(service.quit().unwrap().success());
}

#[test]
fn delays_of_python_functions_are_exact() {
    one_by_one(&one_of_each_version(pythons().iter()), |python| {
        let mut service = exact::start_python(python, &[]).unwrap();
        let entry = ["--entry", "helper"];
        assert_exact(&mut service, "worked", "*/exact.py:worked\n", &entry, &python.to_string());
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

/// Two native functions with these options, and a Python one, so that the helper is in.
fn natives(getppid: &str, getuid: &str) -> String {
    let getppid_target = GETPPID.trim_end();
    format!("{getppid_target}{getppid}\nnative:*/libc[-.]*:getuid{getuid}\n*calls.py:plain\n")
}

#[test]
fn long_delays_take_it_by_themselves_and_short_ones_do_not() {
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, &natives("", " delay=1us"), &["--delay", "1500us"]);
        service.ask("times(3, os.getppid); times(3, os.getuid)").unwrap();
        let ended = session.stop().unwrap();
        let engines = [0, 1, 2].map(|target| ended.target(target)["engine"].clone());
        assert_eq!(engines, ["signal", "bpf", "helper"], "{python}: {}", ended.run.stderr);
        assert_eq!((ended.counts(0), ended.counts(1)), ((3, 3), (3, 3)), "{python}");
        assert!(!ended.run.stderr.contains("spun in the kernel"), "{python}: {}", ended.run.stderr);
    });
}

#[test]
fn of_several_long_delays_the_longest_takes_it_by_itself() {
    if let Some(why) = obstacle_to_long_spins() {
        return skip!("{why}");
    }
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, &natives(" delay=2ms", " delay=3ms"), &["--delay", "1us"]);
        service.ask("times(3, os.getppid); times(4, os.getuid)").unwrap();
        let ended = session.stop().unwrap();
        let engines = [0, 1].map(|target| ended.target(target)["engine"].clone());
        assert_eq!(engines, ["bpf", "signal"], "{python}: {}", ended.run.stderr);
        assert_eq!((ended.counts(0), ended.counts(1)), ((3, 3), (4, 4)), "{python}");
        assert!(ended.report["warnings"].to_string().contains("delays of 2ms hold up"), "{}", ended.report);
    });
}

#[test]
fn a_program_that_takes_the_signal_for_itself_is_left_alone() {
    const TAKE: &str = "import signal; SEEN = []; signal.signal(signal.SIGURG, lambda *_: SEEN.append(1))";
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "200us"]));
        service.ask("times(5, plain, 1)").unwrap();
        run(&mut service, TAKE);
        let said = service.ask("times(7, plain, 1); say(seen=len(SEEN))").unwrap();
        assert_eq!(said[0]["seen"], 0, "{python}");
        run(&mut service, "signal.signal(signal.SIGURG, signal.SIG_DFL)");
        service.ask("times(9, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [21, 5, 16], "{python}: {}", ended.run.stderr);
        assert!(ended.run.stderr.contains("16 calls were not delayed"), "{}", ended.run.stderr);
        service.ask("times(3, plain, 1)").unwrap();
    });
}

#[test]
fn signals_in_use_are_not_chosen() {
    const USE: &str = "\
import signal; SEEN = []
signal.signal(signal.SIGURG, lambda *_: SEEN.append(1))
signal.signal(50, lambda *_: SEEN.append(1)); signal.signal(51, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [52])";
    on_each(|python| {
        let mut service = start(python, &[]);
        run(&mut service, USE);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "200us"]));
        assert_ne!(caught(&mut service) & (1 << 52), 0, "{python}: 53 is the first that is free");
        let said = service.ask("times(5, plain, 1); say(seen=len(SEEN))").unwrap();
        assert_eq!(said[0]["seen"], 0, "{python}");
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [5, 5, 0], "{python}: {}", ended.run.stderr);
        let said = service.ask("signal.raise_signal(50); say(seen=len(SEEN))").unwrap();
        assert_eq!(said[0]["seen"], 1, "{python}");
    });
}

#[test]
fn a_program_that_uses_all_signals_is_delayed_by_the_kernel_or_refused() {
    if let Some(why) = obstacle_to_long_spins() {
        return skip!("{why}");
    }
    const USE: &str =
        "import signal\nfor number in [signal.SIGURG, *range(36, 65)]: signal.signal(number, signal.SIG_IGN)";
    on_each(|python| {
        let mut service = start(python, &[]);
        run(&mut service, USE);
        let session = attach(&service, &natives("", ""), &["--delay", "2ms"]);
        service.ask("times(3, os.getppid)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(counts(&ended), [3, 3, 0], "{python}: {}", ended.run.stderr);
        assert_eq!(ended.target(0)["engine"], "bpf", "{python}");
        let refused = Attached::start(service.pid(), "*calls.py:plain\n", &with(&["--delay", "2ms"]));
        let said = format!("{:#}", refused.unwrap_err());
        assert!(said.contains("leave 0 of SIGURG and the real-time signals"), "{python}: {said}");
    });
}

#[test]
fn threads_that_block_the_signal_are_missed_and_live() {
    const BLOCK: &str = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])";
    const UNBLOCK: &str = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGURG])";
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "200us"]));
        run(&mut service, BLOCK);
        service.ask("times(6, plain, 1)").unwrap();
        run(&mut service, UNBLOCK);
        service.ask("times(4, plain, 1)").unwrap();
        assert_eq!(counts(&session.stop().unwrap()), [10, 4, 6], "{python}");
    });
}

#[test]
fn forked_children_are_signalled_from_their_first_call_on() {
    if !KernelFacts::read().has_uprobe_multi_pid() {
        return skip!("before Linux 6.10 a forked child is covered some milliseconds after the fork");
    }
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "200us"]));
        let text = "\
import os
for _ in range(5):
    child = os.fork()
    if child == 0:
        times(10, plain, 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0";
        run(&mut service, text);
        assert_eq!(counts(&session.stop().unwrap()), [50, 50, 0], "{python}");
    });
}

#[test]
fn a_spin_of_seconds_ends_with_the_session_and_with_us() {
    spins_end_with_their_sessions("signal");
}

/// A run of the tool that ends by itself.
fn finished(command: &mut Command) -> Run {
    Running::start(command).unwrap().finish(PATIENCE).unwrap()
}

/// A program of this folder's, unless it cannot be compiled here.
fn compile(name: &str, flags: &[&str]) -> Option<Fixture> {
    if let Some(why) = obstacle() {
        skip!("{why}");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/signal_engine").join(name);
    match Fixture::compile(&source, flags) {
        Ok(fixture) => Some(fixture),
        // A C library for static programs may not be there; all else is.
        Err(error) if flags.contains(&"-static") => {
            skip!("it cannot be linked: {error}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn no_wait_of_64_native_threads_is_interrupted() {
    let Some(fixture) = compile("threads.c", &["-O1", "-pthread"]) else { return };
    let mut program = Asked::start(fixture.program());
    let before = program.caught();
    let session =
        Attached::start(program.pid(), "native:*:work\n", &with(&["--delay", "100us", "-v"])).unwrap();
    // Where no other thread is found in time, the helper comes in by one that waits with a limit, and its
    // call fails.
    let [_, by_the_helper] = program.two_numbers();
    assert!(by_the_helper <= 1, "{by_the_helper} waits were interrupted when the helper came in");
    let [before_these, _] = program.two_numbers();
    wait_until("a thousand calls", || Ok(program.two_numbers()[0] >= before_these + 1000)).unwrap();
    let ended = session.stop().unwrap();
    let [calls, delayed, missed] = counts(&ended);
    // Calls while it detaches are counted and not delayed.
    assert!(delayed >= 1000 && delayed <= calls, "{}", ended.run.stderr);
    assert_eq!(missed, 0, "{}", ended.run.stderr);
    let [calls, interrupted] = program.two_numbers();
    assert_eq!(interrupted, by_the_helper, "waits of {calls} were interrupted");
    assert_eq!(program.caught(), before);
}

#[test]
fn several_delays_have_a_signal_each() {
    const BLOCK: &str = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [50])";
    on_each(|python| {
        let mut service = start(python, &[]);
        let before = caught(&mut service);
        let targets = "*calls.py:plain delay=200us\n*calls.py:other delay=300us\n";
        let session = attach(&service, targets, &SIGNAL);
        assert_eq!(caught(&mut service) & !before, 1 << (FIRST - 1) | 1 << (50 - 1), "{python}");
        service.ask("times(3, plain, 1); times(4, other, 1)").unwrap();
        run(&mut service, BLOCK);
        service.ask("times(5, plain, 1); times(6, other, 1)").unwrap();
        let ended = session.stop().unwrap();
        // The longest takes the first.
        assert_eq!((ended.counts(0), ended.counts(1)), ((8, 3), (10, 10)), "{python}: {}", ended.run.stderr);
        assert!(
            ended.report["warnings"].to_string().contains("delays of 200us use real"),
            "{}",
            ended.report
        );
        assert_eq!(caught(&mut service), before, "{python}");
    });
}

#[test]
fn signals_that_others_send_are_no_delays() {
    // Ten seconds each, if they were, which is beyond the patience of the test.
    const SEND: &str = "\
import signal, threading
for _ in range(10): signal.pthread_kill(threading.get_ident(), signal.SIGURG)
say(lives=1)";
    on_each(|python| {
        let mut service = start(python, &[]);
        let session = attach(&service, "*calls.py:plain\n", &with(&["--delay", "10s"]));
        assert_eq!(run(&mut service, SEND)[0]["lives"], 1, "{python}");
        assert_eq!(counts(&session.stop().unwrap()), [0, 0, 0], "{python}");
    });
}

/// The race that no look before sending can win: the signal is on its way when another thread gives up its
/// handler.
#[test]
fn a_handler_that_goes_while_the_signal_is_on_its_way_is_no_death() {
    const TIMES: usize = 20_000;
    let Some(fixture) = compile("resets.c", &["-O1", "-pthread"]) else { return };
    let mut program = Asked::start(fixture.program());
    let session = Attached::start(program.pid(), "native:*:work\n", &with(&["--delay", "30us"])).unwrap();
    program.say(&TIMES.to_string());
    assert_eq!(program.line(), format!("{TIMES} done"));
    assert!(program.is_running());
    let [_, delayed, missed] = counts(&session.stop().unwrap());
    assert!(delayed > 0 && missed > 0, "{delayed} calls were delayed and {missed} were missed");
}

#[test]
fn no_random_sequence_ends_in_a_death() {
    // More by hand: SPEED_BUMP_SEQUENCES=10000.
    let sequences: usize =
        std::env::var("SPEED_BUMP_SEQUENCES").ok().and_then(|count| count.parse().ok()).unwrap_or(400);
    let per_session = (sequences / 4).clamp(1, 100);
    let Some(fixture) = compile("sequences.c", &["-O1", "-pthread"]) else { return };
    let mut program = Asked::start(fixture.program());
    let mut delayed = 0;
    for round in 0..sequences.div_ceil(per_session) {
        let session = Attached::start(program.pid(), "native:*:work\n", &with(&["--delay", "60us"])).unwrap();
        program.say(&per_session.to_string());
        let done = format!("{per_session} done, 0 deaths");
        // Half of the sessions end in the middle, by one way or another.
        match round % 4 {
            0 => {
                std::thread::sleep(Duration::from_millis(100));
                delayed += counts(&session.stop().unwrap())[1];
                assert_eq!(program.line(), done, "round {round}");
            }
            1 => {
                std::thread::sleep(Duration::from_millis(100));
                session.kill().unwrap();
                assert_eq!(program.line(), done, "round {round}");
                wait_until("the helper has left", || Ok(threads(program.pid()) == 0)).unwrap();
            }
            _ => {
                assert_eq!(program.line(), done, "round {round}");
                delayed += counts(&session.stop().unwrap())[1];
            }
        }
        assert!(program.is_running(), "round {round}");
    }
    assert!(delayed > 0, "no call was delayed at all");
}

#[test]
fn a_program_that_executes_others_all_the_time_lives_under_run() {
    let Some(fixture) = compile("sequences.c", &["-O1", "-pthread"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let targets = folder.path().join("targets.txt");
    fs::write(&targets, "native:*:work\n").unwrap();
    let mut command = Command::new(tool::path().unwrap());
    let text =
        "i=0; while [ $i -lt 40 ]; do \"$0\" again $i || exit 9; i=$((i+1)); done; exec \"$0\" again 77";
    command.arg("run").arg("--targets").arg(&targets).args(SIGNAL).args(["--delay", "200us", "--"]);
    command.args(["sh", "-c", text]).arg(fixture.program());
    let run = finished(&mut command);
    assert!(run.status.success(), "{:?}\n{}", run.status, run.stderr);
    assert!(run.stderr.contains("work"), "{}", run.stderr);
}

#[test]
fn what_cannot_take_the_helper_is_refused() {
    let Some(fixture) = compile("threads.c", &["-O1", "-pthread", "-static"]) else { return };
    let program = Asked::start(fixture.program());
    let folder = tempfile::tempdir().unwrap();
    let flags = with(&["--delay", "1ms"]);
    let mut command =
        speed_bump_testing::session::command(folder.path(), program.pid(), "native:*:work\n", &flags)
            .unwrap();
    let run = finished(&mut command);
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    let why = "The engine `signal` needs the helper in the process: use `--engine bpf`";
    assert!(run.stderr.contains(why), "{}", run.stderr);
    let run = finished(command.arg("--no-inject"));
    assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
}
