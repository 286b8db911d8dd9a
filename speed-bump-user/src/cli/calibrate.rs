//! `calibrate`: measures and prints what probes cost on this machine.

use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use speed_bump_abi::Coldness;

use super::{
    args::CalibrateArgs,
    exit::{Failure, SYSTEM},
    terminal::{print, print_as_is},
};
use crate::{
    calibrate::kept::KeptCosts,
    engine::bpf::Form,
    prepare::{PrepareError, costs, host::Host},
    printable::printable_json,
    probe::cost::SiteCost,
    probe::site::SiteKind,
    units::Nanos,
};

#[derive(Serialize)]
struct Table<'a> {
    kernel: String,
    links: &'static str,
    costs: &'a [SiteCost],
    /// Kinds that are never probed on this machine, because forked children would die of a probe there.
    deadly_in_children: Vec<SiteKind>,
}

/// Measures the costs, keeps them for later sessions, and prints them.
pub fn run(arguments: &CalibrateArgs) -> Result<ExitCode, Failure> {
    let host = Host::read();
    host.check()?;
    let kept = KeptCosts::for_kernel(&host.kernel);
    let calibration = costs::measure(&host.kernel, &kept).map_err(PrepareError::from)?;
    let table = Table {
        kernel: host.kernel.release,
        links: match calibration.form() {
            Form::Multi => "uprobe_multi: one link for all sites of a file",
            Form::Single => "perf events: one for each site",
            Form::Bounded => "perf events: one for each site; programs without bpf_loop",
            Form::Copied => "perf events: one for each site; programs without bpf_loop and cookies",
        },
        costs: calibration.costs(),
        deadly_in_children: calibration
            .costs()
            .iter()
            .map(|cost| cost.kind)
            .filter(|kind| !calibration.survives_forks(*kind))
            .collect(),
    };
    if arguments.json {
        let text = serde_json::to_string_pretty(&table)
            .context("cannot express the table as JSON")
            .map_err(|error| Failure::new(SYSTEM, error))?;
        print_as_is(&printable_json(&text));
    } else {
        print(format_args!("kernel {}, {}", table.kernel, table.links));
        print(format_args!(
            "{:<34} {:>12} {:>12} {:>12}",
            "instruction at the site", "unselected", "floor", "overhead"
        ));
        for SiteCost { kind, unselected, floor, overhead } in table.costs {
            print(format_args!(
                "{:<34} {:>9} ns {:>9} ns {:>9} ns",
                kind.to_string(),
                unselected.0,
                floor.0,
                overhead.0
            ));
        }
        for kind in &table.deadly_in_children {
            print(format_args!(
                "{kind}: not used here, because forked children die of a probe there (tried)"
            ));
        }
        print(format_args!("unselected: what a call that is only counted costs the target"));
        print(format_args!(
            "floor:      the smallest delay of a trigger there; a shorter request is clamped to it"
        ));
        print(format_args!("overhead:   what a trigger costs around the spin; subtracted from every delay"));
        let told = ["the BPF program's look-ups take", "its walk over memory after the last spins took"];
        for (coldness, told) in calibration.coldness().iter().zip(told) {
            if let Some(line) = points(coldness) {
                print(format_args!(
                    "With cold caches a trap costs more, which is subtracted as well. If {told} longer than \
                     {} ns: {line}",
                    coldness.warm_ns
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The points of the line after the first, as part of a sentence.
fn points(coldness: &Coldness) -> Option<String> {
    let segments = coldness.segments.iter().filter(|segment| segment.length_ns > 0);
    let points = segments.scan(coldness.warm_ns, |told, segment| {
        *told += segment.length_ns;
        Some(format!("{} more at {told} ns", Nanos(coldness.more_ns(u64::from(*told)))))
    });
    let points = points.collect::<Vec<_>>().join(", ");
    (!points.is_empty()).then_some(points)
}
