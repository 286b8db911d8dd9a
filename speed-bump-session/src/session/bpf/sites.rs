//! The session's probe sites. Each site has one index, in all processes to which it is attached.

use std::collections::HashMap;

use aya::maps::MapError;

use crate::{
    engine::bpf::{BpfEngine, UprobeProgram},
    probe::{cost::CostTable, plan::PlannedSite, resolve::Resolver},
    process::mapped_file::FileIdentity,
    session::error::SessionError,
    units::FileOffset,
};

/// The costs of probes. If the session began without probes, we measure the costs for the first probe, and
/// pass them on to the engine.
pub(super) fn costs<'a>(resolver: &'a Resolver, engine: &mut BpfEngine) -> Result<&'a CostTable, MapError> {
    if resolver.costs().known().is_none() {
        engine.set_coldness(resolver.calibration().coldness())?;
    }
    Ok(resolver.calibration())
}

/// The key of a site. Two sites with the same key are one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SiteKey {
    /// The file's number in mappings. It is the same however the file was opened.
    pub(super) file: FileIdentity,
    pub(super) offset: FileOffset,
    pub(super) semaphore: Option<FileOffset>,
    pub(super) program: UprobeProgram,
    pub(super) function: u32,
}

/// The index of each site.
#[derive(Debug)]
pub(super) struct SiteTable {
    indices: HashMap<SiteKey, u32>,
    capacity: u32,
}

impl SiteTable {
    /// An empty table, with room for the same number of sites as the engine's maps.
    pub(super) fn new(capacity: u32) -> Self {
        Self { indices: HashMap::new(), capacity }
    }

    /// The index of a site of `function`, and whether it is new.
    ///
    /// # Errors
    /// [`SessionError::Full`] if there is no room.
    pub(super) fn enter(&mut self, site: &PlannedSite, function: u32) -> Result<(u32, bool), SessionError> {
        let PlannedSite { ref file, offset, semaphore, program, .. } = *site;
        self.enter_key(SiteKey { file: file.identity(), offset, semaphore, program, function })
    }

    /// Like [`enter`](Self::enter), for a site that is in no plan.
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
