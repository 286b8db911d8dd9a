//! From counters to the report.

use std::collections::BTreeMap;

use speed_bump_abi::FunctionStats;

use crate::{
    engine::EngineKind,
    policy::Dose,
    probe::plan::SelectedFunction,
    session::Session,
    stats::report::{FunctionReport, SCHEMA, SessionReport, TargetReport},
    targets::TargetIndex,
    units::Nanos,
};

impl Session {
    /// What was counted so far.
    pub fn report(&mut self) -> SessionReport {
        let mut by_function: BTreeMap<SelectedFunction, FunctionStats> = BTreeMap::new();
        let mut add = |function: &SelectedFunction, stats: FunctionStats| {
            let sum = by_function.entry(function.clone()).or_default();
            sum.calls += stats.calls;
            sum.delayed += stats.delayed;
            sum.requested_ns += stats.requested_ns;
            sum.delivered_ns += stats.delivered_ns;
            sum.missed += stats.missed;
        };
        let pending = self.python.pending_calls(&self.engine);
        for (index, function) in self.functions.iter() {
            match self.engine.stats(index) {
                Ok(mut stats) => {
                    stats.calls += pending.get(&index).copied().unwrap_or(0);
                    add(function, stats);
                }
                Err(error) => tracing::debug!("cannot read the counters of function {index}: {error}"),
            }
        }
        for (function, stats) in self.functions.past() {
            add(function, stats);
        }
        let mut by_target: BTreeMap<TargetIndex, Vec<FunctionReport>> = BTreeMap::new();
        for (function, stats) in by_function {
            let report = FunctionReport::new(function.name, function.file, function.line, stats);
            by_target.entry(function.target).or_default().push(report);
        }
        let targets = self
            .resolver
            .targets()
            .iter()
            .map(|(index, target)| {
                let way = self.ways.get(&index).copied();
                let Dose { delay, frequency } = self.settings.policies.dose(index);
                let functions = by_target.remove(&index).unwrap_or_default();
                TargetReport {
                    entry: way.map(|way| way.entry),
                    floor_ns: way.map_or(Nanos(0), |way| way.floor),
                    frequency,
                    ..TargetReport::new(target, self.signals.engine(delay), delay, functions)
                }
            })
            .collect::<Vec<_>>();
        let mut warnings = self.warnings.list();
        let missed: u64 = targets.iter().map(|target| target.missed).sum();
        if missed > 0 {
            warnings.push(format!(
                "{missed} calls were not delayed, because their threads could not be sent the signal safely: \
                 they block it, the program handles it itself, or the helper was not loaded; `--engine bpf` \
                 delays them"
            ));
        }
        // Of several the one that does most.
        let by_signal = targets.iter().any(|target| target.engine == EngineKind::Signal);
        SessionReport {
            schema: SCHEMA,
            pid: self.root,
            pids: self.roots.clone(),
            processes: self.pids_seen.len(),
            engine: if by_signal { EngineKind::Signal } else { EngineKind::Bpf },
            duration: self.ended.map_or_else(|| self.started.elapsed(), |ended| ended - self.started),
            targets,
            warnings,
        }
    }
}
