//! The times of a session as a profile, in the format and with the tables of Python's `pstats`.
//!
//! A function is identified by file, line and name. Calls count as in `cProfile`: resuming a generator or
//! coroutine is a call. Native functions, which `cProfile` does not see, have line 0.

mod edges;
mod limit;
mod marshal;
mod print;
mod sort;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::session::RecordedSession;
use crate::{TargetKind, demangle::for_people};
pub use edges::{Edges, print_edges};
pub use limit::{Limit, LimitError};
pub use marshal::pstats;
pub use print::{Printing, print};
pub use sort::{SortError, SortKey};

/// File, line and name, in the order of `pstats`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionKey {
    /// The path, or its last part.
    pub file: String,
    /// The line of its definition; 0 if unknown.
    pub line: u32,
    /// Name without the module: `co_qualname`, or a demangled symbol.
    pub name: String,
}

/// Counts and times of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Calls that began while no other call of the function was in progress on the thread.
    pub primitive_calls: u64,
    /// All calls.
    pub calls: u64,
    /// Time in the function without other functions of the profile.
    pub own_ns: u64,
    /// Time in the function with everything that it called.
    pub cumulative_ns: u64,
}

/// A profile. Functions keep the order in which they were added, as in `pstats`, which shows equal ones in
/// this order.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    functions: Vec<(FunctionKey, Entry)>,
    places: HashMap<FunctionKey, usize>,
    /// The callers of each function, if they were recorded.
    callers: HashMap<FunctionKey, BTreeMap<FunctionKey, Entry>>,
}

/// Why a session has no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProfile {
    /// No call was timed.
    #[error("no call was timed in this session: record one with --times")]
    NotTimed,
    /// No timed function was called.
    #[error("no timed function was called in this session: is the service under load?")]
    NothingCalled,
    /// Callers were not recorded.
    #[error("callers were not recorded in this session: record one with --times --callers")]
    NoCallers,
}

impl FunctionKey {
    fn new(file: &Path, line: Option<u32>, name: String) -> Self {
        Self { file: file.to_string_lossy().into_owned(), line: line.unwrap_or(0), name }
    }

    /// `app.py:12(handle)`, as `pstats` writes it.
    pub fn standard_name(&self) -> String {
        format!("{}:{}({})", self.file, self.line, self.name)
    }
}

impl Entry {
    /// `7`, or `7/5` if 5 of them are primitive.
    fn calls_in_words(&self) -> String {
        match self {
            Self { calls, primitive_calls, .. } if calls == primitive_calls => calls.to_string(),
            Self { calls, primitive_calls, .. } => format!("{calls}/{primitive_calls}"),
        }
    }

    fn add(&mut self, other: Self) {
        self.primitive_calls = self.primitive_calls.saturating_add(other.primitive_calls);
        self.calls = self.calls.saturating_add(other.calls);
        self.own_ns = self.own_ns.saturating_add(other.own_ns);
        self.cumulative_ns = self.cumulative_ns.saturating_add(other.cumulative_ns);
    }
}

impl Profile {
    /// The called and timed functions of a session.
    ///
    /// # Errors
    /// No function of the session was called and timed.
    pub fn from_session(session: &RecordedSession) -> Result<Self, NoProfile> {
        let mut profile = Self::default();
        let mut is_timed = false;
        for target in &session.targets {
            for function in &target.functions {
                let Some(times) = function.times else { continue };
                is_timed = true;
                let calls = function.calls.saturating_add(times.resumed);
                if calls == 0 {
                    continue;
                }
                let name = match target.kind {
                    TargetKind::Native => for_people(&function.name),
                    TargetKind::Python | TargetKind::Usdt => None,
                };
                let name = name.unwrap_or_else(|| function.name.clone());
                let key = FunctionKey::new(&function.file, function.line, name);
                let entry = Entry {
                    primitive_calls: times.primitive_calls.saturating_add(times.primitive_resumed),
                    calls,
                    own_ns: times.own_ns.0,
                    cumulative_ns: times.cumulative_ns.0,
                };
                for caller in function.callers.iter().flatten() {
                    let by = FunctionKey::new(&caller.file, caller.line, caller.name.clone());
                    let entry = Entry {
                        primitive_calls: caller.primitive_calls,
                        calls: caller.calls,
                        own_ns: caller.own_ns.0,
                        cumulative_ns: caller.cumulative_ns.0,
                    };
                    profile.count_call(key.clone(), by, entry);
                }
                profile.count(key, entry);
            }
        }
        match profile.functions.is_empty() {
            false => Ok(profile),
            true => Err(if is_timed { NoProfile::NothingCalled } else { NoProfile::NotTimed }),
        }
    }

    /// Adds the callers that were not counted themselves as functions. Such a function has no calls, and the
    /// time of the calls that it made. Programs that read profiles look up callers among the functions, and
    /// start at functions without callers.
    #[must_use]
    pub fn with_callers(mut self) -> Self {
        let mut missing: BTreeMap<FunctionKey, Entry> = BTreeMap::new();
        for (caller, made) in self.callers.values().flatten() {
            if !self.places.contains_key(caller) {
                let entry = Entry { cumulative_ns: made.cumulative_ns, ..Entry::default() };
                missing.entry(caller.clone()).or_default().add(entry);
            }
        }
        missing.into_iter().for_each(|(key, entry)| self.count(key, entry));
        self
    }

    /// Checks that callers were recorded.
    ///
    /// # Errors
    /// Callers were not recorded.
    pub fn check_callers(&self) -> Result<(), NoProfile> {
        if self.callers.is_empty() { Err(NoProfile::NoCallers) } else { Ok(()) }
    }

    /// Adds the counts of another profile.
    pub fn add(&mut self, other: &Self) {
        for (key, entry) in &other.functions {
            self.count(key.clone(), *entry);
        }
        for (callee, callers) in &other.callers {
            for (caller, entry) in callers {
                self.count_call(callee.clone(), caller.clone(), *entry);
            }
        }
    }

    /// The profile with file names without folders. Functions that become equal are added up.
    #[must_use]
    pub fn without_folders(&self) -> Self {
        let mut profile = Self::default();
        let short = |key: &FunctionKey| {
            let file = key.file.rsplit('/').next().unwrap_or_default().to_owned();
            FunctionKey { file, ..key.clone() }
        };
        for (key, entry) in &self.functions {
            profile.count(short(key), *entry);
        }
        for (callee, callers) in &self.callers {
            for (caller, entry) in callers {
                profile.count_call(short(callee), short(caller), *entry);
            }
        }
        profile
    }

    fn count_call(&mut self, callee: FunctionKey, caller: FunctionKey, entry: Entry) {
        self.callers.entry(callee).or_default().entry(caller).or_default().add(entry);
    }

    fn count(&mut self, key: FunctionKey, entry: Entry) {
        match self.places.get(&key).and_then(|place| self.functions.get_mut(*place)) {
            Some((_, known)) => known.add(entry),
            None => {
                self.places.insert(key.clone(), self.functions.len());
                self.functions.push((key, entry));
            }
        }
    }

    fn sum(&self, value: impl Fn(&Entry) -> u64) -> u64 {
        self.functions.iter().fold(0, |sum, (_, entry)| sum.saturating_add(value(entry)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn session(json: &str) -> RecordedSession {
        serde_json::from_str(json).unwrap()
    }

    const SESSION: &str = r#"{"duration_ns": 5, "targets": [
        {"kind": "py", "functions": [
            {"name": "f", "file": "/a/x.py", "line": 3, "calls": 5, "own_ns": 10, "cumulative_ns": 20,
             "primitive_calls": 4, "resumed": 2, "primitive_resumed": 1},
            {"name": "untimed", "file": "/a/x.py", "line": 9, "calls": 5},
            {"name": "f", "file": "/b/x.py", "line": 3, "calls": 1, "own_ns": 1, "cumulative_ns": 1,
             "primitive_calls": 1, "resumed": 0, "primitive_resumed": 0}]},
        {"kind": "native", "functions": [
            {"name": "_ZN1a1bEv", "file": "/lib/x.so", "line": null, "calls": 1, "own_ns": 1,
             "cumulative_ns": 1, "primitive_calls": 1, "resumed": 0, "primitive_resumed": 0}]}]}"#;

    #[test]
    fn calls_count_as_in_cprofile() {
        let profile = Profile::from_session(&session(SESSION)).unwrap();
        let names: Vec<String> = profile.functions.iter().map(|(key, _)| key.standard_name()).collect();
        assert_eq!(names, ["/a/x.py:3(f)", "/b/x.py:3(f)", "/lib/x.so:0(a::b())"]);
        let (_, first) = &profile.functions[0];
        assert_eq!((first.calls, first.primitive_calls, first.own_ns, first.cumulative_ns), (7, 5, 10, 20));
    }

    #[test]
    fn callers_that_were_not_counted_become_functions_without_calls() {
        let by = r#""callers": [
            {"name": "f", "file": "/a/x.py", "line": 3, "calls": 1, "primitive_calls": 1, "own_ns": 1,
             "cumulative_ns": 4},
            {"name": "<module>", "file": "/a/x.py", "line": 1, "calls": 1, "primitive_calls": 1, "own_ns": 1,
             "cumulative_ns": 5}],"#;
        let json = SESSION
            .replacen(r#""calls": 1, "own_ns""#, &format!(r#"{by} "calls": 1, "own_ns""#), 1)
            .replacen(r#""calls": 5, "own_ns""#, &format!(r#"{by} "calls": 5, "own_ns""#), 1);
        let profile = Profile::from_session(&session(&json)).unwrap();
        assert_eq!(profile.functions.len(), 3);
        let profile = profile.with_callers();
        let (key, entry) = profile.functions.last().unwrap();
        assert_eq!((profile.functions.len(), key.standard_name().as_str()), (4, "/a/x.py:1(<module>)"));
        assert_eq!(*entry, Entry { cumulative_ns: 10, ..Entry::default() });
    }

    #[test]
    fn profiles_are_added_and_folders_left_out() {
        let mut profile = Profile::from_session(&session(SESSION)).unwrap();
        profile.add(&profile.clone());
        let short = profile.without_folders();
        let (key, both) = &short.functions[0];
        assert_eq!((key.standard_name().as_str(), short.functions.len()), ("x.py:3(f)", 2));
        assert_eq!((both.calls, both.primitive_calls, both.own_ns), (16, 12, 22));
    }

    #[test]
    fn a_session_without_times_has_no_profile() {
        let none = r#"{"duration_ns": 5, "targets": [{"kind": "py", "functions": [
            {"name": "f", "file": "/a/x.py", "line": 3, "calls": 5}]}]}"#;
        assert_eq!(Profile::from_session(&session(none)).err(), Some(NoProfile::NotTimed));
    }
}
