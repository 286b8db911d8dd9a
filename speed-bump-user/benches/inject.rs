//! Measures how long an injection stops a thread, by what its program does, and how often a thread reaches a
//! safe point within the usual limit: `cargo xtask bench inject`.
//!
//! With the real helper, which is at work each time before it is sent away again. `fresh`: it is loaded;
//! `reused`: it lies in the process from an earlier session.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::control_block::{HelperCommand as Order, State, StubForm};
use speed_bump_linux::process::{Process, mapped_file::FileIdentity};
use speed_bump_session::{
    inject::{Injected, Limits, image::IMAGE, inject},
    python::{
        helper::{Block, Room, block::Contents},
        interpreter,
    },
    targets::{ParsedTargets, selector},
};
use speed_bump_testing::{PythonBuild, pythons};
use speed_bump_units::units::Pid;

/// Processes a program, each injected into once afresh and then again and again.
const PROCESSES: usize = 10;
const REUSES: usize = 4;

/// What the interpreters do: a name, and a script that prints a line when it is there.
const PROGRAMS: &[(&str, &str)] = &[
    ("idle", "import time\nprint(flush=True)\nwhile 1: time.sleep(1000)"),
    (
        "asyncio",
        "import asyncio\nasync def main():\n  print(flush=True)\n  while 1: await \
         asyncio.sleep(0.001)\nasyncio.run(main())",
    ),
    (
        "threaded server",
        "import threading, time, queue\nq = queue.Queue()\n\
         def worker():\n  while 1:\n    q.get()\n    sum(range(1000))\n\
         for _ in range(8): threading.Thread(target=worker, daemon=True).start()\n\
         print(flush=True)\nwhile 1:\n  q.put(1); time.sleep(0.001)",
    ),
    (
        "CPU-bound",
        "def f(n):\n  return n if n < 2 else f(n - 1) + f(n - 2)\nprint(flush=True)\nwhile 1: f(15)",
    ),
    (
        "hashing",
        "import hashlib\nb = bytes(1 << 20)\nprint(flush=True)\nwhile 1: hashlib.sha256(b).hexdigest()",
    ),
    ("regex", "import re\nprint(flush=True)\nwhile 1: re.match(r'(a?){18}a{18}', 'a' * 18)"),
    (
        "sorting",
        "import random\nl = [random.random() for _ in range(100000)]\nprint(flush=True)\nwhile 1: sorted(l)",
    ),
    ("compressing", "import zlib, os\nb = os.urandom(1 << 20)\nprint(flush=True)\nwhile 1: zlib.compress(b)"),
];

struct Running {
    child: Child,
    /// Kept open.
    _input: Option<ChildStdin>,
}

impl Running {
    fn start(python: &PythonBuild, script: &str) -> Self {
        let mut command: Command = python.interpreter();
        let mut child =
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let input = child.stdin.take();
        Self { child, _input: input }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interpreters(process: &Process) -> Vec<FileIdentity> {
    let is_python = |file: &&speed_bump_linux::process::MappedFile| {
        file.open(process).is_ok_and(|open| {
            interpreter::identify(open.file(), &file.path_in_process).is_ok_and(|found| found.is_some())
        })
    };
    process.mappings().unwrap().files.iter().filter(is_python).map(|file| file.identity).collect()
}

#[derive(Default)]
struct Measured {
    stopped: Vec<Duration>,
    whole: Vec<Duration>,
    steps: BTreeMap<usize, (&'static str, Vec<Duration>)>,
    tries: usize,
    failures: Vec<String>,
}

impl Measured {
    fn take(&mut self, whole: Duration, result: Result<&Injected, String>) {
        self.tries += 1;
        match result {
            Ok(injected) => {
                self.stopped.push(injected.stopped.into());
                self.whole.push(whole);
                for (position, (step, time)) in injected.steps.iter().enumerate() {
                    let entry = self.steps.entry(position).or_insert((step, Vec::new()));
                    entry.1.push((*time).into());
                }
            }
            Err(error) => self.failures.push(error),
        }
    }

    fn print(&mut self, program: &str, kind: &str) {
        let [stopped, whole] = [&mut self.stopped, &mut self.whole].map(|times| {
            times.sort_unstable();
            [50, 90, 100].map(|part| at(times, part))
        });
        let taken = self.stopped.len();
        println!(
            "{program:<16} {kind:<7} {stopped:>7.0?} us   {whole:>8.0?} us   {taken:>3} of {:<3}",
            self.tries
        );
        for error in self.failures.iter().take(2) {
            println!("    {error}");
        }
        let steps: Vec<_> = self
            .steps
            .values_mut()
            .map(|(step, times)| {
                times.sort_unstable();
                format!("{step} {:.0}", at(times, 50))
            })
            .collect();
        println!("    {}", steps.join(", "));
    }
}

/// Microseconds at this percentage of sorted times.
fn at(times: &[Duration], part: usize) -> f64 {
    let last = times.len().saturating_sub(1);
    times.get(last * part / 100).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// One session of a helper: in, at work, out.
fn session(process: &Process, files: &[FileIdentity], selector: &[u8], measured: &mut Measured) -> bool {
    let contents = Contents {
        room: Room::NAMED,
        selector,
        stub_form: StubForm::Nop,
        command: Order::Run,
        signals: &[],
        in_place: None,
    };
    let mut fill = |file: &File| contents.write(file);
    let start = Instant::now();
    let result = inject(process, &process.program().unwrap(), IMAGE, files, &mut fill, Limits::default());
    let whole = start.elapsed();
    measured.take(whole, result.as_ref().map_err(ToString::to_string));
    let Ok(injected) = result else { return false };
    let block = Block::new(injected.control, &contents).unwrap();
    let wait = |wanted: &[State]| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !block.report().unwrap().state.is_some_and(|state| wanted.contains(&state)) {
            assert!(Instant::now() < deadline, "the helper never came to {wanted:?}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    wait(&[State::Active, State::Failed]);
    block.command(Order::Leave).unwrap();
    wait(&[State::Left, State::Failed]);
    true
}

fn main() {
    let python =
        pythons::find().expect("Pythons that work").last().expect("this machine has no Python 3.8 or newer");
    let targets = ParsedTargets::parse("bench", b"*/nowhere.py:nothing\n", false).unwrap();
    let selector = selector::compile(&targets.decide(|_| false)).unwrap();
    println!("{python}; the thread stood still, and the whole call: median, 90 %, most; how often it worked");
    for (name, script) in PROGRAMS {
        let (mut fresh, mut reused) = (Measured::default(), Measured::default());
        for _ in 0..PROCESSES {
            let running = Running::start(python, script);
            let process = Process::open(Pid::new(running.child.id().cast_signed()).unwrap()).unwrap();
            let files = interpreters(&process);
            if session(&process, &files, &selector, &mut fresh) {
                for _ in 0..REUSES {
                    session(&process, &files, &selector, &mut reused);
                }
            }
        }
        fresh.print(name, "fresh");
        reused.print(name, "reused");
        std::io::stdout().flush().unwrap();
    }
}
