//! Probe sites of a process and the links to them, by target.

use std::collections::BTreeSet;

use crate::{
    probe::attach::{Attachment, SiteGroup},
    targets::TargetIndex,
};

/// Up to this many targets have links of their own in a process, so that each can be detached alone. With
/// more, there would be as many links as targets.
const APART: usize = 64;

/// Sites with their links.
#[derive(Debug)]
pub(super) struct Attached {
    /// The target that they are for, if it is the only one.
    pub(super) target: Option<TargetIndex>,
    /// The number of the function with targets for some callers alone that they are for, if it is the only
    /// one.
    pub(super) called: Option<u32>,
    /// Whether these are sites where calls end.
    pub(super) is_of_exits: bool,
    pub(super) links: Attachment,
}

/// Sites, and the target that they are for, if it is the only one.
#[derive(Clone, Debug)]
pub(super) struct TargetSites {
    pub(super) target: Option<TargetIndex>,
    /// As in [`Attached`].
    pub(super) called: Option<u32>,
    pub(super) group: SiteGroup,
}

impl TargetSites {
    /// Sites for any number of targets.
    pub(super) fn of_all(group: SiteGroup) -> Self {
        Self { target: None, called: None, group }
    }
}

/// Whether these are so few targets, or functions, that each gets links of its own.
pub(super) fn are_apart<T: Ord>(things: impl Iterator<Item = T>) -> bool {
    things.collect::<BTreeSet<_>>().len() <= APART
}
