//! What a sweep says if sampling saw too little.

use super::{super::error::SweepError, Found, NO_TARGET, TOLD};

impl Found {
    /// The remark if sampling may have missed functions that matter.
    pub(super) fn blind(&self) -> String {
        let mut text = format!(
            "{}: what takes time may not be among the functions that were seen, so nothing is ranked. Name \
             functions with --target PATTERN",
            self.unattributed().unwrap_or_default()
        );
        for why in &self.profile.remarks {
            text += "; ";
            text += why;
        }
        text
    }

    /// The interpreter's time for functions that were not seen, if it is large enough to report.
    pub(super) fn unattributed(&self) -> Option<String> {
        let share = self.profile.unattributed().filter(|share| *share >= TOLD)?;
        Some(format!(
            "{:.0} % of the time that the Python interpreter took could not be attributed to any function",
            share * 100.0
        ))
    }

    /// The error if there is nothing to ask about.
    pub(in super::super) fn nothing_sampled(&self) -> SweepError {
        SweepError::NothingSampled(self.nothing())
    }

    fn nothing(&self) -> String {
        let mut text = "sampling saw no function that could be slowed down: is the service under load? Name \
                        functions with --target PATTERN"
            .to_owned();
        for why in self.profile.remarks.iter().chain(&self.unattributed()) {
            text += "; ";
            text += why;
        }
        if !self.left_out.is_empty() {
            text += &format!("; of {} functions {NO_TARGET}", self.left_out.len());
        }
        if let Some(clock) = &self.profile.clock {
            for (what, samples) in &clock.elsewhere {
                text += &format!("; {samples} of {} samples were in {what}", clock.samples);
            }
        }
        text
    }
}
