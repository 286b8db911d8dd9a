//! What is seen while a sweep runs: the table as it firms up, or a line for each phase where nobody watches a
//! terminal.

use std::time::{Duration, Instant};

use super::super::{live::LiveTable, terminal::tell};
use crate::{
    experiment::{
        analysis::findings::findings,
        record::{Measured, PhaseKind},
        run::Now,
    },
    report::{text::table, words::phase_name},
    stats::table::within,
    sys::clock::now,
    units::Nanos,
};

/// How often the table is worked out and drawn.
const REFRESH: Duration = Duration::from_secs(1);
/// Functions that are shown.
const SHOWN: usize = 12;

/// See above.
pub(in crate::cli) struct Progress {
    quiet: bool,
    live: Option<LiveTable>,
    drawn: Option<Instant>,
    told: usize,
}

impl Progress {
    pub(in crate::cli) fn new(quiet: bool, on_terminal: bool) -> Self {
        Self { quiet, live: (on_terminal && !quiet).then(LiveTable::new), drawn: None, told: 0 }
    }

    /// Says something, unless nothing is to be said.
    pub(in crate::cli) fn line(&self, text: &str) {
        if !self.quiet {
            tell(text);
        }
    }

    /// A slice was measured.
    pub(in crate::cli) fn show(&mut self, measured: &Measured, at: Now) {
        let ended = measured.phases.iter().filter(|phase| !phase.outcome.is_empty()).count();
        if self.live.is_none() && ended > self.told {
            for phase in measured.phases.iter().take(ended).skip(self.told) {
                self.line(&format!("{}: {}", phase_name(phase.kind), phase.outcome));
            }
            self.told = ended;
        }
        let Some(live) = &mut self.live else { return };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < REFRESH) {
            return;
        }
        self.drawn = Some(Instant::now());
        let mut text = state(at) + "\n";
        if matches!(at.phase, PhaseKind::Confirm | PhaseKind::Recover) {
            text += &table(&findings(measured), SHOWN);
        }
        live.draw_text(|size| {
            let lines: Vec<&str> = text.lines().take(size.lines).collect();
            within(lines.join("\n"), size.columns)
        });
    }

    /// Leaves nothing of the table.
    pub(in crate::cli) fn end(self) {
        if let Some(live) = self.live {
            live.clear();
        }
    }
}

/// `confirm, 42 s left, now 8 % slower`.
fn state(at: Now) -> String {
    let left = at.ends.0.saturating_sub(now().0);
    let slower = at.slowdown.map(|share| format!(", now {:+.0} % time per unit", share * 100.0));
    format!(
        "{}, {} left{}",
        phase_name(at.phase),
        Nanos(left / 1_000_000_000 * 1_000_000_000),
        slower.unwrap_or_default()
    )
}
