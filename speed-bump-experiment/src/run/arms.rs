//! The arms of an experiment: the functions, or groups of them, that it asks about.

use crate::{
    groups::{GroupBy, groups},
    record::{Measured, Treatment},
};

/// The functions or groups that are worth an experiment if a unit takes `unit` ns, by own time, the longest
/// first. Adds the groups to the record.
pub(crate) fn arms(measured: &mut Measured, unit: f64, by: Option<GroupBy>) -> Vec<Treatment> {
    let mut arms: Vec<Treatment> = match by {
        None => {
            let worth_it = measured.worth_it(unit);
            worth_it.map(|(candidate, _)| Treatment::Function { candidate }).collect()
        }
        Some(by) => {
            measured.groups = groups(measured.can_be_delayed(unit), by);
            let least = measured.least_own(unit);
            let numbered = (0..).zip(&measured.groups);
            let is_worth_it = |members: &[u32]| {
                members.iter().any(|of| measured.own_of(*of).is_none())
                    || members.iter().filter_map(|of| measured.own_of(*of)).sum::<f64>() >= least
            };
            // The smallest delays of all its functions together.
            let floors = |members: &[u32]| -> f64 {
                let of = members.iter().filter_map(|of| measured.candidates.get(*of as usize));
                of.map(|of| measured.calls_per_unit(of) * of.floor_ns.0 as f64).sum()
            };
            let most = measured.rules.max_slowdown * unit;
            let can_be = |members: &[u32]| is_worth_it(members) && floors(members) <= most;
            let worth_it = numbered.filter(|(_, group)| can_be(&group.members));
            worth_it.map(|(group, _)| Treatment::Group { group }).collect()
        }
    };
    let measured = &*measured;
    let own = |arm: &Treatment| -> f64 {
        measured.members(*arm).iter().filter_map(|of| measured.own_of(*of)).sum()
    };
    arms.sort_by(|a, b| own(b).total_cmp(&own(a)));
    arms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::Sampling, simulated::Function, testing};

    /// Sampling chose functions by their time; the user need not.
    #[test]
    fn functions_that_the_user_names_are_tried_however_little_time_they_take() {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let mut measured = testing::measured(&[("render", function, 300), ("begun", function, 0)]);
        assert_eq!(arms(&mut measured, 1e6, None).len(), 2);
        measured.sampling = Some(Sampling::default());
        assert_eq!(arms(&mut measured, 1e6, None).len(), 1);
        // Of a thousand functions, only those that may matter are tried.
        let many: Vec<(String, u64)> =
            (0..1_000).map(|of| (format!("f{of}"), u64::from(of < 3) * 300)).collect();
        let many: Vec<_> = many.iter().map(|(name, own)| (name.as_str(), function, *own)).collect();
        let mut measured = testing::measured(&many);
        assert_eq!(arms(&mut measured, 1e6, None).len(), 3);
    }
}
