//! Makes the report from the counters.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    engine::EngineKind,
    policy::Dose,
    probe::plan::Entry,
    session::{
        doses::{Callers, Doses},
        functions::bytes_of,
        known::FunctionId,
        snapshot::Snapshot,
        state::State,
    },
    stats::{
        bounded,
        callers::{self, CallerReport, without_caller},
        implausible,
        report::{FunctionReport, SCHEMA, SessionReport, TargetReport},
    },
    sys::clock::now,
    targets::TargetIndex,
    units::Nanos,
};

/// The most bytes for the names of callers in a report. The target processes choose the names, and the report
/// repeats each name for each function that the caller calls.
const CALLERS_NAMES: usize = 32 << 20;

impl State {
    /// The counts so far. Adds calls that are not in the counters yet, which `pending` has by function index.
    pub(super) fn report(&self, pending: &HashMap<u32, u64>) -> SessionReport {
        let doses = self.doses();
        let mut snapshot = doses.snapshot().unwrap_or_else(|error| {
            tracing::warn!("cannot read the counters: {error}");
            Snapshot {
                at: now(),
                known: Arc::clone(doses.functions.known()),
                counts: Vec::new(),
                histograms: BTreeMap::new(),
                times: BTreeMap::new(),
            }
        });
        let mut pending_calls: HashMap<FunctionId, u64> = HashMap::new();
        for (index, calls) in pending {
            if let Some(id) = doses.functions.at(*index) {
                *pending_calls.entry(id).or_default() += calls;
            }
        }
        let (mut callers, left_out) = self.callers(&doses);
        let all_targets = Arc::clone(&doses.targets);
        let engine = |index, dose: Dose| {
            let through_helper = self.ways.get(&index).is_none_or(|way| way.entry == Entry::Helper);
            let in_helper = doses.policies.in_helper(index).filter(|_| through_helper);
            in_helper.unwrap_or_else(|| doses.engine.spins(dose.delay))
        };
        let of_targets: Vec<(Dose, EngineKind)> = all_targets
            .iter()
            .map(|(index, _)| (index, doses.policies.dose(index)))
            .map(|(index, dose)| (dose, engine(index, dose)))
            .collect();
        let usual = doses.engine.spins(Nanos(0));
        let bound = doses.bound();
        // Releases the lock, because the rest may be slow.
        drop(doses);
        let mut by_target: BTreeMap<TargetIndex, Vec<FunctionReport>> = BTreeMap::new();
        let known = Arc::clone(&snapshot.known);
        for (id, function) in known.iter() {
            let mut stats = snapshot.of_id(id);
            let pending = pending_calls.get(&id).copied().unwrap_or_default();
            stats.calls = stats.calls.saturating_add(pending);
            let report =
                FunctionReport::new(function.name.clone(), function.file.clone(), function.line, stats)
                    .with_histogram(snapshot.histograms.remove(&id).as_ref())
                    .with_times(snapshot.times_of(id))
                    .with_callers(callers.remove(&id));
            by_target.entry(function.target).or_default().push(report);
        }
        let targets = all_targets
            .iter()
            .zip(of_targets)
            .map(|((index, target), (Dose { delay, frequency }, engine))| {
                let way = self.ways.get(&index).copied();
                let functions = by_target.remove(&index).unwrap_or_default();
                TargetReport {
                    entry: way.map(|way| way.entry),
                    floor_ns: way.map_or(Nanos(0), |way| way.floors.warm),
                    cold_floor_ns: way.map_or(Nanos(0), |way| way.floors.cold),
                    frequency,
                    ..TargetReport::new(target, engine, delay, functions)
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
        warnings.extend(bounded::warning(&targets, bound));
        let missed_calls: Vec<String> = self.missed.values().flatten().cloned().collect();
        for text in &missed_calls {
            if !warnings.contains(text) {
                warnings.push(text.clone());
            }
        }
        let duration = self.ended.map_or_else(|| self.started.elapsed(), |ended| ended - self.started);
        warnings.extend(implausible::warning(targets.iter().flat_map(|target| &target.functions), duration));
        warnings.extend(self.untimed().of_python());
        warnings.extend(self.native_untimed.of_native());
        warnings.extend(without_caller(self.without_caller().saturating_add(left_out)));
        // If the targets have several engines, we take the most frequent one.
        let has = |engine| targets.iter().any(|target| target.engine == engine);
        let in_helper = !targets.is_empty() && targets.iter().all(|of| of.engine == EngineKind::Helper);
        let mut report = SessionReport {
            schema: SCHEMA,
            pid: self.root(),
            pids: self.roots.clone(),
            processes: self.pids_seen.len(),
            engine: match (has(EngineKind::Signal), in_helper) {
                (true, _) => EngineKind::Signal,
                (false, true) => EngineKind::Helper,
                (false, false) => usual,
            },
            duration,
            targets,
            inexact: None,
            warnings,
            missed_calls,
        };
        report.judge(self.waited.as_ref());
        report
    }

    /// The callers of each function, if the helper records them, sorted by calls, the most first. Also
    /// returns the number of calls whose caller we left out. Reports of a running session have no callers:
    /// reading all pairs is slow.
    fn callers(&self, doses: &Doses) -> (HashMap<FunctionId, Vec<CallerReport>>, u64) {
        let mut by_function: HashMap<FunctionId, Vec<CallerReport>> = HashMap::new();
        if !self.records_callers || self.ended.is_none() {
            return (by_function, 0);
        }
        let Callers { pairs, mut left_out } = doses.callers().unwrap_or_else(|error| {
            tracing::warn!("cannot read who called functions: {error}");
            Callers::default()
        });
        let mut room = CALLERS_NAMES;
        for ((callee, caller), times) in pairs {
            let Some(caller) = doses.functions.caller(caller) else { continue };
            match room.checked_sub(bytes_of(caller)) {
                Some(left) => {
                    room = left;
                    by_function.entry(callee).or_default().push(callers::by(caller, times));
                }
                None => left_out = left_out.saturating_add(times.calls),
            }
        }
        for of in by_function.values_mut() {
            // A later target may select a function that was only a caller before. Then the caller occurs
            // twice.
            of.sort_by(|a, b| (&a.name, &a.file, a.line).cmp(&(&b.name, &b.file, b.line)));
            of.dedup_by(|next, first| first.take_in(next));
            of.sort_by_key(|caller| std::cmp::Reverse(caller.calls));
        }
        (by_function, left_out)
    }
}
