//! Probe sites of a process and the links to them, by the target that they are for.

use std::collections::BTreeSet;

use crate::{
    probe::attach::{Attachment, SiteGroup},
    targets::TargetIndex,
};

/// So many targets have links of their own in a process, so that each can be detached alone. With more,
/// links would be as many as targets.
const APART: usize = 64;

/// The links of some sites.
#[derive(Debug)]
pub(super) struct Attached {
    /// The only target that they are for, if they are for one only.
    pub(super) target: Option<TargetIndex>,
    /// Whether they are where calls end.
    pub(super) is_of_exits: bool,
    pub(super) links: Attachment,
}

/// Sites, and the only target that they are for.
#[derive(Clone, Debug)]
pub(super) struct TargetSites {
    pub(super) target: Option<TargetIndex>,
    pub(super) group: SiteGroup,
}

impl TargetSites {
    /// Sites that stand for any target.
    pub(super) fn of_all(group: SiteGroup) -> Self {
        Self { target: None, group }
    }
}

/// Whether targets are so few that each gets links of its own.
pub(super) fn are_apart(targets: impl Iterator<Item = TargetIndex>) -> bool {
    targets.collect::<BTreeSet<_>>().len() <= APART
}
