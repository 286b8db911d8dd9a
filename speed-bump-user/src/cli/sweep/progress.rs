//! Progress of a running sweep: a live table of findings on a terminal, otherwise a line for each phase.

use std::time::{Duration, Instant};

use super::super::{live::LiveTable, terminal::tell};
use crate::{
    experiment::{
        analysis::findings::findings,
        record::{Measured, PhaseKind},
        run::Now,
    },
    report::table::within,
    report::{text::table, words::phase_name},
    sys::clock::now,
    units::Nanos,
};

/// How often the table is computed and drawn, at most.
const REFRESH: Duration = Duration::from_secs(1);
/// Computing the table takes at most this part of the time: meanwhile doses stay as they are.
const PART: u32 = 20;
/// Functions that are shown.
const SHOWN: usize = 12;

/// Shows the progress.
pub(in crate::cli) struct Progress {
    quiet: bool,
    live: Option<LiveTable>,
    /// When the table was drawn, and how long that took.
    drawn: Option<(Instant, Duration)>,
    told: usize,
    waits: bool,
}

impl Progress {
    pub(in crate::cli) fn new(quiet: bool, on_terminal: bool) -> Self {
        Self { quiet, live: (on_terminal && !quiet).then(LiveTable::new), drawn: None, told: 0, waits: false }
    }

    /// Prints a line, unless `quiet`.
    pub(in crate::cli) fn line(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    /// Shows the state after a slice.
    pub(in crate::cli) fn show(&mut self, measured: &Measured, at: Now) {
        let ended = measured.phases.iter().filter(|phase| !phase.outcome.is_empty()).count();
        if self.live.is_none() && ended > self.told {
            for phase in measured.phases.iter().take(ended).skip(self.told) {
                self.line(&format!("{}: {}", phase_name(phase.kind), phase.outcome));
            }
            self.told = ended;
        }
        if self.live.is_none() && self.waits != at.waits_for_load.is_some() {
            self.waits = !self.waits;
            self.line(&match at.waits_for_load {
                Some(until) => waiting(until),
                None => "the load is back: the experiment continues".to_owned(),
            });
        }
        let Some(live) = &mut self.live else { return };
        if self.drawn.is_some_and(|(drawn, took)| drawn.elapsed() < REFRESH.max(took * PART)) {
            return;
        }
        let begun = Instant::now();
        let mut text = state(at) + "\n";
        if matches!(at.phase, PhaseKind::Test | PhaseKind::Ladder | PhaseKind::Recover) {
            text += &table(&findings(measured), SHOWN);
        }
        live.draw_text(|size| {
            let lines: Vec<&str> = text.lines().take(size.lines).collect();
            within(lines.join("\n"), size.columns)
        });
        self.drawn = Some((begun, begun.elapsed()));
    }

    /// Clears the table.
    pub(in crate::cli) fn end(self) {
        if let Some(live) = self.live {
            live.clear();
        }
    }
}

/// `waiting for the load, without delays, for up to 30 s`.
fn waiting(until: Nanos) -> String {
    let left = Nanos(until.0.saturating_sub(now().0).div_ceil(1_000_000_000) * 1_000_000_000);
    format!("no delay explains how rare units are: waiting for the load, without delays, for up to {left}")
}

/// `test, 42 s left, now 8 % slower`.
fn state(at: Now) -> String {
    if let Some(until) = at.waits_for_load {
        return waiting(until);
    }
    let left = at.ends.0.saturating_sub(now().0);
    let slower = at.slowdown.map(|share| format!(", now {:+.0} % time per unit", share * 100.0));
    format!(
        "{}, {} left{}",
        phase_name(at.phase),
        Nanos(left / 1_000_000_000 * 1_000_000_000),
        slower.unwrap_or_default()
    )
}
