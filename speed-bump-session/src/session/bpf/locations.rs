//! Code locations that CPython's `function__entry` names. When it names a location for the first time, the
//! session finds the location's function, and whether a target selects this function.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use speed_bump_abi::{PythonKey, Verdict};

use super::{context::Context, follower::Naming, phase::Processes};
use crate::{
    engine::bpf::BpfEngine,
    probe::plan::{Entry, SelectedFunction},
    python::source::SourceIndex,
    targets::TargetIndex,
};

/// The most time for parsing source files in a session: enough for 1,000 modules.
const PARSING: Duration = Duration::from_secs(5);

/// Code locations that `function__entry` named.
#[derive(Debug, Default)]
pub(super) struct Locations {
    /// The locations that we have handled. Each has its function, if a target selects the function.
    judged: HashMap<u32, Option<u32>>,
    /// How long we have parsed source files so far.
    parsing: Duration,
}

impl Locations {
    /// How many calls each function had before we handled its location.
    pub(super) fn pending_calls(&self, engine: &BpfEngine) -> HashMap<u32, u64> {
        let mut calls = HashMap::new();
        for (location, function) in &self.judged {
            if let Some(function) = function {
                *calls.entry(*function).or_default() += engine.pending_calls(*location).unwrap_or(0);
            }
        }
        calls
    }

    /// Finds the function at a code location that `function__entry` named in the process with this index.
    /// Tells the BPF program whether a target selects the function.
    pub(super) fn judge(
        &mut self,
        (location, key): (u32, &PythonKey),
        process: u32,
        processes: &mut Processes,
        engine: &mut BpfEngine,
        context: &mut Context,
    ) {
        if self.judged.contains_key(&location) {
            return;
        }
        let judged = self.function(process, key, processes, context);
        let verdict = judged.map_or(Verdict::Ignored, Verdict::Function);
        match engine.set_verdict(location, verdict) {
            Ok(()) => {
                if judged.is_some() {
                    tracing::debug!("{} is covered", text(&key.name));
                }
                self.judged.insert(location, judged);
            }
            Err(error) => context.warn(format!("{} is not delayed: {error}", text(&key.name))),
        }
    }

    /// The function at a code location, if a target selects it.
    fn function(
        &mut self,
        process: u32,
        key: &PythonKey,
        processes: &mut Processes,
        context: &mut Context,
    ) -> Option<u32> {
        let (file, name) = (text(&key.file), text(&key.name));
        let targets = context.resolver.targets();
        let module = targets.python_in(&file);
        if module.is_empty() {
            return None;
        }
        let covered = processes.iter_mut().find(|(_, covered)| covered.index == process);
        let follower = covered.and_then(|(_, covered)| covered.python.as_mut())?;
        let kind = follower.kind;
        let mut unparsed = false;
        let qualnames = match &mut follower.naming {
            Naming::Usdt { root, sources, share } => {
                let (version, parsing) = (follower.version, &mut self.parsing);
                let source = sources.entry(file.clone()).or_insert_with(|| {
                    if *parsing > PARSING {
                        unparsed = true;
                        return None;
                    }
                    let began = Instant::now();
                    let index = SourceIndex::read(root.as_ref()?, &file, version);
                    *parsing += began.elapsed();
                    let index = index.inspect_err(|error| {
                        tracing::debug!("qualified names of {file}: {error}");
                        unparsed = error.is_of_size();
                    });
                    let kept = index.ok()?;
                    unparsed = !share.take(kept.bytes());
                    (!unparsed).then_some(kept)
                });
                source.as_ref().and_then(|source| qualnames(source, &name, key.line))
            }
            Naming::PerfMap { .. } => None,
        };
        let mut ambiguous = None;
        let (target, name): (TargetIndex, String) = match qualnames {
            Some(names) => {
                let selected: Vec<_> = names
                    .iter()
                    .filter_map(|name| Some((targets.for_all_callers(&module.select(name))?, name.clone())))
                    .collect();
                let first = selected.first().cloned()?;
                // Several functions fit, and we cannot tell them apart: two lambdas on one line, or a probe
                // without line numbers.
                if selected.len() < names.len() {
                    let (all, one) = (names.join(", "), &first.1);
                    ambiguous =
                        Some(format!("{file}: calls of {all} cannot be told apart and count as {one}"));
                }
                first
            }
            None => (targets.for_all_callers(&module.select_by_last_component(&name))?, name),
        };
        if unparsed {
            context.warn(format!(
                "{file}: its functions are told by their plain names, as it is too large, or takes too \
                 long with those before it"
            ));
        }
        if let Some(ambiguous) = ambiguous {
            context.warn(ambiguous);
        }
        let function = SelectedFunction {
            target,
            name,
            file: file.into(),
            line: Some(key.line).filter(|line| line.cast_signed() > 0),
        };
        match context.python_function(&function, Entry::Usdt, kind) {
            Ok(index) => Some(index),
            Err(error) => {
                context.warn(format!("{} is not delayed: {error}", function.name));
                None
            }
        }
    }

    /// Handles once more the code locations that no target selected.
    pub(super) fn judge_anew(
        &mut self,
        processes: &mut Processes,
        engine: &mut BpfEngine,
        context: &mut Context,
    ) {
        self.judged.retain(|_, function| function.is_some());
        self.find_lost(processes, engine, context);
    }

    /// Handles the code locations whose announcement was lost.
    pub(super) fn find_lost(
        &mut self,
        processes: &mut Processes,
        engine: &mut BpfEngine,
        context: &mut Context,
    ) {
        let lost: Vec<_> =
            engine.python_locations().filter(|(_, location)| !self.judged.contains_key(location)).collect();
        for (key, location) in lost {
            // The announcement would have named the process. We can read the source through any covered
            // process.
            let process = processes.iter().next().map_or(0, |(_, covered)| covered.index);
            self.judge((location, &key), process, processes, engine, context);
        }
    }
}

/// The qualified names that a code location may have; `None` if the source file does not show them.
fn qualnames(source: &SourceIndex, name: &str, line: u32) -> Option<Vec<String>> {
    if source.has_errors() {
        return None; // the text was not fully understood: names may lack outer parts
    }
    let found = source.find(name, line.cast_signed())?;
    Some(found.qualnames.iter().map(|name| (*name).to_owned()).collect())
}

/// The text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
