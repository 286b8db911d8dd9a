//! Experiments end when their time is up, whatever services take.

use std::time::Duration;

use super::*;

/// An experiment takes at most this many slices longer: one that was under way, and one at the end.
const OVER: u64 = 2;

#[test]
fn an_experiment_takes_no_longer_than_it_may() {
    for (unit, seconds, count) in [
        (MS, 10, 2),
        (MS, 10, 30),
        (30.0 * MS, 10, 3),
        (30.0 * MS, 40, 30),
        (5_000.0 * MS, 60, 5),
        (MS, 1, 3),
    ] {
        let names: Vec<String> = (0..count).map(|number| format!("f{number}")).collect();
        let functions: Vec<_> = names
            .iter()
            .map(|name| (name.clone(), function(1.0, 0.0), unit / f64::from(count) / 2.0))
            .collect();
        let total = Duration::from_secs(seconds);
        let noise = Noise::White(0.03);
        let measured = crate::simulated::sweep(unit, &functions, noise, total, 3);
        let (first, last) = (measured.slices.first().unwrap(), measured.slices.last().unwrap());
        let longest = measured.slices.windows(2).map(|pair| pair[1].start_ns.0 - pair[0].start_ns.0).max();
        let most = u64::try_from(total.as_nanos()).unwrap() + OVER * longest.unwrap();
        let took = last.end_ns.0 - first.start_ns.0;
        assert!(took <= most, "{unit} {seconds} {count}: {took} > {most} {:#?}", measured.phases);
        let is_whole = measured.phases.last().unwrap().kind == PhaseKind::Recover;
        // With units of 5 s there are too few units for anything but a census.
        assert_eq!(is_whole, unit < 100.0 * MS, "{:#?}", measured.phases);
        let why = measured.aborted.as_deref().unwrap_or_default();
        assert_eq!(is_whole, why.is_empty());
        assert!(
            is_whole || why.starts_with("time was up before anything was tried; with slices of "),
            "{why}"
        );
    }
}
