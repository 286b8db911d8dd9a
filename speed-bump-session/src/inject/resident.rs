//! Finds helpers that earlier sessions left in the process.

use std::{
    fs::File,
    io,
    mem::offset_of,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::Path,
};

use rustix::fs::{OFlags, SealFlags, fcntl_get_seals};
use speed_bump_abi::control_block::{ControlBlock, HelperCommand, State, notice};

use super::{InjectError, injectable::Image, symbols};
use crate::{
    process::{MappedRange, Process},
    sys::{below::open_regular, memory_file},
    units::VirtualAddress,
};

/// The name of the image's memory file; /proc/PID/maps shows it as `/memfd:NAME (deleted)`.
pub(super) const IMAGE_NAME: &std::ffi::CStr = c"speed-bump-helper";
/// The name of the control block's memory file.
pub(super) const CONTROL_NAME: &std::ffi::CStr = c"speed-bump-control";

/// The path of the image's memory file in /proc/PID/maps.
const IMAGE_PATH: &str = "/memfd:speed-bump-helper";

/// A helper of the same build as ours.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) text: MappedRange,
    pub(super) attach: VirtualAddress,
    pub(super) file: File,
}

/// The helpers that earlier sessions have left.
#[derive(Debug, Default)]
pub(super) struct Residents {
    /// The helper of the same build as ours, if any.
    pub(super) ours: Option<Resident>,
    /// How many helpers there are, of any build. We leave helpers of other builds alone. If such a helper's
    /// session is over, the helper does nothing, and we load ours beside it.
    pub(super) count: usize,
}

/// Finds the helpers. A helper counts as ours only if its file has exactly the contents `bytes`, whatever its
/// name is.
pub(super) fn find(process: &Process, image: &Image, bytes: &[u8]) -> Result<Residents, InjectError> {
    let mut found = Residents::default();
    for mapped in process.mappings()?.files {
        if mapped.path_in_process != Path::new(IMAGE_PATH) {
            continue;
        }
        found.count += 1;
        let opened = mapped.open(process)?;
        let system = |what| move |source| super::system(process, what, source);
        if !is_sealed_image(opened.file(), bytes).map_err(system("reading a helper's image"))? {
            continue;
        }
        let file = opened.file().try_clone().map_err(system("duplicating a descriptor"))?;
        let text = mapped.executable_ranges().next().copied();
        if let (Some(bias), Some(text)) = (symbols::bias(&mapped, &image.elf), text) {
            let attach = bias.to_process(image.attach);
            found.ours = Some(Resident { text, attach, file });
        }
    }
    Ok(found)
}

/// Whether a file has the contents of the image and cannot change.
fn is_sealed_image(file: &File, image: &[u8]) -> io::Result<bool> {
    let seals = fcntl_get_seals(file).unwrap_or(SealFlags::empty());
    Ok(memory_file::is_memory_file(file)? && seals.contains(SealFlags::WRITE) && is_image(file, image)?)
}

/// Whether a file has exactly these contents.
pub(super) fn is_image(file: &File, image: &[u8]) -> io::Result<bool> {
    if file.metadata()?.len() != image.len() as u64 {
        return Ok(false);
    }
    let mut contents = vec![0; image.len()];
    file.read_exact_at(&mut contents, 0)?;
    Ok(contents == image)
}

/// Fails if a helper of any version is active in the process. A helper is active if its block is mapped, and
/// has another state than "left".
pub(super) fn check_idle(process: &Process) -> Result<(), InjectError> {
    for region in process.regions()? {
        if region.name != "/memfd:speed-bump-control (deleted)" {
            continue;
        }
        let name = format!("map_files/{:x}-{:x}", region.start.0, region.end.0);
        // The file may have been unmapped by now, and any file may have this name.
        let Ok(place) = process.open_entry(&name, OFlags::PATH) else { continue };
        let Ok(block) = open_regular(place.as_fd()) else { continue };
        if !memory_file::is_memory_file(&block).unwrap_or(false) {
            continue;
        }
        let word = |offset: usize| {
            let mut word = [0; 4];
            block.read_exact_at(&mut word, offset as u64).ok().map(|()| u32::from_ne_bytes(word))
        };
        let (Some(state), Some(command), Some(notices)) = (
            word(offset_of!(ControlBlock, state)),
            word(offset_of!(ControlBlock, command)),
            word(offset_of!(ControlBlock, notices)),
        ) else {
            continue;
        };
        let shown = [(State::Fresh, "fresh"), (State::Waiting, "waiting"), (State::Active, "active")];
        if let Some((_, state)) = shown.into_iter().find(|(known, _)| *known as u32 == state) {
            let pid = process.pid();
            let is_over = command == HelperCommand::Leave as u32 || notices & notice::LOADER_GONE != 0;
            return Err(if is_over {
                InjectError::Leaving { pid }
            } else {
                InjectError::InUse { pid, state }
            });
        }
    }
    Ok(())
}
