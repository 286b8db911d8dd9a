//! Helpers that are still being loaded into processes where they are no longer wanted: each is loaded first,
//! and then leaves.

use crate::{
    presence::Joining,
    session::{
        bpf::{context::Context, phase::LateJoin},
        functions::FunctionRange,
    },
    units::Pid,
};

/// All of them.
#[derive(Debug, Default)]
pub(in crate::session::bpf) struct GivenUp(Vec<OnItsWay>);

#[derive(Debug)]
struct OnItsWay {
    pid: Pid,
    joining: Joining,
    range: FunctionRange,
}

impl GivenUp {
    /// The helper is no longer wanted in this process.
    pub(in crate::session::bpf) fn add(&mut self, pid: Pid, late: LateJoin) {
        if let Some((joining, range)) = late.way {
            self.0.push(OnItsWay { pid, joining, range });
        }
    }

    /// Whether one is being loaded into this process.
    pub(in crate::session::bpf) fn has(&self, pid: Pid) -> bool {
        self.0.iter().any(|on_its_way| on_its_way.pid == pid)
    }

    /// Gives back the numbers of those whose loading has ended.
    pub(in crate::session::bpf) fn poll(&mut self, context: &Context) {
        let is_over = |on_its_way: &mut OnItsWay| on_its_way.joining.is_finished();
        for OnItsWay { joining, range, .. } in self.0.extract_if(.., is_over).collect::<Vec<_>>() {
            // Dropping a loaded helper makes it leave.
            drop(joining);
            context.give_back(range);
        }
    }

    /// Waits for all of them, and makes them leave.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
