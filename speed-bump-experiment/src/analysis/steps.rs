//! Describes steps that are counted in place of long units.

use crate::record::{InnerUnit, StepsOfUnits, Unit};

/// What the units are: calls of a function, so many in each longer unit.
pub(super) fn counted(inner: &InnerUnit, unit: &Unit) -> String {
    format!(
        "units take long, so steps inside of them were counted: a {} is one of {}, of each {}; times are \
         those of a step",
        unit.name,
        observed(inner),
        inner.inside
    )
}

/// Why steps do not count the progress of the longer units.
pub(super) fn changed(inner: &InnerUnit, unit: &Unit) -> String {
    let InnerUnit { inside, census, experiment, .. } = inner;
    let what = match (census, experiment) {
        (None, None) => "no unit ended that could tell".to_owned(),
        (None, Some(StepsOfUnits { between: [least, most], .. })) => {
            format!("some made {least:.0}, and others {most:.0}")
        }
        (Some(_), _) => format!("each made {}", observed(inner)),
    };
    format!(
        "a {} is no fixed step of a {inside}: {what}; name what counts work (--progress), or take more time \
         (--for)",
        unit.name
    )
}

/// `16.0 in the census, and 16.1 in the experiment`.
fn observed(inner: &InnerUnit) -> String {
    let parts = [(inner.census, "census"), (inner.experiment, "experiment")];
    let part =
        |(steps, part): (Option<StepsOfUnits>, &str)| Some(format!("{:.1} in the {part}", steps?.in_unit()));
    parts.into_iter().filter_map(part).collect::<Vec<_>>().join(", and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_described_by_what_was_observed() {
        let unit = Unit { name: "call of step (llm.py)".to_owned(), source: String::new() };
        let of = |units, steps, between| Some(StepsOfUnits { units, steps, between });
        let inside = "call of generate (llm.py)".to_owned();
        let mut inner = InnerUnit {
            inside,
            under_way: 1.0,
            census: of(2.0, 32.0, [16.0, 16.0]),
            experiment: of(10.0, 161.0, [16.0, 17.0]),
        };
        assert_eq!(
            counted(&inner, &unit),
            "units take long, so steps inside of them were counted: a call of step (llm.py) is one \
             of 16.0 in the census, and 16.1 in the experiment, of each call of generate (llm.py); times are \
             those of a step"
        );
        inner.experiment = of(10.0, 300.0, [16.0, 40.0]);
        assert!(changed(&inner, &unit).contains("each made 16.0 in the census, and 30.0 in the experiment"));
        inner.census = None;
        assert!(changed(&inner, &unit).contains("some made 16, and others 40"));
        inner.experiment = None;
        assert!(changed(&inner, &unit).contains("no unit ended that could tell"));
    }
}
