//! The numbers in Prometheus's text exposition format 0.0.4.
//!
//! Names and units follow its conventions: base units, `_total` for counters, states as 0 and 1. Names of
//! functions come from a process: they are first made printable and short, and then the encoder escapes them.

use prometheus::{
    Encoder as _, TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::{Numbers, SweepNumbers};
use crate::{
    experiment::record::PhaseKind, printable::printable_name, report::words::phase_name,
    stats::report::SessionReport,
};

/// The number of functions that have series of their own: the ones that were delayed most.
const FUNCTIONS: usize = 100;

const PHASES: [PhaseKind; 4] = [PhaseKind::Census, PhaseKind::Test, PhaseKind::Ladder, PhaseKind::Recover];

/// The text of all families.
pub(super) fn text(numbers: &Numbers) -> String {
    let mut families = Families::default();
    let build = [("version", env!("CARGO_PKG_VERSION")), ("commit", speed_bump_session::COMMIT)];
    families.gauge("speed_bump_build_info", "The version of speed-bump-ebpf.", [(labels(&build), 1.0)]);
    let active = f64::from(u8::from(numbers.session.is_some()));
    families.gauge("speed_bump_session_active", "1 while functions may be delayed.", [(Vec::new(), active)]);
    if let Some(session) = &numbers.session {
        families.session(session);
    }
    if let Some(sweep) = &numbers.sweep {
        families.sweep(sweep);
    }
    families.encoded()
}

type Sample = (Vec<LabelPair>, f64);

#[derive(Default)]
struct Families(Vec<MetricFamily>);

impl Families {
    fn session(&mut self, session: &SessionReport) {
        self.gauge(
            "speed_bump_processes",
            "Processes that the session covers, or has covered.",
            [(Vec::new(), session.processes as f64)],
        );
        let of = |value: fn(&crate::stats::report::TargetReport) -> f64| -> Vec<Sample> {
            let targets = session.targets.iter();
            targets.map(|target| (labels(&[("target", &target.id)]), value(target))).collect()
        };
        self.counter("speed_bump_calls_total", "Calls of functions of a target.", of(|of| of.calls as f64));
        self.counter(
            "speed_bump_delayed_calls_total",
            "Calls that were delayed.",
            of(|of| of.delayed as f64),
        );
        self.counter(
            "speed_bump_missed_calls_total",
            "Calls that the engine could not delay safely.",
            of(|of| of.missed as f64),
        );
        self.counter(
            "speed_bump_delivered_delay_seconds_total",
            "The sum of all delays.",
            of(|of| of.delivered_ns.0 as f64 / 1e9),
        );
    }

    fn sweep(&mut self, sweep: &SweepNumbers) {
        let phases = PHASES.map(|phase| {
            let is_on = f64::from(u8::from(sweep.phase == Some(phase)));
            (labels(&[("phase", phase_name(phase))]), is_on)
        });
        self.gauge("speed_bump_sweep_phase", "The phase that the sweep is in.", phases);
        let slices = [("true", sweep.slices), ("false", sweep.dropped)];
        self.counter(
            "speed_bump_sweep_slices_total",
            "Finished slices, by whether they count.",
            slices.map(|(counts, slices)| (labels(&[("counts", counts)]), slices as f64)),
        );
        self.gauge(
            "speed_bump_sweep_slowdown_ratio",
            "How much longer a unit of the last slice took than one without delays, as a share.",
            sweep.slowdown.map(|slowdown| (Vec::new(), slowdown)),
        );
        self.gauge(
            "speed_bump_sweep_time_left_seconds",
            "How long the phase may still take.",
            sweep.left.map(|left| (Vec::new(), left.as_secs_f64())),
        );
        self.gauge("speed_bump_sweep_guards", "Number of guards.", [(Vec::new(), sweep.guards as f64)]);
        let broken = f64::from(u8::from(sweep.guard_broken));
        self.gauge(
            "speed_bump_sweep_guard_broken",
            "1 if a guard failed, which ends all delays.",
            [(Vec::new(), broken)],
        );
        let mut delivered: Vec<_> = sweep.delivered.iter().collect();
        delivered.sort_by_key(|of| std::cmp::Reverse(of.delay));
        delivered.truncate(FUNCTIONS);
        let of = |value: fn(&super::Delivered) -> f64| -> Vec<Sample> {
            let named = |of: &&super::Delivered| {
                (labels(&[("function", &of.function), ("file", &of.file), ("line", &of.line)]), value(of))
            };
            delivered.iter().map(named).collect()
        };
        self.counter(
            "speed_bump_sweep_function_delay_seconds_total",
            "The sum of the delays of a function in all slices.",
            of(|of| of.delay.0 as f64 / 1e9),
        );
        self.counter(
            "speed_bump_sweep_function_delayed_calls_total",
            "Calls of a function in slices in which the function had delays.",
            of(|of| of.calls as f64),
        );
    }

    fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.add(name, help, MetricType::COUNTER, samples, |metric, value| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        });
    }

    fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.add(name, help, MetricType::GAUGE, samples, |metric, value| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        });
    }

    /// Adds a family, unless it has no samples: the encoder refuses a family without samples.
    fn add(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = Sample>,
        set: fn(&mut Metric, f64),
    ) {
        // Long names that are equal after cutting share a series.
        let mut series: Vec<Sample> = Vec::new();
        for (labels, value) in samples {
            match series.iter_mut().find(|(known, _)| *known == labels) {
                Some((_, sum)) => *sum += value,
                None => series.push((labels, value)),
            }
        }
        let metric = |(labels, value)| {
            let mut metric = Metric::from_label(labels);
            set(&mut metric, value);
            metric
        };
        let metrics: Vec<Metric> = series.into_iter().map(metric).collect();
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn encoded(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to memory cannot fail, and no family is empty.
        match TextEncoder::new().encode(&self.0, &mut bytes) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("# {error}\n"),
        }
    }
}

fn labels(of: &[(&str, &str)]) -> Vec<LabelPair> {
    of.iter()
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(printable_name(value));
            pair
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{exporter::Delivered, units::Nanos};

    #[test]
    fn a_sweep_has_its_phase_its_slices_and_its_guards() {
        let sweep = SweepNumbers {
            phase: Some(PhaseKind::Test),
            left: Some(Duration::from_millis(1_500)),
            slices: 12,
            dropped: 1,
            slowdown: None,
            delivered: vec![Delivered {
                function: "a\"b\\c\nd".to_owned(),
                file: "/srv/app.py".to_owned(),
                line: "7".to_owned(),
                calls: 7,
                delay: Nanos(1_250_000_000),
            }],
            guards: 2,
            guard_broken: true,
        };
        let text = text(&Numbers { session: None, sweep: Some(sweep) });
        for line in [
            "# TYPE speed_bump_sweep_slices_total counter",
            r#"speed_bump_sweep_phase{phase="test"} 1"#,
            r#"speed_bump_sweep_phase{phase="census"} 0"#,
            r#"speed_bump_sweep_slices_total{counts="true"} 12"#,
            "speed_bump_sweep_time_left_seconds 1.5",
            "speed_bump_sweep_guard_broken 1",
            "speed_bump_session_active 0",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}\n{text}");
        }
        assert!(!text.contains("slowdown"), "{text}");
        let delay = text.lines().find(|line| line.starts_with("speed_bump_sweep_function_delay"));
        assert!(
            delay.is_some_and(|line| line.contains(r#"function="a\"b\\c\\nd""#) && line.ends_with(" 1.25"))
        );
    }
}
