//! A helper that an earlier session left in the process.

use std::{mem::offset_of, os::unix::fs::FileExt as _, path::Path};

use rustix::fs::OFlags;
use speed_bump_abi::control_block::{ControlBlock, State};

use super::{InjectError, injectable::Image, symbols};
use crate::{
    elf::ElfFile,
    process::{MappedFile, Process},
    units::VirtualAddress,
};

/// What the memory file of the image is called; /proc/PID/maps shows it as `/memfd:NAME (deleted)`.
pub(super) const IMAGE_NAME: &std::ffi::CStr = c"speed-bump-helper";
/// What the memory file of the control block is called.
pub(super) const CONTROL_NAME: &std::ffi::CStr = c"speed-bump-control";

/// A helper of our own version.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) file: MappedFile,
    pub(super) attach: VirtualAddress,
}

/// Finds the helper that is the same build as ours. Others are left alone: one whose session is over does nothing,
/// and ours is loaded beside it.
pub(super) fn find(process: &Process, image: &Image) -> Result<Option<Resident>, InjectError> {
    for file in process.mappings()?.files {
        if file.path_in_process != Path::new("/memfd:speed-bump-helper") {
            continue;
        }
        let opened = file.open(process)?;
        let copy = opened.file().try_clone();
        let copy = copy.map_err(|source| super::system(process, "duplicating a descriptor", source))?;
        let elf = ElfFile::from_file(copy, &file.path_in_process)?;
        if elf.build_id()?.as_deref() != Some(image.build_id.as_slice()) {
            continue;
        }
        if let Some(bias) = symbols::bias(&file, &elf) {
            let attach = bias.to_process(image.attach);
            return Ok(Some(Resident { file, attach }));
        }
    }
    Ok(None)
}

/// Refuses a process in which a helper, of whatever version, is at work: its block is mapped, and not left.
pub(super) fn check_idle(process: &Process) -> Result<(), InjectError> {
    for region in process.regions()? {
        if region.name != "/memfd:speed-bump-control (deleted)" {
            continue;
        }
        let name = format!("map_files/{:x}-{:x}", region.start.0, region.end.0);
        // It may be unmapped by now.
        let Ok(block) = process.open_entry(&name, OFlags::RDONLY) else { continue };
        let mut state = [0; 4];
        if block.read_exact_at(&mut state, offset_of!(ControlBlock, state) as u64).is_err() {
            continue;
        }
        let state = u32::from_ne_bytes(state);
        let shown = [(State::Fresh, "fresh"), (State::Waiting, "waiting"), (State::Active, "active")];
        if let Some((_, state)) = shown.into_iter().find(|(known, _)| *known as u32 == state) {
            return Err(InjectError::InUse { pid: process.pid(), state });
        }
    }
    Ok(())
}
