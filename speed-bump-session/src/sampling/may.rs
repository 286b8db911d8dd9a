//! Asks whether long work should go on.

use crate::{sys::clock::now, units::Nanos};

/// The least time between two questions.
const ASKED: Nanos = Nanos(10_000_000);

/// Asks whether to go on, but not more often than needed. After one "no", this does not ask again.
pub(super) struct MayGoOn<F> {
    ask: F,
    asked: Option<Nanos>,
    ended: bool,
}

impl<F: FnMut() -> bool> MayGoOn<F> {
    pub(super) fn asking(ask: F) -> Self {
        Self { ask, asked: None, ended: false }
    }

    /// Returns whether to go on.
    pub(super) fn go_on(&mut self) -> bool {
        let at = now();
        let is_due = self.asked.is_none_or(|asked| at.0 - asked.0 >= ASKED.0);
        if !self.ended && is_due {
            self.asked = Some(at);
            self.ended = !(self.ask)();
        }
        !self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_final() {
        let mut answers = [true, false, true].into_iter();
        let mut may = MayGoOn::asking(|| answers.next().unwrap_or(true));
        while may.go_on() {}
        std::thread::sleep(std::time::Duration::from_nanos(2 * ASKED.0));
        assert!(!may.go_on());
        assert_eq!(answers.next(), Some(true), "it is not asked again");
    }
}
