//! Helpers to which we sent other targets, or the order to time calls, and which have yet to apply this.

use std::{
    sync::Weak,
    thread,
    time::{Duration, Instant},
};

use speed_bump_abi::control_block::{State, notice};

use crate::{presence::INTERPRETER_PATIENCE, python::helper::Block};

/// How often the waiting loop checks the helpers.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Helpers, each with the generation of targets that we sent to it. Code that waits for them must not hold a
/// lock that others need.
#[derive(Debug, Default)]
pub(crate) struct ToldHelpers(Vec<(Weak<Block>, u32)>);

impl ToldHelpers {
    /// Adds a helper. The session holds the helper's block as long as it covers the helper's process.
    pub(super) fn add(&mut self, block: Weak<Block>, generation: u32) {
        self.0.push((block, generation));
    }

    /// Whether there are any helpers.
    pub(super) fn are_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Waits until all helpers have applied their generation, but no longer than an interpreter may take for
    /// this. Does not wait for helpers that are not active or that leave.
    pub(super) fn wait(&self) {
        let deadline = Instant::now() + INTERPRETER_PATIENCE;
        while self.0.iter().any(is_awaited) && Instant::now() < deadline {
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn is_awaited((block, generation): &(Weak<Block>, u32)) -> bool {
    let report = block.upgrade().and_then(|block| block.report().ok());
    report.is_some_and(|report| {
        report.state == Some(State::Active)
            && report.notices & notice::GIL_KEPT == 0
            && report.applied_generation != *generation
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_whose_process_is_let_go_is_not_waited_for() {
        let mut told = ToldHelpers::default();
        assert!(!told.are_any());
        told.add(Weak::new(), 2);
        assert!(told.are_any());
        let began = Instant::now();
        told.wait();
        assert!(began.elapsed() < INTERPRETER_PATIENCE);
    }
}
