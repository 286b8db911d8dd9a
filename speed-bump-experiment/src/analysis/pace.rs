//! How much a service changes its pace by itself, from one stretch of some seconds to another.

use statrs::statistics::Statistics as _;

use super::validity::controls;
use crate::record::{By, Measured, Slice, Treatment};

/// With fewer stretches, the changes are unknown.
const MIN_STRETCHES: usize = 4;
/// The service itself does not cause changes of more standard deviations than this.
const FAR: f64 = 2.5;

/// Whether units took longer by the share `slower` in one stretch of `stretch` ns than in others, and such
/// stretches differ by less without delays. True if it is unknown how much they differ.
pub(super) fn is_slower(measured: &Measured, slower: f64, stretch: f64) -> bool {
    own_changes(measured, stretch).is_none_or(|changes| slower > FAR * changes)
}

/// The standard deviation of the time per unit in stretches of `stretch` ns without delays, as a share of the
/// mean.
fn own_changes(measured: &Measured, stretch: f64) -> Option<f64> {
    let without = measured.slices.iter().filter(|slice| slice.counts());
    let without: Vec<&Slice> = without.filter(|slice| slice.treatment == Treatment::Control).collect();
    let number = |slice: &Slice| (slice.start_ns.0 as f64 / stretch) as u64;
    let stretches = without.chunk_by(|a, b| number(a) == number(b));
    let times: Vec<f64> =
        stretches.filter_map(|slices| controls(slices.iter().copied(), By::Throughput)).collect();
    if times.len() < MIN_STRETCHES || stretch <= 0.0 {
        return None;
    }
    Some((&times).std_dev() / (&times).mean())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::PhaseKind, testing};

    #[test]
    fn what_a_service_does_by_itself_is_not_blamed_on_others() {
        let mut measured = testing::measured(&[]);
        assert!(is_slower(&measured, 0.05, 10e9), "nothing is known of it");
        for second in 0..60_u64 {
            // Units take half as long again for ten seconds of twenty.
            let units = if second / 10 % 2 == 0 { 1_000.0 } else { 667.0 };
            let slice = testing::slice(PhaseKind::Confirm, 0, Treatment::Control, units, 0);
            measured.slices.push(testing::at(second, slice));
        }
        assert!(!is_slower(&measured, 0.3, 10e9));
        assert!(is_slower(&measured, 0.9, 10e9));
    }
}
