//! The files that flags name: JSON, profiles, pages, trace events.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use serde::Serialize;

use super::{
    args::{SessionArgs, SweepArgs},
    exit::{Failure, SYSTEM, USAGE},
    terminal::{tell, tell_as_is},
};
use crate::{
    experiment::record::Experiment,
    printable::printable_json,
    report::{
        html,
        profile::{Profile, pstats},
        trace_events::trace,
    },
    stats::{
        json::{self, JsonError},
        json_lines::JsonLines,
        output::{Content, Output},
        report::SessionReport,
    },
    sys::descriptor::inherited,
};

/// Outputs of a session.
#[derive(Debug)]
pub(super) struct Outputs {
    json: Option<Output>,
    pstats: Option<Output>,
    lines: Option<JsonLines>,
    /// Whether writing a line failed for another reason than that the reader is gone. Then a warning was
    /// printed.
    lost_line: bool,
    ready: Option<File>,
}

impl Outputs {
    /// Opens the outputs that can be opened before the session.
    pub(super) fn open(flags: &SessionArgs) -> Result<Self, Failure> {
        let ready = flags.ready_fd.map(|number| {
            inherited(number)
                .with_context(|| format!("--ready-fd {number}: no such descriptor was inherited"))
        });
        let lines = flags.json_lines.as_deref().map(JsonLines::at);
        Ok(Self {
            json: flags.json.as_deref().map(output_at).transpose()?,
            pstats: flags.pstats.as_deref().map(output_at).transpose()?,
            lines: lines.transpose().map_err(|error| Failure::new(USAGE, error))?,
            lost_line: false,
            ready: ready.transpose().map_err(|error| Failure::new(USAGE, error))?.map(File::from),
        })
    }

    /// Writes to `--ready-fd` that everything is attached.
    pub(super) fn ready(&mut self) {
        if let Some(Err(error)) = self.ready.take().map(|mut file| file.write_all(b"ready\n")) {
            tell(format_args!("speed-bump-ebpf: warning: cannot write to --ready-fd: {error}"));
        }
    }

    /// Whether the session writes lines while it runs.
    pub(super) fn ticks(&self) -> bool {
        self.lines.is_some()
    }

    /// Writes a line, if it is time for one. After a failed write there are no more lines.
    pub(super) fn tick(&mut self, report: impl FnOnce() -> Option<SessionReport>) {
        let written = self.lines.as_mut().map(|lines| lines.tick(report));
        self.check_line(written, "; --json-lines ends here");
    }

    /// Handles the result of a write: a failure ends the lines, and is lost output unless the reader has
    /// gone.
    fn check_line(&mut self, written: Option<Result<(), JsonError>>, consequence: &str) {
        if let Some(Err(error)) = written {
            tell(format_args!("speed-bump-ebpf: warning: {error}{consequence}"));
            self.lost_line |= !error.is_closed();
            self.lines = None;
        }
    }

    /// Writes the final report: as the last line, as JSON and as a profile. If the JSON cannot be written, it
    /// goes to standard error, so that no counters are lost.
    pub(super) fn end(&mut self, report: &SessionReport) -> Result<(), Failure> {
        let written = self.lines.as_mut().map(|lines| lines.write(report));
        self.check_line(written, "");
        write_json(self.json.as_ref(), report)?;
        if let Some(pstats) = &self.pstats {
            // Without a profile there is no file, and the error has the reason.
            let profile =
                Profile::from_session(&report.into()).map_err(|error| Failure::new(SYSTEM, error))?;
            write_pstats(pstats, &profile.with_callers())?;
        }
        if self.lost_line {
            return Err(Failure::new(SYSTEM, anyhow!("not all lines of --json-lines could be written")));
        }
        Ok(())
    }
}

/// Writes a report as JSON, if a flag names an output. If that fails, the JSON goes to standard error, so
/// that no measurement is lost.
pub(super) fn write_json(json: Option<&Output>, report: &impl Serialize) -> Result<(), Failure> {
    let Some(Err(error)) = json.map(|json| json::write(report, json)) else { return Ok(()) };
    let text = json::text(report).map_err(|error| Failure::new(SYSTEM, error))?;
    tell_as_is(printable_json(&text).trim_end());
    Err(Failure::new(SYSTEM, anyhow!("{error}; the JSON is above, on standard error")))
}

/// Outputs of a sweep.
#[derive(Debug)]
pub(super) struct SweepOutputs {
    json: Option<Output>,
    html: Option<Output>,
    trace_events: Option<Output>,
    quiet: bool,
}

impl SweepOutputs {
    /// Checks before the sweep that the outputs can be written.
    pub(super) fn open(flags: &SweepArgs) -> Result<Self, Failure> {
        let at = |path: &Option<PathBuf>| path.as_deref().map(output_at).transpose();
        let outputs = Self {
            json: at(&flags.json)?,
            html: at(&flags.html)?,
            trace_events: at(&flags.trace_events)?,
            quiet: flags.quiet,
        };
        if outputs.on_stdout() > 1 {
            let text = "only one of --json, --html and --trace-events can go to standard output: name files \
                        for the others";
            return Err(Failure::new(USAGE, anyhow!(text)));
        }
        Ok(outputs)
    }

    /// Whether one of the outputs goes to standard output, in place of the text report.
    pub(super) fn take_stdout(&self) -> bool {
        self.on_stdout() > 0
    }

    fn on_stdout(&self) -> usize {
        let all = [&self.json, &self.html, &self.trace_events];
        all.into_iter().filter(|output| matches!(output, Some(Output::Stdout))).count()
    }

    /// Writes the outputs, the JSON first: `report` can make the others from it.
    pub(super) fn write(&self, experiment: &Experiment) -> Result<(), Failure> {
        write_json(self.json.as_ref(), experiment)?;
        if let Some(html) = &self.html {
            write_html(html, experiment, self.quiet)?;
        }
        self.trace_events.as_ref().map_or(Ok(()), |to| write_trace_events(to, experiment))
    }
}

/// Checks that a report can be written to a path.
pub(super) fn output_at(path: &Path) -> Result<Output, Failure> {
    Output::at(path.to_owned()).map_err(|error| Failure::new(USAGE, error))
}

/// Writes a sweep as a page, and says where, unless `quiet`.
pub(super) fn write_html(to: &Output, experiment: &Experiment, quiet: bool) -> Result<(), Failure> {
    to.write(Content::Bytes(html::render(experiment).as_bytes()))
        .map_err(|error| Failure::new(SYSTEM, error))?;
    if let (Output::Path(path), false) = (to, quiet) {
        tell(format_args!("speed-bump-ebpf: the report is in {}", path.display()));
    }
    Ok(())
}

/// Writes the slices of a sweep as trace events.
pub(super) fn write_trace_events(to: &Output, experiment: &Experiment) -> Result<(), Failure> {
    json::write(&trace(experiment), to).map_err(|error| Failure::new(SYSTEM, error))
}

/// Writes a profile for Python's `pstats`.
pub(super) fn write_pstats(to: &Output, profile: &Profile) -> Result<(), Failure> {
    to.write(Content::Bytes(&pstats(profile))).map_err(|error| Failure::new(SYSTEM, error))
}
