//! Threads that set the pace, with their functions by the time that they take.

use super::words::{fixed, name, some_of};
use crate::analysis::{factor::Factor, findings::Findings, thread::ThreadFinding};

/// Functions that a line names.
const NAMED: usize = 6;

/// A line for each thread that sets the pace.
pub(super) fn lines(findings: &Findings) -> Vec<String> {
    findings.by_thread.iter().filter(|of| of.sets_pace).map(|of| line(findings, of)).collect()
}

/// `thread 4711 (model), busy for 98 % of the time, sets the pace: 1.08 [1.00, 1.16]; by time on it: f 20.1
/// %`.
fn line(findings: &Findings, thread: &ThreadFinding) -> String {
    let mut text = thread.who();
    if let Some(busy) = thread.busy {
        text += &format!(", busy for {:.0} % of the time,", busy.min(1.0) * 100.0);
    }
    text += &format!(
        " {}: sensitivity {} [{}, {}]",
        thread.does(),
        fixed(thread.sensitivity, 2),
        fixed(thread.low, 2),
        fixed(thread.high, 2)
    );
    let unit = findings.time_per_unit_ns;
    let on_it = |of: &&Factor| of.sharing.as_ref().is_some_and(|sharing| sharing.threads == thread.threads);
    let mut of: Vec<_> =
        findings.factors.iter().filter(on_it).filter_map(|of| Some((of.share(unit)?, name(of)))).collect();
    of.sort_by(|a, b| b.0.total_cmp(&a.0));
    let of: Vec<String> =
        of.iter().map(|(share, name)| format!("{name} {} %", fixed(share * 100.0, 1))).collect();
    if !of.is_empty() {
        text += &format!("; by time on it: {}", some_of(&of, NAMED));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        record::{Experiment, Sharing},
        simulated::{Function, Noise, sweep},
        units::Pid,
    };

    #[test]
    fn a_saturated_thread_is_told_with_its_functions() {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let functions: Vec<_> =
            (0..6).map(|at| (format!("f{at}"), function, 1e5 + f64::from(at) * 1e4)).collect();
        let thread = Pid::new(4711).unwrap();
        let mut measured = sweep(1e6, &functions, Noise::White(0.02), std::time::Duration::from_secs(60), 1);
        for candidate in &mut measured.candidates {
            candidate.sharing = Some(Sharing { threads: vec![thread], with_units: None });
        }
        let experiment = Experiment::new(measured);
        let lines = lines(&experiment.findings);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = &lines[0];
        assert!(line.starts_with("thread 4711 sets the pace: sensitivity "), "{line}");
        assert!(line.contains("; by time on it: f5 15.0 %, f4 14.0 %, "), "{line}");
    }
}
