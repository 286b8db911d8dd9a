//! Fuzzes reports: any user may have written a record.

use speed_bump_experiment::record::{Experiment, Measured};

use crate::{
    printable::is_visible,
    report::{
        compare::{self, compare},
        csv, html, markdown,
        profile::{Edges, Printing, Profile, print, print_edges, pstats},
        session::RecordedSession,
        text::{self, Style},
        trace_events::trace,
    },
};

/// The most slices of a record that we process here, so that a run does not take long.
const SLICES: usize = 2_000;
/// The largest page, in bytes.
const PAGE: usize = 300_000;

/// Any bytes as the JSON of a sweep, or of a session.
pub fn report(bytes: &[u8]) {
    if let Ok(measured) = serde_json::from_slice::<Measured>(bytes) {
        sweep(measured);
    }
    let session = serde_json::from_slice::<RecordedSession>(bytes);
    if let Some(profile) = session.ok().and_then(|session| Profile::from_session(&session).ok()) {
        let profile = profile.with_callers();
        assert!(pstats(&profile).starts_with(b"{("));
        assert_visible(&print(&profile, &Printing::default()));
        assert_visible(&print(&profile.without_folders(), &Printing::default()));
        for edges in [Edges::Callers, Edges::Callees] {
            assert_visible(&print_edges(&profile, edges, &Printing::default(), 3));
        }
    }
}

fn sweep(measured: Measured) {
    if measured.slices.len() > SLICES {
        return;
    }
    let experiment = Experiment::new(measured);
    for columns in [20, 80, usize::MAX] {
        assert_visible(&text::render(&experiment, Style { columns, colour: false }));
        assert_visible(&compare::text::render(&compare(&experiment, &experiment), columns));
    }
    assert_visible(&markdown::render(&experiment));
    assert_visible(&csv::render(&experiment));
    let page = html::render(&experiment);
    assert!(page.len() <= PAGE, "{} bytes", page.len());
    assert_visible(&page);
    assert!(serde_json::to_string(&trace(&experiment)).is_ok());
}

/// Checks that a text has no characters that a terminal would execute, and no invisible ones.
fn assert_visible(text: &str) {
    let hidden = text.chars().find(|c| *c != '\n' && !is_visible(*c));
    assert!(hidden.is_none(), "{hidden:?}");
}
