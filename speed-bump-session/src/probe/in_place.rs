//! Whether breakpoints are where probes were attached, read back from the process's memory.
//!
//! The kernel attaches to an inode, and takes one that the process does not map as well: it then waits for
//! somebody to map it, and nothing is ever counted. A file that overlayfs has copied since it was mapped is
//! such a case, and so are mappings that are shared, and file systems that map another file than they show.
//!
//! Processes end, replace their images and unmap files while we look. Only memory that maps the file, and
//! still does when it is looked at again, says that a breakpoint is missing. A breakpoint that is there may
//! be another's; so where overlayfs may have copied a file, its pages are compared, too. One site of a file
//! is looked at: the kernel puts in all of a link or none.

use std::{os::unix::fs::FileExt as _, path::PathBuf, thread, time::Duration};

use super::file::ProbeFile;
use crate::{
    process::{MappedFile, Memory, Process, overlay},
    units::{FileOffset, Pid, VirtualAddress},
};

/// How often it is looked until a breakpoint is said to be missing, and how long it is waited between.
const LOOKS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes at a site that are compared.
const CODE_BYTES: usize = 5;

/// A breakpoint that is missing.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {pid}: a probe was attached at {}+{offset}, and no breakpoint is in the process's memory there, \
     so that no call would be counted: {cause}", .path.display()
)]
pub struct NotInPlace {
    /// PID of the process that was probed.
    pub pid: Pid,
    /// The file as the process sees it.
    pub path: PathBuf,
    /// The site.
    pub offset: FileOffset,
    /// Why, and the way out.
    pub cause: Cause,
}

/// Why a breakpoint is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The file is on overlayfs.
    #[error(
        "the file was changed after the process had mapped it, and overlayfs shows a copy; restart the \
         process, or attach before the file is changed (chmod and touch change it, too); with CAP_SYS_ADMIN, \
         the file that it runs is looked for"
    )]
    Copied,
    /// It is not.
    #[error(
        "the process maps the file shared (MAP_SHARED), or has written over its code, or the file system \
         maps another file than it shows; the kernel probes none of these: run the program from another file \
         system"
    )]
    Unknown,
}

/// Looks for a breakpoint in each file, at the first of its sites that the process maps executable. That the
/// process, or its mapping of a file, is gone is no error.
///
/// # Errors
/// There is none in one of the files.
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

/// The first site that the process maps, if no breakpoint is there.
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
        // A breakpoint may be there all the same: a forked process has those of its parent, which do nothing
        // in it.
        return Some(offset);
    }
    let mut code = [0; CODE_BYTES];
    // Shorter at the end of the file: the rest stays zero, and is not compared with more than zeros.
    file.file().read_at(&mut code, offset.0).ok()?;
    // Where it is mapped more than once, one of them tells that the kernel has found the file.
    let found = places.iter().map(|place| is_breakpoint(memory, *place, code));
    let found: Vec<bool> = found.collect::<Option<_>>()?;
    (!found.contains(&true)).then_some(offset)
}

/// Whether a breakpoint lies at an address, where `code` is in the file; `None` if nothing can be read there.
#[cfg(target_arch = "x86_64")]
fn is_breakpoint(memory: &Memory, place: VirtualAddress, code: [u8; CODE_BYTES]) -> Option<bool> {
    let mut now = [0; CODE_BYTES];
    let mut first = [0];
    memory.read_exact(place, &mut first).ok()?;
    if first == [INT3] {
        return Some(true);
    }
    // From Linux 6.18 on a breakpoint on a long nop becomes a call, or what prepares one.
    let is_long_nop = matches!(code, [0x0f, 0x1f, ..] | [0x66, ..]);
    Some(is_long_nop && memory.read_exact(place, &mut now).is_ok() && now != code)
}

/// `int3`, which the kernel puts in (`UPROBE_SWBP_INSN` in arch/x86/include/asm/uprobes.h).
#[cfg(target_arch = "x86_64")]
const INT3: u8 = 0xcc;

/// The same for AArch64: `brk #5` (`UPROBE_SWBP_INSN` in arch/arm64/include/asm/uprobes.h).
#[cfg(target_arch = "aarch64")]
fn is_breakpoint(memory: &Memory, place: VirtualAddress, _code: [u8; CODE_BYTES]) -> Option<bool> {
    const BRK_5: u32 = 0xd420_00a0;
    let mut now = [0; 4];
    memory.read_exact(place, &mut now).ok()?;
    Some(u32::from_le_bytes(now) == BRK_5)
}
