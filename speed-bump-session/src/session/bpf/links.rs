//! Probe sites of a process and the links to them, by target.

use std::collections::BTreeSet;

use crate::{
    probe::attach::{Attachment, SiteGroup},
    targets::TargetIndex,
};

/// Up to this number of targets, each target has its own links in a process, so that we can detach it alone.
/// With more targets, there would be too many links.
const APART: usize = 64;

/// Attached sites with their links.
#[derive(Debug)]
pub(super) struct Attached {
    /// The target of the sites, if all have the same.
    pub(super) target: Option<TargetIndex>,
    /// The number of the function with targets for some callers alone, if these are the sites of one such
    /// function.
    pub(super) called: Option<u32>,
    /// Whether these are sites at which calls end.
    pub(super) is_of_exits: bool,
    pub(super) links: Attachment,
}

/// Sites, and their target, if all have the same.
#[derive(Clone, Debug)]
pub(super) struct TargetSites {
    pub(super) target: Option<TargetIndex>,
    /// As in [`Attached`].
    pub(super) called: Option<u32>,
    pub(super) group: SiteGroup,
}

impl TargetSites {
    /// Sites that are not for one target alone.
    pub(super) fn of_all(group: SiteGroup) -> Self {
        Self { target: None, called: None, group }
    }
}

/// Whether there are so few targets, or functions, that each gets its own links.
pub(super) fn are_apart<T: Ord>(things: impl Iterator<Item = T>) -> bool {
    things.collect::<BTreeSet<_>>().len() <= APART
}
