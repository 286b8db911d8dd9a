//! Helpers that we are still loading into processes where we no longer want them. We load each to the end,
//! and then make it leave.

use crate::{
    presence::Joining,
    session::{
        bpf::{context::Context, phase::LateJoin},
        functions::FunctionRange,
    },
    units::Pid,
};

/// All helpers that we no longer want.
#[derive(Debug, Default)]
pub(in crate::session::bpf) struct GivenUp(Vec<OnItsWay>);

#[derive(Debug)]
struct OnItsWay {
    pid: Pid,
    joining: Joining,
    range: FunctionRange,
}

impl GivenUp {
    /// Adds the helper that we are loading into this process.
    pub(in crate::session::bpf) fn add(&mut self, pid: Pid, late: LateJoin) {
        if let Some((joining, range)) = late.way {
            self.0.push(OnItsWay { pid, joining, range });
        }
    }

    /// Whether we are loading a helper into this process that we no longer want.
    pub(in crate::session::bpf) fn has(&self, pid: Pid) -> bool {
        self.0.iter().any(|on_its_way| on_its_way.pid == pid)
    }

    /// Gives back the indices of helpers whose loading has ended.
    pub(in crate::session::bpf) fn poll(&mut self, context: &Context) {
        let is_over = |on_its_way: &mut OnItsWay| on_its_way.joining.is_finished();
        for OnItsWay { joining, range, .. } in self.0.extract_if(.., is_over).collect::<Vec<_>>() {
            // If the helper has been loaded, dropping it makes it leave.
            drop(joining);
            context.give_back(range);
        }
    }

    /// Waits until all helpers are loaded, and makes them leave.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
