//! For how many functions a helper has room, by the helper's purpose.

use crate::{python::helper::Room, session::settings::Settings};

/// For a helper that only handles signals.
pub(super) const NO_PYTHON: [Room; 1] = [Room { functions: 1 }];
/// For children. We take the first room that is still available.
pub(super) const OF_CHILDREN: [Room; 3] = [Room::CHILD, Room::SMALL, Room::MIN];

/// For a process that was named on the command line.
pub(super) fn named(settings: &Settings) -> &'static [Room] {
    if settings.policies.choice().delays_in_helper() {
        &[Room::NAMED, Room::NAMED_OF_PROGRAMS]
    } else {
        &[Room::NAMED_OF_PROGRAMS]
    }
}
