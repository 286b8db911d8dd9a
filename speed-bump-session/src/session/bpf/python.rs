//! Python functions that appear while the session runs: from perf maps as they grow, and from code
//! locations that `function__entry` names for the first time.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use speed_bump_abi::{PythonKey, TrampolineKey, Verdict};

use super::{
    BpfSession,
    follower::{PythonFollower, Way},
};
use crate::{
    engine::bpf::BpfEngine,
    probe::{
        plan::{Entry, SelectedFunction},
        resolve::python::{anonymous, left_out},
        site::SiteKind,
    },
    python::{perf_map::PerfMapEntry, source::SourceIndex},
    session::SessionError,
    targets::TargetIndex,
    units::Pid,
};

/// How long the perf map of a process is read that is about to be covered.
const AT_ONCE: Duration = Duration::from_secs(2);
/// How long perf maps are read at a time.
const AT_A_TIME: Duration = Duration::from_millis(50);
/// How long source files are parsed in a session, all together: those of 1,000 modules take as long.
const PARSING: Duration = Duration::from_secs(5);
/// How often it is told what is wrong with one perf map: each line can be wrong in a way of its own.
const COMPLAINTS: usize = 5;

/// Code locations that `function__entry` named.
#[derive(Debug, Default)]
pub(super) struct Locations {
    /// Those with a verdict: the function, if a target selected one.
    judged: HashMap<u32, Option<u32>>,
    /// The process whose perf map is to be read next, where others took all the time.
    turn: Option<Pid>,
    /// How long source files were parsed.
    parsing: Duration,
}

impl Locations {
    /// Calls that came before the verdict, by function.
    pub(super) fn pending_calls(&self, engine: &BpfEngine) -> HashMap<u32, u64> {
        let mut calls = HashMap::new();
        for (location, function) in &self.judged {
            if let Some(function) = function {
                *calls.entry(*function).or_default() += engine.pending_calls(*location).unwrap_or(0);
            }
        }
        calls
    }
}

impl BpfSession {
    /// Takes up what a process's perf map has now, as far as it can be read within some time.
    pub(super) fn read_python_of(&mut self, pid: Pid) {
        let began = Instant::now();
        self.poll_python_of(pid);
        while self.is_behind(pid) && began.elapsed() < AT_ONCE {
            self.poll_python_of(pid);
        }
    }

    fn is_behind(&self, pid: Pid) -> bool {
        let follower = self.processes.get(pid).and_then(|covered| covered.python.as_ref());
        match follower.map(|follower| &follower.way) {
            Some(Way::PerfMap { follower: Some(map), .. }) => map.is_behind(),
            _ => false,
        }
    }

    /// Takes up what is new in perf maps, in turn, and no longer than some time: whoever writes much does not
    /// keep the session from what else there is to do.
    pub(super) fn poll_python(&mut self) {
        let began = Instant::now();
        let first = self.python.turn.take().unwrap_or(Pid::FIRST);
        for pid in self.processes.pids_from(first) {
            if began.elapsed() > AT_A_TIME {
                self.python.turn = Some(pid);
                return;
            }
            self.poll_python_of(pid);
        }
    }

    /// Takes up what a process's perf map has new.
    fn poll_python_of(&mut self, pid: Pid) {
        let complaint = self.follow_python_of(pid).err();
        let Some(covered) = self.processes.get_mut(pid) else { return };
        let Some(PythonFollower { way: Way::PerfMap { follower: Some(map), told, .. }, .. }) =
            &mut covered.python
        else {
            return;
        };
        let left_out = map.has_left_out().then(|| left_out(map));
        let complaint = complaint.filter(|_| *told < COMPLAINTS);
        *told += usize::from(complaint.is_some());
        for text in complaint.into_iter().chain(left_out) {
            self.context.warn(format!("process {pid}: {text}"));
        }
    }

    /// As [`poll_python_of`](Self::poll_python_of); what went wrong is not told.
    fn follow_python_of(&mut self, pid: Pid) -> Result<(), String> {
        let Some(covered) = self.processes.get_mut(pid) else { return Ok(()) };
        let (process, index) = (&covered.process, covered.index);
        let Some(PythonFollower { kind, way: Way::PerfMap { follower, trampolines, .. }, .. }) =
            &mut covered.python
        else {
            return Ok(());
        };
        let (Some(map), kind) = (follower, *kind) else { return Ok(()) };
        let entries = map.poll(|| anonymous(process)).map_err(|error| error.to_string())?;
        if entries.is_empty() {
            return Ok(());
        }
        let memory = process.memory().map_err(|error| error.to_string())?;
        let mut located = Vec::with_capacity(entries.len());
        let mut unlocated = Ok(());
        for entry in entries {
            let read = |address, buffer: &mut [u8]| {
                memory.read_exact(address, buffer).map_err(std::io::Error::other)
            };
            match trampolines.return_address(&entry, read) {
                Ok(address) => located.push((entry, address.0)),
                Err(error) => unlocated = Err(error.to_string()),
            }
        }
        for (entry, return_address) in located {
            let key = TrampolineKey { return_address, process: u64::from(index) };
            match self.name_trampoline(&entry, key, kind) {
                Ok(true) => tracing::debug!("process {pid}: {} is covered", entry.qualname),
                Ok(false) => {}
                Err(error) => return Err(format!("{} is not delayed: {error}", entry.qualname)),
            }
        }
        unlocated
    }

    /// Makes a trampoline stand for its function, and says whether a target selects it. The memory may have
    /// belonged to another function before.
    fn name_trampoline(
        &mut self,
        entry: &PerfMapEntry,
        key: TrampolineKey,
        kind: SiteKind,
    ) -> Result<bool, SessionError> {
        let selection = self.context.resolver.targets().python_in(&entry.filename).select(&entry.qualname);
        let Some(target) = selection.winner else {
            self.engine.remove_trampoline(&key)?;
            return Ok(false);
        };
        let function = SelectedFunction {
            target,
            name: entry.qualname.clone(),
            file: entry.filename.clone().into(),
            line: None,
        };
        let index = self.context.python_function(&function, Entry::PerfMap, kind)?;
        self.engine.set_trampoline(key, index)?;
        Ok(true)
    }

    /// Judges a code location that `function__entry` named in the process with this index.
    pub(super) fn python_code(&mut self, process: u32, location: u32, key: &PythonKey) {
        if self.python.judged.contains_key(&location) {
            return;
        }
        let judged = self.judge(process, key);
        let verdict = judged.map_or(Verdict::Ignored, Verdict::Function);
        match self.engine.set_verdict(location, verdict) {
            Ok(()) => {
                if judged.is_some() {
                    tracing::debug!("{} is covered", text(&key.name));
                }
                self.python.judged.insert(location, judged);
            }
            Err(error) => self.context.warn(format!("{} is not delayed: {error}", text(&key.name))),
        }
    }

    /// The function that a code location is, if a target selects it.
    fn judge(&mut self, process: u32, key: &PythonKey) -> Option<u32> {
        let (file, name) = (text(&key.file), text(&key.name));
        let module = self.context.resolver.targets().python_in(&file);
        if module.is_empty() {
            return None;
        }
        let covered = self.processes.iter_mut().find(|(_, covered)| covered.index == process);
        let follower = covered.and_then(|(_, covered)| covered.python.as_mut())?;
        let kind = follower.kind;
        let mut unparsed = false;
        let qualnames = match &mut follower.way {
            Way::Usdt { root, sources, share } => {
                let (version, parsing) = (follower.version, &mut self.python.parsing);
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
            Way::PerfMap { .. } => None,
        };
        let mut ambiguous = None;
        let (target, name): (TargetIndex, String) = match qualnames {
            Some(names) => {
                let selected: Vec<_> = names
                    .iter()
                    .filter_map(|name| Some((module.select(name).winner?, name.clone())))
                    .collect();
                let first = selected.first().cloned()?;
                // Nothing tells them apart: two lambdas on one line, or a probe that gives no line.
                if selected.len() < names.len() {
                    let (all, one) = (names.join(", "), &first.1);
                    ambiguous =
                        Some(format!("{file}: calls of {all} cannot be told apart and count as {one}"));
                }
                first
            }
            None => (module.select_by_last_component(&name).winner?, name),
        };
        if unparsed {
            self.context.warn(format!(
                "{file}: its functions are told by their plain names, as it is too large, or takes too \
                 long with those before it"
            ));
        }
        if let Some(ambiguous) = ambiguous {
            self.context.warn(ambiguous);
        }
        let function = SelectedFunction {
            target,
            name,
            file: file.into(),
            line: Some(key.line).filter(|line| line.cast_signed() > 0),
        };
        match self.context.python_function(&function, Entry::Usdt, kind) {
            Ok(index) => Some(index),
            Err(error) => {
                self.context.warn(format!("{} is not delayed: {error}", function.name));
                None
            }
        }
    }

    /// Judges the code locations anew that no target selected.
    pub(super) fn judge_anew(&mut self) {
        self.python.judged.retain(|_, function| function.is_some());
        self.find_lost_locations();
    }

    /// Judges the code locations whose announcement was lost.
    pub(super) fn find_lost_locations(&mut self) {
        let lost: Vec<_> = self
            .engine
            .python_locations()
            .filter(|(_, location)| !self.python.judged.contains_key(location))
            .collect();
        for (key, location) in lost {
            // Which process it was met in is lost too; any that is covered will do to read the source.
            let process = self.processes.iter().next().map_or(0, |(_, covered)| covered.index);
            self.python_code(process, location, &key);
        }
    }
}

/// The qualified names that a code location may have; `None` where the source file does not tell.
fn qualnames(source: &SourceIndex, name: &str, line: u32) -> Option<Vec<String>> {
    if source.has_errors() {
        return None; // the parser lost its way: a name may lack what stands around it
    }
    let found = source.find(name, line.cast_signed())?;
    Some(found.qualnames.iter().map(|name| (*name).to_owned()).collect())
}

/// A NUL-padded string of a key.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
