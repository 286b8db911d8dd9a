//! Helpers on their way into processes where they are not wanted any more: each gets there first, and leaves.

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
    /// A helper is not to come into this process any more.
    pub(in crate::session::bpf) fn add(&mut self, pid: Pid, late: LateJoin) {
        if let Some((joining, range)) = late.way {
            self.0.push(OnItsWay { pid, joining, range });
        }
    }

    /// Whether one is on its way into this process.
    pub(in crate::session::bpf) fn has(&self, pid: Pid) -> bool {
        self.0.iter().any(|on_its_way| on_its_way.pid == pid)
    }

    /// Gives the numbers back of those that have come to the end of their way.
    pub(in crate::session::bpf) fn poll(&mut self, context: &Context) {
        let is_over = |on_its_way: &mut OnItsWay| on_its_way.joining.is_finished();
        for OnItsWay { joining, range, .. } in self.0.extract_if(.., is_over).collect::<Vec<_>>() {
            // Dropping what came sends it away.
            drop(joining);
            context.give_back(range);
        }
    }

    /// Waits for all of them, and has them leave.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
