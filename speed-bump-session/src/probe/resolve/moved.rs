//! Functions whose code the process does not run from the file, because it has replaced the memory.
//!
//! node does so with `--use-largepages`, and BOLT with `--hugify`: they copy the code to huge pages, which
//! belong to no file. The kernel still accepts a probe, because the file exists, but no call ever hits the
//! probe.

use super::native::FileSelection;
use crate::{
    probe::plan::{PlannedSite, Remark},
    process::{MappedFile, Mappings, Process},
    targets::TargetIndex,
};

/// The most functions that we name.
const NAMED: usize = 3;

/// Whether the process runs the code of these sites from the file. True if there are no sites.
pub(super) fn is_run(mapped: &MappedFile, sites: &[PlannedSite]) -> bool {
    sites.is_empty() || sites.iter().any(|site| mapped.addresses_of(site.offset).next().is_some())
}

/// Why no call of a function would hit its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    /// The process is about to move its code.
    Soon,
    /// The process runs a copy.
    Copied,
    /// The process has not mapped the code.
    NotMapped,
}

/// Remarks on selected functions whose code the process does not run from the file. If the process is about
/// to move its code, `is_near` says why.
pub(super) fn remarks(
    selection: &FileSelection,
    process: &Process,
    mapped: &MappedFile,
    mappings: &Mappings,
    is_near: Option<&str>,
) -> Vec<Remark> {
    let mut by_target: Vec<(TargetIndex, Missed, Vec<&str>)> = Vec::new();
    for (function, sites) in selection.selected() {
        let missed = if is_run(mapped, sites) {
            if is_near.is_none() {
                continue;
            }
            Missed::Soon
        } else if sites.iter().any(|site| is_copied(selection, mapped, mappings, site)) {
            Missed::Copied
        } else {
            Missed::NotMapped
        };
        let target = function.selected.target;
        match by_target.iter_mut().find(|(of, how, _)| (*of, *how) == (target, missed)) {
            Some((.., names)) => names.push(&function.selected.name),
            None => by_target.push((target, missed, vec![&function.selected.name])),
        }
    }
    let path = mapped.path_in_process.display();
    let remark = |(target, missed, names): (TargetIndex, Missed, Vec<&str>)| {
        let why = match missed {
            Missed::Soon => is_near.unwrap_or_default().to_owned(),
            Missed::Copied | Missed::NotMapped => why(missed == Missed::Copied, process),
        };
        let text = format!("{} of {path} cannot be probed: {why}", listed(&names));
        Remark { target: Some(target), text }
    };
    by_target.into_iter().map(remark).collect()
}

/// Why calls in this process do not execute the file's code, and the way out.
pub(super) fn why(is_copied: bool, process: &Process) -> String {
    let pid = process.pid();
    if is_copied {
        format!(
            "process {pid} does not run this file's code there: it has put memory of its own in its place, \
             which is of no file, so that no call would come to a probe (huge pages, as node's \
             --use-largepages and BOLT's --hugify make them); start it without that"
        )
    } else {
        format!(
            "process {pid} has mapped the file without the code there, so that no call would come to a probe"
        )
    }
}

/// Whether there is anonymous memory where the loader had put a site.
fn is_copied(
    selection: &FileSelection,
    mapped: &MappedFile,
    mappings: &Mappings,
    site: &PlannedSite,
) -> bool {
    let segments = selection.segments();
    let Some(address) = segments.code_address_of(site.offset) else { return false };
    let biases = mapped
        .ranges
        .iter()
        .filter_map(|range| segments.bias_of_mapping(range.start, range.offset, range.executable));
    let mut places = biases.map(|bias| bias.to_process(address));
    places.any(|place| mappings.anonymous.iter().any(|memory| memory.contains(place)))
}

/// The first few names, and the number of the others.
fn listed(names: &[&str]) -> String {
    let shown = names.get(..NAMED).unwrap_or(names).join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more functions"),
    }
}
