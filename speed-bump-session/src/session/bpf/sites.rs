//! The session's probe sites: each has one index, in all processes that it is attached in.

use std::collections::HashMap;

use aya::maps::MapError;

use crate::{
    engine::bpf::{BpfEngine, UprobeProgram},
    probe::{cost::CostTable, plan::PlannedSite, resolve::Resolver},
    process::mapped_file::FileIdentity,
    session::error::SessionError,
    units::FileOffset,
};

/// The costs of probes. If a session begins without probes, they are measured for the first one, and the
/// engine gets them.
pub(super) fn costs<'a>(resolver: &'a Resolver, engine: &mut BpfEngine) -> Result<&'a CostTable, MapError> {
    if resolver.costs().known().is_none() {
        engine.set_coldness(resolver.calibration().coldness())?;
    }
    Ok(resolver.calibration())
}

/// Two sites with the same key are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SiteKey {
    /// As mappings give it: the same, however the file was opened.
    pub(super) file: FileIdentity,
    pub(super) offset: FileOffset,
    pub(super) semaphore: Option<FileOffset>,
    pub(super) program: UprobeProgram,
    pub(super) function: u32,
}

/// Indices by site.
#[derive(Debug)]
pub(super) struct SiteTable {
    indices: HashMap<SiteKey, u32>,
    capacity: u32,
}

impl SiteTable {
    /// An empty table with room for as many as the engine's maps.
    pub(super) fn new(capacity: u32) -> Self {
        Self { indices: HashMap::new(), capacity }
    }

    /// The index of a site that stands for `function`, and whether it is new.
    ///
    /// # Errors
    /// [`SessionError::Full`].
    pub(super) fn enter(&mut self, site: &PlannedSite, function: u32) -> Result<(u32, bool), SessionError> {
        let PlannedSite { ref file, offset, semaphore, program, .. } = *site;
        self.enter_key(SiteKey { file: file.identity(), offset, semaphore, program, function })
    }

    /// As [`enter`](Self::enter), for a site that is in no plan.
    pub(super) fn enter_key(&mut self, key: SiteKey) -> Result<(u32, bool), SessionError> {
        if let Some(index) = self.indices.get(&key) {
            return Ok((*index, false));
        }
        let index = u32::try_from(self.indices.len())
            .ok()
            .filter(|index| *index < self.capacity)
            .ok_or(SessionError::Full { things: "probe sites", capacity: self.capacity })?;
        self.indices.insert(key, index);
        Ok((index, true))
    }
}
