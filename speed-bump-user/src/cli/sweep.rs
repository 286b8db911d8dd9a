//! `sweep`: runs an experiment on a running service and prints its report.

mod options;
mod preparing;
mod progress;

use std::{
    io::{IsTerminal as _, stderr},
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};

use super::{
    args::SweepArgs,
    environment::Environment,
    exit::{Failure, GUARDED, NOT_VALID, SYSTEM, USAGE},
    export::{Export, SweepProgress},
    outputs::SweepOutputs,
    signals::{Second, StopSignals},
    terminal::{self, Lines, Stream, lost, print_as_is, style, tell, tell_as_is},
    words::tell_notices,
};
use crate::{
    experiment::{
        record::{Experiment, Measured},
        run::Now,
        sweep::{Observer, Outlook, Step, Sweep, SweepError},
    },
    prepare::notice::Notice,
    report::text,
    session::handle::Handle,
};
use preparing::Preparing;
use progress::Progress;

/// Runs an experiment, and reports.
pub(super) fn run(arguments: &SweepArgs) -> Result<ExitCode, Failure> {
    let environment = Environment::read().map_err(|error| Failure::new(USAGE, error))?;
    let outputs = SweepOutputs::open(arguments)?;
    let sweep = Sweep::new(options::from_flags(arguments, &environment)?);
    sweep.check()?;
    let quit = sweep.quit();
    let signals = StopSignals::on_each(move || quit.ask(), Second::with(arguments.engine.engine))
        .context("cannot listen for signals")
        .map_err(|error| Failure::new(SYSTEM, error))?;
    let mut shown = ProgressObserver::begin(arguments, &signals)?;
    if arguments.plan {
        let outlook = sweep.plan(&arguments.pids, &mut shown);
        shown.preparing = None;
        plan(arguments, &outlook?).print();
        return Ok(ExitCode::SUCCESS);
    }
    let experiment = sweep.run(&arguments.pids, &mut shown);
    let experiment = shown.end(experiment)?;
    if !outputs.take_stdout() {
        let text = text::render(&experiment, style());
        print_as_is(text.trim_end());
        // If standard output fails, print to standard error, so that no measurement is lost.
        terminal::flush();
        if lost(Stream::Output).is_some() {
            tell_as_is(text.trim_end());
        }
    }
    outputs.write(&experiment)?;
    if let Some(why) = experiment.measured.guard.as_deref() {
        return Err(Failure::new(GUARDED, anyhow!("a guard ended the experiment: {why}")));
    }
    let missed = experiment.measured.missed_calls.first();
    match experiment.measured.not_valid().or_else(|| missed.cloned()) {
        Some(why) => Err(Failure::new(NOT_VALID, anyhow!("the experiment ended without a verdict: {why}"))),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The text of `--plan`.
fn plan(arguments: &SweepArgs, outlook: &Outlook) -> Lines {
    let mut lines = Lines::from(format!(
        "{} of {} functions take {:.1} % of the time per unit or more; a unit takes {}",
        outlook.functions,
        outlook.candidates,
        arguments.worth * 100.0,
        outlook.unit
    ));
    outlook.plan.lines().into_iter().for_each(|line| lines.push(line));
    lines
}

/// Shows and exports progress while the sweep runs.
struct ProgressObserver<'a> {
    quiet: bool,
    signals: &'a StopSignals,
    preparing: Option<Preparing>,
    progress: Progress,
    export: Export,
    exported: SweepProgress,
}

impl<'a> ProgressObserver<'a> {
    fn begin(arguments: &SweepArgs, signals: &'a StopSignals) -> Result<Self, Failure> {
        let quiet = arguments.quiet;
        let exported = SweepProgress::new(arguments.guards.len());
        let export = Export::start(&arguments.export, quiet, &exported.before())?;
        let progress = Progress::new(quiet, stderr().is_terminal());
        Ok(Self { quiet, signals, preparing: None, progress, export, exported })
    }

    /// Clears the table, and exports the last numbers.
    fn end(mut self, experiment: Result<Experiment, SweepError>) -> Result<Experiment, Failure> {
        self.preparing = None;
        self.progress.end();
        let experiment = experiment?;
        self.export.put(&self.exported.over(&experiment.measured));
        Ok(experiment)
    }
}

impl Observer for ProgressObserver<'_> {
    fn step(&mut self, step: Step) {
        self.preparing.get_or_insert_with(|| Preparing::begin(self.quiet)).step(step);
    }

    fn line(&mut self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    fn notices(&mut self, notices: &[Notice]) {
        tell_notices(notices);
    }

    fn warning(&mut self, text: &str) {
        tell(format_args!("speed-bump-ebpf: warning: {text}"));
    }

    fn prepared(&mut self) {
        self.preparing = None;
    }

    fn slice(&mut self, measured: &Measured, now: Now, session: &Handle) {
        self.progress.show(measured, now);
        self.export.tick(|| self.exported.numbers(measured, now, session.report()));
    }

    fn detached(&mut self) {
        self.signals.session_is_over();
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Prepare(error) => error.into(),
            SweepError::Session(error) => error.into(),
            error => Self::new(error.kind().into(), error),
        }
    }
}
