//! Checks that there are breakpoints where we attached probes, by reading the process's memory.
//!
//! The kernel attaches to an inode, and also accepts an inode that the process does not map. Then it waits
//! until a process maps that inode, and counts no call. This happens if overlayfs has copied a file after the
//! process mapped it. It also happens with shared mappings, and with file systems that map another file than
//! they show.
//!
//! Processes end, replace their images and unmap files while we check. So a breakpoint counts as missing only
//! if memory still maps the file after several checks. A breakpoint that we find may be another tool's. So if
//! overlayfs may have copied a file, we also compare its pages. We check one site of a file: the kernel
//! inserts all breakpoints of a link or none.

use std::{os::unix::fs::FileExt as _, path::PathBuf, thread, time::Duration};

use super::file::ProbeFile;
use crate::{
    process::{MappedFile, Memory, Process, overlay},
    units::{FileOffset, Pid, VirtualAddress},
};

/// The number of checks before a breakpoint counts as missing, and the pause between them.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);
/// The number of bytes at a site that we compare.
const CODE_BYTES: usize = 5;

/// A breakpoint is missing.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {pid}: a probe was attached at {}+{offset}, and no breakpoint is in the process's memory there, \
     so that no call would be counted: {cause}", .path.display()
)]
pub struct NotInPlace {
    /// PID of the process.
    pub pid: Pid,
    /// The file as the process sees it.
    pub path: PathBuf,
    /// The offset of the site in the file.
    pub offset: FileOffset,
    /// The reason, and the way out.
    pub cause: Cause,
}

/// Why a breakpoint is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The file is on overlayfs.
    #[error(
        "the file was changed after the process had mapped it, and overlayfs shows a copy; restart the \
         process, or attach before the file is changed (chmod and touch change it, too); with CAP_SYS_ADMIN, \
         the tool finds the file that it runs"
    )]
    Copied,
    /// The file is not on overlayfs.
    #[error(
        "the process maps the file shared (MAP_SHARED), or has written over its code, or the file system \
         maps another file than it shows; the kernel probes none of these: run the program from another file \
         system"
    )]
    Unknown,
}

/// Checks for a breakpoint in each file, at the first of its sites that the process maps executable. This is
/// no error if the process is gone, or no longer maps the file.
///
/// # Errors
/// A breakpoint is missing in one of the files.
pub fn check<'f>(
    process: &Process,
    memory: &Memory,
    files: impl Iterator<Item = (&'f ProbeFile, Vec<FileOffset>)>,
) -> Result<(), NotInPlace> {
    let mut pending: Vec<_> = files.collect();
    let mut first = None;
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(PAUSE);
        }
        let Ok(mappings) = process.mappings() else { return Ok(()) };
        first = None;
        pending.retain(|(file, offsets)| {
            let mapped = mappings.files.iter().find(|mapped| mapped.identity == file.identity());
            let missing = mapped.and_then(|mapped| missing(process, memory, file, mapped, offsets));
            first = first.or(missing.map(|offset| (*file, offset)));
            missing.is_some()
        });
        if pending.is_empty() || memory.is_gone() {
            return Ok(());
        }
    }
    let Some((file, offset)) = first else { return Ok(()) };
    let cause = if overlay::is_overlay(file.file()) { Cause::Copied } else { Cause::Unknown };
    Err(NotInPlace { pid: process.pid(), path: file.path().to_owned(), offset, cause })
}

/// Returns the first site that the process maps, if it has no breakpoint.
fn missing(
    process: &Process,
    memory: &Memory,
    file: &ProbeFile,
    mapped: &MappedFile,
    offsets: &[FileOffset],
) -> Option<FileOffset> {
    let places = |offset: &FileOffset| mapped.addresses_of(*offset).collect::<Vec<_>>();
    let (offset, places) =
        offsets.iter().map(|offset| (*offset, places(offset))).find(|(_, places)| !places.is_empty())?;
    if mapped.is_copied(process, file.file()) {
        // There may be a breakpoint anyway. A forked process has the breakpoints of its parent, which do
        // nothing there.
        return Some(offset);
    }
    let mut code = [0; CODE_BYTES];
    // At the end of the file we read fewer bytes. The rest of the buffer stays zero.
    file.file().read_at(&mut code, offset.0).ok()?;
    // If the file is mapped more than once, a breakpoint in one mapping shows that the kernel has found the
    // process.
    let found = places.iter().map(|place| is_breakpoint(memory, *place, code));
    let found: Vec<bool> = found.collect::<Option<_>>()?;
    (!found.contains(&true)).then_some(offset)
}

/// Whether there is a breakpoint at an address. `code` has the file's bytes there. `None` if we cannot read
/// the memory.
#[cfg(target_arch = "x86_64")]
fn is_breakpoint(memory: &Memory, place: VirtualAddress, code: [u8; CODE_BYTES]) -> Option<bool> {
    let mut now = [0; CODE_BYTES];
    let mut first = [0];
    memory.read_exact(place, &mut first).ok()?;
    if first == [INT3] {
        return Some(true);
    }
    // From Linux 6.18 on, the kernel turns a breakpoint on a long nop into a call, in several steps.
    let is_long_nop = matches!(code, [0x0f, 0x1f, ..] | [0x66, ..]);
    Some(is_long_nop && memory.read_exact(place, &mut now).is_ok() && now != code)
}

/// `int3`: the kernel inserts it (`UPROBE_SWBP_INSN` in arch/x86/include/asm/uprobes.h).
#[cfg(target_arch = "x86_64")]
const INT3: u8 = 0xcc;

/// Whether there is `brk #5` at an address, which the kernel inserts on AArch64 (`UPROBE_SWBP_INSN` in
/// arch/arm64/include/asm/uprobes.h).
#[cfg(target_arch = "aarch64")]
fn is_breakpoint(memory: &Memory, place: VirtualAddress, _code: [u8; CODE_BYTES]) -> Option<bool> {
    const BRK_5: u32 = 0xd420_00a0;
    let mut now = [0; 4];
    memory.read_exact(place, &mut now).ok()?;
    Some(u32::from_le_bytes(now) == BRK_5)
}
