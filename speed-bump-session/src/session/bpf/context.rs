//! What all parts of a session share: its state, and the code that reports events.

use crate::{
    probe::{
        plan::{Entry, SelectedFunction},
        resolve::Resolver,
        site::SiteKind,
    },
    python::helper::Room,
    session::{error::SessionError, functions::FunctionRange, settings::Settings, state::State},
    targets::{Target, TargetIndex, TargetKind},
    units::Pid,
};

/// How many functions' counters we clear before we give up the lock for a moment.
const AT_ONCE: u32 = 256;

/// What all parts of a session share.
pub(super) struct Context {
    pub(super) state: State,
    pub(super) resolver: Resolver,
    pub(super) settings: Settings,
    /// Whether the session times calls now.
    pub(super) is_timing: bool,
    /// Targets that were just added. If they select nothing, we tell the user why.
    pub(super) new_targets: Vec<TargetIndex>,
}

impl Context {
    /// Reports a problem to the user. We report the same text only once.
    pub(super) fn warn(&mut self, warning: String) {
        self.state.warn(warning);
    }

    /// Whether a process was named on the command line.
    pub(super) fn is_root(&self, pid: Pid) -> bool {
        self.state.roots.contains(&pid)
    }

    /// Records how a target's calls become visible, for the report.
    pub(super) fn note_entry(&mut self, target: TargetIndex, entry: Entry, kind: SiteKind) {
        let floors = self.resolver.calibration().floors(kind);
        self.state.note_entry(target, entry, floors);
    }

    /// The index of a Python function whose first call a BPF program has announced.
    ///
    /// # Errors
    /// There is no room for the function.
    pub(super) fn python_function(
        &mut self,
        function: &SelectedFunction,
        entry: Entry,
        kind: SiteKind,
    ) -> Result<u32, SessionError> {
        let index = self.state.doses().enter(function)?;
        self.note_entry(function.target, entry, kind);
        Ok(index)
    }

    /// Reserves indices for the functions of a helper. Takes the first of these rooms for which enough
    /// indices are left.
    ///
    /// # Errors
    /// There are not even enough indices for the last room.
    pub(super) fn reserve(&self, rooms: &[Room]) -> Result<(FunctionRange, Room), SessionError> {
        let mut reserved = Err(SessionError::Full { things: "functions", capacity: 0 });
        for room in rooms {
            reserved = self.state.doses().functions.reserve(room.functions).map(|range| (range, *room));
            if reserved.is_ok() {
                break;
            }
        }
        reserved
    }

    /// Gives back a range of functions. The counts of these functions stay in the report.
    pub(super) fn give_back(&self, range: FunctionRange) {
        self.state.doses().give_back(range);
        for part in range.parts(AT_ONCE) {
            // Between two parts, other threads may take the lock.
            self.state.doses().wipe(part);
        }
    }

    /// The lines of targets of a kind whose caller no helper has found, or no file of the processes has; each
    /// with the caller.
    pub(super) fn without_caller(&self, kind: TargetKind) -> Vec<String> {
        let targets = self.resolver.targets();
        let (found, ways) = (&self.state.native_callers_found, &self.state.ways);
        let missing = match kind {
            TargetKind::Python => targets.without_caller(kind, self.state.callers_found),
            // Where nothing is called, it was not checked who calls.
            TargetKind::Native | TargetKind::Usdt => {
                let missing = targets.without_caller(kind, u64::from(*found)).into_iter();
                missing.filter(|of| ways.contains_key(of)).collect()
            }
        };
        let missing = missing.into_iter().filter_map(|index| targets.get(index));
        let told = |target: &Target| {
            let (line, text, caller) = (target.line, &target.text, target.caller_pattern()?);
            Some(format!("line {line}: `{text}`: no function matches `caller={caller}`"))
        };
        missing.filter_map(told).collect()
    }

    /// The Python targets that select none of the known functions.
    pub(super) fn without_functions(&self) -> Vec<TargetIndex> {
        let functions = &self.state.doses().functions;
        let mut seen: Vec<TargetIndex> = functions.iter().map(|(_, function)| function.target).collect();
        seen.sort_unstable();
        seen.dedup();
        let targets = self.resolver.targets().iter();
        let python = targets.filter(|(_, target)| target.kind == TargetKind::Python);
        python.map(|(index, _)| index).filter(|index| seen.binary_search(index).is_err()).collect()
    }
}
