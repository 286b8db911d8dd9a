//! A stand-in for the helper is injected into running interpreters, and they go on: each interpreter, and
//! each kind of program, in some pairing of the two.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use speed_bump_session::inject::Limits;
use speed_bump_testing::{PythonBuild, pythons, skip, wait::wait_for};

use crate::{program::Program, support};

/// What the interpreters do: a name, and a script that prints a line when it is there, and further lines as
/// it goes on.
const PROGRAMS: &[(&str, &str)] = &[
    ("sleeping", "import time\nwhile 1: print(flush=True); time.sleep(0.05)"),
    ("select", "import select\nwhile 1: print(flush=True); select.select([], [], [], 0.05)"),
    ("poll", "import select\np = select.poll()\nwhile 1: print(flush=True); p.poll(50)"),
    (
        "asyncio",
        "import asyncio\nasync def main():\n  while 1: print(flush=True); await \
         asyncio.sleep(0.05)\nasyncio.run(main())",
    ),
    (
        "lock",
        "import threading, time\nl = threading.Lock(); l.acquire()\n\
         def tick():\n  while 1: time.sleep(0.05); print(flush=True)\n\
         threading.Thread(target=tick, daemon=True).start()\nprint(flush=True); l.acquire()",
    ),
    (
        "join",
        "import threading, time\n\
         def tick():\n  while 1: time.sleep(0.05); print(flush=True)\n\
         t = threading.Thread(target=tick); t.start(); print(flush=True); t.join()",
    ),
    ("cpu", "def f(n):\n  return sum(i * i for i in range(n))\nwhile 1: print(flush=True); f(20000)"),
    ("calls", "def f(n):\n  return n if n < 2 else f(n - 1) + f(n - 2)\nwhile 1: print(flush=True); f(15)"),
    (
        "hashing",
        "import hashlib\nb = bytes(1 << 20)\nwhile 1: print(flush=True); hashlib.sha256(b).hexdigest()",
    ),
    ("regex", "import re\nwhile 1: print(flush=True); re.match(r'(a?){18}a{18}', 'a' * 18)"),
    (
        "threads",
        "import threading, time, queue\nq = queue.Queue()\n\
         def worker():\n  while 1:\n    q.get()\n    sum(range(1000))\n\
         for _ in range(8): threading.Thread(target=worker, daemon=True).start()\n\
         while 1:\n  print(flush=True); q.put(1); time.sleep(0.001)",
    ),
];

/// Injected so often: loaded once, and found again.
const ROUNDS: usize = 2;
/// So many at a time; most of them wait.
const WORKERS: usize = 4;

fn takes_it_and_goes_on(python: &PythonBuild, (name, script): (&str, &str)) {
    let program = Program::start(python, script);
    let process = &program.process;
    let before = support::traces(process);
    let interpreters = support::interpreters(process);
    for round in 0..ROUNDS {
        let injected = support::inject_known(process, support::image(), 0, Limits::default(), &interpreters)
            .unwrap_or_else(|error| panic!("{python}, {name}, round {round}: {error}"));
        assert_eq!(injected.fresh, round == 0, "{python}, {name}, round {round}");
        support::check_and_leave(process, &injected);
        program.prints().unwrap_or_else(|error| panic!("{python}, {name}, round {round}: {error}"));
    }
    wait_for("the descriptors to be as before", || {
        (support::traces(process).descriptors == before.descriptors).then_some(())
    })
    .unwrap();
    assert_eq!(support::traces(process).tracer, before.tracer);
}

#[test]
fn every_interpreter_takes_the_helper_and_every_program_goes_on() {
    let pythons = pythons();
    if pythons.is_empty() {
        return skip!("this machine has no Python 3.8 or newer");
    }
    support::image();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let pair = next.fetch_add(1, Ordering::Relaxed);
                    if pair >= pythons.len().max(PROGRAMS.len()) {
                        break;
                    }
                    let (python, program) = (&pythons[pair % pythons.len()], PROGRAMS[pair % PROGRAMS.len()]);
                    let work = std::panic::AssertUnwindSafe(|| takes_it_and_goes_on(python, program));
                    if std::panic::catch_unwind(work).is_err() {
                        failed.lock().unwrap().push(format!("{python}, {}", program.0));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "see above: {failed:#?}");
}
