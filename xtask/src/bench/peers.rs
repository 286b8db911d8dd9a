//! `cargo xtask bench peers`: what a call loses to this tool, and to other tools that could delay it.
//!
//! A program calls a function and measures it from inside. The peers take turns to slow the function, with
//! each [`Dose`] for a short slice; in between the same program is measured without a peer. The value of a
//! slice is its median, or rather the mean of its middle half. The first quartile of the slices counts, for
//! each dose and for those without a peer: on a virtual machine the processor may be half as fast for some
//! hundred milliseconds, whenever others use the other half of its core.
//!
//! - Python functions: the engine `helper`, the engine `bpf` through the helper's stub, and on 3.12 and newer
//!   a C extension that does what profilers with `sys.monitoring` do.
//! - Native functions: the engine `bpf`, Frida's Interceptor with a CModule, and a probe whose program does
//!   nothing, at the same site.

mod dose;
mod empty_uprobe;
mod frida;
mod lost;
mod ours;
mod subject;
mod sys_monitoring;
mod table;
mod times;

use std::{collections::BTreeSet, path::Path, process::ExitCode, thread, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;
use speed_bump_testing::{
    Service,
    pythons::{self, Form},
};

use super::{
    accuracy::load_average,
    neighbours::{Busy, Neighbours},
};
use dose::Dose;
use lost::{Base, Slice};
use subject::Subject;

#[derive(Args)]
pub(crate) struct Options {
    /// How often each peer is attached to each program.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Measure only programs whose name contains this, such as `3.12`.
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    busy: Busy,
}

/// Time from the attach to the first measured call: work that the tool and the kernel still do then takes
/// time from the program.
const SETTLE: Duration = Duration::from_millis(100);

/// Something that makes a function slower.
trait Peer {
    /// Its name in the table.
    fn name(&self) -> String;

    /// Attaches to the running program.
    fn begin(&mut self, service: &mut Service) -> Result<()>;

    /// Gives calls this dose from now on. `false`: it cannot do that.
    fn set(&mut self, service: &mut Service, dose: Dose) -> Result<bool>;

    /// Leaves the program as it was.
    fn end(&mut self, service: &mut Service) -> Result<()>;
}

/// Prints two tables for each program.
pub(super) fn run(tool: &Path, options: &Options) -> Result<ExitCode> {
    let _neighbours = Neighbours::start(options.busy)?;
    println!(
        "{} rounds of {} slices for each dose; times in ns, as the caller sees them",
        options.rounds,
        dose::PASSES
    );
    println!("load average at the start: {}", load_average());
    let mut missing = Vec::new();
    let mut measured = BTreeSet::new();
    for python in pythons::find()? {
        let is_wanted = python.form != Form::Container && python.to_string().contains(&options.only);
        // One of each version.
        if is_wanted && measured.insert((python.minor(), python.free_threaded)) {
            let subject = Subject::python(tool, python, &mut missing)?;
            measure(subject, options)?;
        }
    }
    if "native function".contains(&options.only) {
        measure(Subject::native(tool, &mut missing)?, options)?;
    }
    println!();
    for what in &missing {
        println!("not measured: {what}");
    }
    println!("load average at the end: {}", load_average());
    Ok(ExitCode::SUCCESS)
}

fn measure(subject: Subject, options: &Options) -> Result<()> {
    let Subject { name, mut service, mut peers, .. } = subject;
    let mut slices: Vec<Vec<(Dose, Slice)>> = peers.iter().map(|_| Vec::new()).collect();
    let mut unslowed = Vec::new();
    for _ in 0..options.rounds.max(1) {
        for (peer, slices) in peers.iter_mut().zip(&mut slices) {
            rest(&mut service, &mut unslowed)?;
            let round = round(peer.as_mut(), &mut service);
            slices.extend(round.with_context(|| format!("{name}: {}", peer.name()))?);
        }
    }
    rest(&mut service, &mut unslowed)?;
    let base = Base::from_slices(&unslowed);
    println!(
        "\n{name}: a call takes {:.0} ns, and {:.0} ns after {} ms of sleep",
        base.called,
        base.slept,
        dose::SLEEP_US / 1000
    );
    let rows: Vec<_> =
        peers.iter().zip(&slices).map(|(peer, slices)| (peer.name(), base.all_lost(slices))).collect();
    print!("{}{}", table::undelayed(&rows), table::delayed(&rows));
    Ok(())
}

/// The program without a peer.
fn rest(service: &mut Service, slices: &mut Vec<Slice>) -> Result<()> {
    thread::sleep(SETTLE);
    for _ in 0..dose::PASSES {
        slices.push(Slice::measure(service, dose::UNDELAYED_CALLS, dose::SLEPT_CALLS)?);
    }
    Ok(())
}

/// A round of one peer, with all doses.
fn round(peer: &mut dyn Peer, service: &mut Service) -> Result<Vec<(Dose, Slice)>> {
    peer.begin(service)?;
    thread::sleep(SETTLE);
    let mut slices = Vec::new();
    let mut passes = |doses: &[Dose]| {
        for _ in 0..dose::PASSES {
            for dose in doses {
                if peer.set(service, *dose).with_context(|| format!("cannot set {dose:?}"))? {
                    slices.push((*dose, Slice::measure(service, dose.calls(), dose.slept_calls())?));
                }
            }
        }
        anyhow::Ok(())
    };
    passes(&[Dose::Closed])?;
    passes(&Dose::OPEN)?;
    peer.end(service)?;
    Ok(slices)
}
