//! The tables: the loss of undelayed calls, and the accuracy of delays.

use std::fmt::Write as _;

use super::{dose::Dose, lost::Lost};

/// A peer's name, and what calls lost to it.
type Row = (String, Vec<(Dose, Lost)>);

/// The loss of a call that is not delayed, in ns; a row for each peer.
pub(super) fn undelayed(rows: &[Row]) -> String {
    let mut text = format!(
        "  {:<26} {:>10} {:>10} {:>10} {:>10} {:>12}\n",
        "", "delay 0", "seldom", "closed", "unmatched", "after sleep"
    );
    for (name, all) in rows {
        let call = |dose| ns(find(all, dose).map(|lost| lost.call));
        let matched = find(all, Dose::Each(0));
        let (unmatched, slept) = (ns(matched.map(|lost| lost.next)), ns(matched.map(|lost| lost.slept)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {name:<26} {:>10} {:>10} {:>10} {unmatched:>10} {slept:>12}",
            call(Dose::Each(0)),
            call(Dose::Seldom),
            call(Dose::Closed),
        );
    }
    text
}

/// The loss of delayed calls; a row for each delay and peer that can do it.
pub(super) fn delayed(rows: &[Row]) -> String {
    let mut text = format!(
        "  {:<26} {:>10} {:>10} {:>10} {:>10} {:>12} {:>10}\n",
        "", "requested", "lost", "error", "99 of 100", "after sleep", "next call"
    );
    for dose in Dose::OPEN {
        let Dose::Each(delay @ 1..) = dose else { continue };
        for (name, all) in rows {
            let Some(lost) = find(all, dose) else { continue };
            // As above.
            let _ = writeln!(
                text,
                "  {name:<26} {delay:>10} {:>10.0} {:>10} {:>10} {:>12} {:>10.0}",
                lost.call,
                error(lost.call, delay),
                error(lost.call_99, delay),
                error(lost.slept, delay),
                lost.next,
            );
        }
    }
    text
}

fn find(all: &[(Dose, Lost)], dose: Dose) -> Option<Lost> {
    all.iter().find(|(of, _)| *of == dose).map(|(_, lost)| *lost)
}

fn ns(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

/// How much more than requested was lost.
fn error(lost: f64, delay_ns: u64) -> String {
    let requested = delay_ns as f64;
    format!("{:.2} %", 100.0 * (lost - requested) / requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_cannot_do_is_no_row() {
        let lost = |call| Lost { call, call_99: call + 100.0, next: 7.0, slept: call + 500.0 };
        let peers = [
            ("one".to_owned(), vec![(Dose::Each(0), lost(33.0)), (Dose::Each(10_000), lost(10_020.0))]),
            ("other".to_owned(), vec![(Dose::Each(0), lost(340.0))]),
        ];
        let undelayed = undelayed(&peers);
        let rows: Vec<Vec<&str>> = undelayed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["one", "33", "-", "-", "7", "533"]);
        assert_eq!(rows[2], ["other", "340", "-", "-", "7", "840"]);
        let delayed = delayed(&peers);
        let rows: Vec<Vec<&str>> = delayed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1], ["one", "10000", "10020", "0.20", "%", "1.20", "%", "5.20", "%", "7"]);
    }
}
