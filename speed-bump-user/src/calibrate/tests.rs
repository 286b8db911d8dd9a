#![allow(clippy::unwrap_used)]

use speed_bump_testing::{session::obstacle, skip};

use super::Bench;
use crate::{engine::bpf::Form, probe::site::SiteKind};

#[test]
fn programs_for_older_kernels_count_and_delay_here_too() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for form in [Form::Single, Form::Bounded, Form::Copied] {
        // Counts of calls and of delays are looked at on the way.
        let calibration = Bench::new(form, None).and_then(Bench::measure).unwrap();
        assert_eq!(calibration.form(), form);
        assert!(calibration.cost(SiteKind::SingleStep).floor.0 > 0, "{form:?}");
    }
}
