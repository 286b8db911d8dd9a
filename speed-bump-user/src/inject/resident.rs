//! A helper that an earlier session left in the process.

use std::{fs::File, mem::offset_of, os::unix::fs::FileExt as _, path::Path};

use rustix::fs::OFlags;
use speed_bump_abi::control_block::{ControlBlock, State};

use super::{InjectError, injectable::Image, symbols};
use crate::{
    elf::ElfFile,
    process::{MappedRange, Process},
    units::VirtualAddress,
};

/// What the memory file of the image is called; /proc/PID/maps shows it as `/memfd:NAME (deleted)`.
pub(super) const IMAGE_NAME: &std::ffi::CStr = c"speed-bump-helper";
/// What the memory file of the control block is called.
pub(super) const CONTROL_NAME: &std::ffi::CStr = c"speed-bump-control";

/// The path in /proc/PID/maps.
const IMAGE_PATH: &str = "/memfd:speed-bump-helper";

/// A helper of our own version.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) text: MappedRange,
    pub(super) attach: VirtualAddress,
    pub(super) file: File,
}

/// What earlier sessions left.
#[derive(Debug, Default)]
pub(super) struct Residents {
    /// The one that is the same build as ours.
    pub(super) ours: Option<Resident>,
    /// How many there are, of whatever build. Others are left alone: one whose session is over does nothing, and
    /// ours is loaded beside it.
    pub(super) count: usize,
}

/// Looks for helpers.
pub(super) fn find(process: &Process, image: &Image) -> Result<Residents, InjectError> {
    let mut found = Residents::default();
    for mapped in process.mappings()?.files {
        if mapped.path_in_process != Path::new(IMAGE_PATH) {
            continue;
        }
        found.count += 1;
        let opened = mapped.open(process)?;
        let duplicate = || {
            let copy = opened.file().try_clone();
            copy.map_err(|source| super::system(process, "duplicating a descriptor", source))
        };
        let elf = ElfFile::from_file(duplicate()?, &mapped.path_in_process)?;
        if elf.build_id()?.as_deref() != Some(image.build_id.as_slice()) {
            continue;
        }
        let text = mapped.executable_ranges().next().copied();
        if let (Some(bias), Some(text)) = (symbols::bias(&mapped, &elf), text) {
            let attach = bias.to_process(image.attach);
            found.ours = Some(Resident { text, attach, file: duplicate()? });
        }
    }
    Ok(found)
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
