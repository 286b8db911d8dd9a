//! Finds differences between two experiments that limit a comparison.

use super::Difference;
use crate::{
    analysis::findings::idle,
    record::{By, Experiment},
    units::Nanos,
};

/// From this relative difference on, the time per unit counts as different.
const OTHER_PACE: f64 = 0.1;
/// From this difference of shares on, load counts as different.
const OTHER_LOAD: f64 = 0.15;

/// All differences, fatal ones first.
pub(super) fn differences(before: &Experiment, after: &Experiment) -> Vec<Difference> {
    let (one, other) = (&before.measured, &after.measured);
    let mut found = Vec::new();
    let mut add = |differs: bool, fatal: bool, text: String| {
        if differs {
            found.push(Difference { fatal, text });
        }
    };
    let unit = |of: &Experiment| format!("{} ({})", of.measured.unit.name, of.measured.unit.source);
    add(one.unit != other.unit, true, format!("the unit was {}, and is {}", unit(before), unit(after)));
    let by = |by: By| if by == By::Latency { "latencies" } else { by.name() };
    add(one.by != other.by, true, format!("{} were compared, and now {}", by(one.by), by(other.by)));
    let holds = [before, after].map(|of| of.findings.validity.holds);
    add(!holds[0], true, "the first experiment's own checks failed".to_owned());
    add(!holds[1], true, "the second experiment's own checks failed".to_owned());
    add(one.cpu != other.cpu, true, format!("the processor was {}, and is {}", one.cpu, other.cpu));
    add(one.kernel != other.kernel, false, format!("the kernel was {}, and is {}", one.kernel, other.kernel));
    let version = |of: &Experiment| {
        let versions = &of.measured.versions;
        format!("{} ({})", versions.tool, versions.commit)
    };
    add(
        one.versions != other.versions,
        false,
        format!("speed-bump-ebpf was {}, and is {}", version(before), version(after)),
    );
    let open = [before, after].map(|of| of.findings.open_loop);
    // If one experiment does not know what set the throughput, no function was shown to matter in it. A
    // function that matters in the other one is then a regression to report.
    let is_other = open[0].zip(open[1]).is_some_and(|(was, is)| was != is);
    add(
        is_other,
        true,
        "in one of them arrivals set the throughput, in the other the service does".to_owned(),
    );
    let busy = [one, other].map(|of| of.around.and_then(|around| around.processors_busy));
    if let [Some(was), Some(is)] = busy {
        let text = format!(
            "processors were busy for {:.0} % of the time, and now for {:.0} %",
            was * 100.0,
            is * 100.0
        );
        add((was - is).abs() > OTHER_LOAD, false, text);
    }
    if let (Some(was), Some(is)) = (idle(one), idle(other)) {
        let text = format!(
            "no unit was in progress for {:.0} % of the time, and now for {:.0} %",
            was * 100.0,
            is * 100.0
        );
        add((was - is).abs() > OTHER_LOAD, false, text);
    }
    let times = [before, after].map(|of| of.findings.time_per_unit_ns);
    if let [Some(was), Some(is)] = times {
        let text = format!(
            "a unit took {}, and takes {}: worth is a share of that",
            Nanos(was as u64),
            Nanos(is as u64)
        );
        add((is / was - 1.0).abs() > OTHER_PACE, false, text);
    }
    found.sort_by_key(|of| !of.fatal);
    found
}

#[cfg(test)]
mod tests {
    use super::{super::tests::experiment, *};

    #[test]
    fn other_machines_and_units_are_differences() {
        let before = experiment(3e5, 1);
        let mut after = before.clone();
        assert_eq!(differences(&before, &after), []);
        after.measured.cpu = "another".to_owned();
        after.measured.kernel = "7.2".to_owned();
        after.measured.unit.name = "call".to_owned();
        after.findings.time_per_unit_ns = after.findings.time_per_unit_ns.map(|time| time * 1.5);
        let found = differences(&before, &after);
        let fatal: Vec<bool> = found.iter().map(|of| of.fatal).collect();
        assert_eq!(fatal, [true, true, false, false], "{found:?}");
        assert!(found[1].text.contains("the processor was a processor, and is another"), "{found:?}");
    }
}
