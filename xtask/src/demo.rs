//! `cargo xtask demo`: what the tool is for, shown on a small web service in a minute.
//!
//! Whenever it ends, the service, its client and the tool end too: each stops when its owner here is dropped,
//! and the service also ends with its standard input.

mod conclusion;
mod load;
mod python;
mod stop;
mod sweep;

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Value, json};
use speed_bump_testing::{Agent, Service, places};

use crate::{release, root};
use conclusion::Waited;
use load::{Load, Throughput};
use python::Python;
use stop::Stop;

/// The hot function, which does not matter, and how often a request calls it (`CANDIDATES` in service.py).
const HOT: Function = Function { name: "score_candidate", calls: 8 };
/// The cold one, which does (`SECTIONS` in service.py).
const COLD: Function = Function { name: "render_section", calls: 5 };
/// The targets, in this order.
const FUNCTIONS: [Function; 2] = [HOT, COLD];
/// The delay of each call of either function.
const DELAY: &str = "1ms";
const DELAY_MS: f64 = 1.0;
const DELAY_NS: u64 = 1_000_000;
/// The service's device. It takes longer than all delayed calls of the hot function: 8 × (0.3 + 1) ms.
const DEVICE_MS: f64 = 20.0;

#[derive(Args)]
pub(crate) struct Options {
    /// Seconds to measure each throughput for.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Seconds that the sweep at the end may take; 0: none
    #[arg(long, default_value_t = 40)]
    sweep: u64,
}

/// A function of the service.
#[derive(Clone, Copy)]
struct Function {
    name: &'static str,
    calls: u32,
}

impl Function {
    fn target(self) -> String {
        format!("*/demo/service.py:{}", self.name)
    }

    /// How much slower a request would get if it waited for every call.
    fn added_ms(self) -> f64 {
        f64::from(self.calls) * DELAY_MS
    }
}

/// Runs the demo.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let tool = release::build()?;
    root::go_on_as_root(&tool)?;
    let python = Python::choose()?;
    let stop = Stop::on_signals()?;
    let shown = Stage::set(&python, tool).and_then(|stage| {
        let span = Duration::from_secs_f64(options.seconds.max(0.5));
        let result = stage.play(span, &stop).and_then(|()| stage.sweep(options.sweep, &stop));
        stage.clear();
        result
    });
    if stop.check().is_err() {
        println!("\nStopped early. Nothing runs any more.");
        return Ok(ExitCode::from(130));
    }
    shown.map(|()| ExitCode::SUCCESS)
}

/// The service and its client, running. Dropping it ends both.
struct Stage {
    load: Load,
    service: Service,
    python: String,
    tool: PathBuf,
}

impl Stage {
    fn set(python: &Python, tool: PathBuf) -> Result<Self> {
        let script = |name| places::root().join("demo").join(name);
        let mut command = python.command(&script("service.py"));
        // The service has a process group of its own, so that Ctrl-C reaches only us. We then end the service
        // in order.
        command.args(["--until-eof", "--device-ms", &DEVICE_MS.to_string()]).process_group(0);
        let service = Service::start(&mut command)?;
        let port = service.ready()["port"].as_u64().context("the service does not say its port")?;
        let load = Load::start(python.command(&script("load.py")), port)?;
        Ok(Self { load, service, python: python.name(), tool })
    }

    fn clear(self) {
        drop(self.load);
        drop(self.service);
    }

    fn play(&self, span: Duration, stop: &Stop) -> Result<()> {
        let pid = self.service.pid();
        println!(
            "\nA small web service runs as process {pid} ({}).\n\
             A request hands a job to a slow device ({DEVICE_MS} ms, like an accelerator or a database). \
             While the device\n\
             works, the service calls {}() {} times; when it has answered, {}() {} times.\n\
             A profiler shows {}() at the top, and {}() far below. Which one is worth\n\
             making faster? We make each *slower*, by {DELAY} a call, while the service runs, and look.\n",
            self.python, HOT.name, HOT.calls, COLD.name, COLD.calls, HOT.name, COLD.name,
        );
        println!("{:<44} {:>10} {:>12} {:>10}", "", "requests/s", "a request", "predicted");
        // The first requests open the connection and fill caches.
        stop.sleep(Duration::from_millis(500))?;

        let before = self.load.measure(span, stop)?;
        row("the service as it is", &before, None);

        // One session, in which delays change.
        let mut session = self.attach()?;
        let base = self.load.measure(span, stop)?;
        row("attached to both, delaying nothing", &base, None);

        let (hot, hot_delivered) = self.slowed(&mut session, HOT, span, stop)?;
        row(&format!("{}() + {DELAY}", HOT.name), &hot, Some(base.per_second()));

        let (cold, cold_delivered) = self.slowed(&mut session, COLD, span, stop)?;
        let predicted = 1000.0 / (1000.0 / base.per_second() + COLD.added_ms());
        row(&format!("{}() + {DELAY}", COLD.name), &cold, Some(predicted));
        session.ask(&json!({"do": "stop"}))?;

        let after = self.load.measure(span, stop)?;
        row("detached", &after, Some(before.per_second()));

        let without = [&before, &base, &after];
        let waited = [(HOT, &hot, hot_delivered), (COLD, &cold, cold_delivered)].map(
            |(function, delayed, delivered)| {
                (function, delivered, Waited::new(delivered.each_request_ms(function), delayed, &without))
            },
        );
        println!("\nThe requests waited for");
        for (function, delivered, waited) in waited {
            println!(
                "  {:>18} of the time added in {}() ({} calls, {:.3} ms each)",
                waited.in_per_cent(),
                function.name,
                delivered.calls,
                delivered.each_ms()
            );
        }
        for (function, _, waited) in waited {
            println!("{}", waited.says(function));
        }
        Ok(())
    }

    /// Tests all functions at once, and says goodbye.
    fn sweep(&self, seconds: u64, stop: &Stop) -> Result<()> {
        if seconds > 0 {
            println!("\nThe same for all functions of the service, by `sweep`, in {seconds} s at most:\n");
            let page = sweep::run(&self.tool, self.service.pid(), Duration::from_secs(seconds), stop)?;
            println!("The report, for a browser: {}", page.display());
        }
        println!(
            "\nWith a service of your own: sudo speed-bump-ebpf sweep --pid PID --html report.html\n\
             The service and the tool have been stopped."
        );
        if let Some(busy) = busy() {
            println!("Note: {busy}. Service and client waited for processors too, which spoils the numbers.");
        }
        Ok(())
    }

    /// Attaches to both functions, and delays nothing.
    fn attach(&self) -> Result<Agent> {
        let mut session = Agent::start_as(Command::new(&self.tool).process_group(0))?;
        let targets = FUNCTIONS.map(Function::target);
        let pids = [self.service.pid()];
        session.ask(&json!({"do": "prepare", "pids": pids, "targets": targets, "strict": true}))?;
        session.ask(&json!({"do": "start"}))?;
        Ok(session)
    }

    /// Measures with only this function's calls delayed; also returns the delays.
    fn slowed(
        &self,
        session: &mut Agent,
        function: Function,
        span: Duration,
        stop: &Stop,
    ) -> Result<(Throughput, Delivered)> {
        let dose = |(target, of): (usize, Function)| {
            let delay_ns = if of.name == function.name { DELAY_NS } else { 0 };
            json!({"target": target, "delay_ns": delay_ns})
        };
        let doses: Vec<Value> = FUNCTIONS.into_iter().enumerate().map(dose).collect();
        let before = delivered(session, function)?;
        session.ask(&json!({"do": "set", "doses": doses}))?;
        let throughput = self.load.measure(span, stop)?;
        let after = delivered(session, function)?;
        Ok((throughput, Delivered { calls: after.calls - before.calls, ms: after.ms - before.ms }))
    }
}

/// Delays of a function, as the tool counted them.
#[derive(Clone, Copy)]
struct Delivered {
    calls: f64,
    ms: f64,
}

impl Delivered {
    /// The delay of a call.
    fn each_ms(self) -> f64 {
        self.ms / self.calls.max(1.0)
    }

    /// How much slower a request would have got, if it had waited for each call.
    fn each_request_ms(self, function: Function) -> f64 {
        self.each_ms() * f64::from(function.calls)
    }
}

fn delivered(session: &mut Agent, function: Function) -> Result<Delivered> {
    let snapshot = session.ask(&json!({"do": "snapshot"}))?;
    let functions = snapshot["functions"].as_array().context("a snapshot without functions")?;
    let found = functions.iter().find(|seen| seen["name"] == function.name);
    let number = |key: &str| found.and_then(|found| found[key].as_f64()).unwrap_or(0.0);
    Ok(Delivered { calls: number("delayed"), ms: number("delivered_ns") / 1e6 })
}

/// Reports that other programs keep this machine busy: the demo itself does not even use one processor.
fn busy() -> Option<String> {
    let average = fs::read_to_string("/proc/loadavg").ok()?;
    let average: f64 = average.split_ascii_whitespace().next()?.parse().ok()?;
    let processors = thread::available_parallelism().ok()?;
    (average > processors.get() as f64)
        .then(|| format!("this machine is busy (load average {average} on {processors} processors)"))
}

fn row(what: &str, throughput: &Throughput, predicted: Option<f64>) {
    let predicted = predicted.map(|predicted| format!("{predicted:.1}/s")).unwrap_or_default();
    println!(
        "{what:<44} {:>10.1} {:>9.2} ms {predicted:>10}",
        throughput.per_second(),
        throughput.milliseconds_each()
    );
}
