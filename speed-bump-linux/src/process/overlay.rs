//! Finds the lower file under a file of an overlay file system (Documentation/filesystems/overlayfs.rst).
//!
//! When a file of a lower layer is changed for the first time, overlayfs copies the file to the upper layer.
//! A process that has mapped the file keeps the lower file, but every path leads to the upper one. We find
//! the lower file in its layer. The mount's options list the layers' paths as the mounting process saw them.
//! So we try each path in our own root, in the process's root, and in the roots of the process's ancestors.
//! An ordinary user may have mounted the overlay, and may have named any directory as a layer. So a file that
//! we find is only a candidate until we know that the process maps its pages.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FsWord, Mode, OFlags, fstatfs, openat, readlinkat};

use super::{
    Process,
    mountinfo::{Mount, mounts, unescape},
};
use crate::{
    sys::below::{LastLink, find_below, open_below},
    units::Pid,
};

/// `OVERLAYFS_SUPER_MAGIC` (include/uapi/linux/magic.h).
const MAGIC: FsWord = 0x794c_7630;
/// The kernel's own limit on layers (`OVL_MAX_STACK`).
const LAYERS: usize = 500;
/// The most bytes of a list of mounts that we read: a user may have 100,000 mounts (`fs.mount-max`).
const MOUNTINFO_BYTES: u64 = 16 << 20;
/// The most ancestors of the process whose mounts we try.
const ANCESTORS: usize = 16;

/// Why we did not find the lower file.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// No list of mounts contains the mount of the file.
    #[error("its overlay mount is in no list of mounts that can be read from here")]
    NoMount,
    /// The file's name does not lie below the mount.
    #[error("its name does not lie below its overlay mount")]
    Outside,
    /// The mount's options name no layers.
    #[error("its overlay mount names no lower directories")]
    NoLayers,
    /// We can reach no layer that has the file.
    #[error("none of its lower directories ({}) holds it that can be reached from here", list(.layers))]
    NotThere {
        /// The layers' paths from the mount's options.
        layers: Vec<PathBuf>,
    },
}

/// Lists the first layers: a user does not read more.
fn list(layers: &[PathBuf]) -> String {
    const SHOWN: usize = 3;
    let mut text: Vec<String> =
        layers.iter().take(SHOWN).map(|layer| format!("`{}`", layer.display())).collect();
    if layers.len() > SHOWN {
        text.push(format!("{} more", layers.len() - SHOWN));
    }
    text.join(", ")
}

/// The lower file.
#[derive(Debug)]
pub(super) struct LowerFile {
    pub(super) file: File,
    /// Our own path to the file, if there is one.
    pub(super) path: Option<PathBuf>,
}

/// Whether an open file is on overlayfs.
pub fn is_overlay(file: &File) -> bool {
    fstatfs(file).is_ok_and(|system| system.f_type == MAGIC)
}

/// Finds the lower file of `merged`, which is the file that overlayfs shows. The lower file is the first
/// candidate for which `is_it` returns true. `names` are two paths of the file: the path that the process
/// sees, and the path that we see.
pub(super) fn lower_file(
    process: &Process,
    merged: &File,
    names: [&Path; 2],
    is_it: impl Fn(&File) -> bool,
) -> Result<LowerFile, OverlayError> {
    let (mount, name) = mount_of(process, merged, names).ok_or(OverlayError::NoMount)?;
    let place = mount.place_of(name).ok_or(OverlayError::Outside)?;
    let place = place.strip_prefix("/").unwrap_or(&place);
    let layers = layers(&mount.options);
    if layers.is_empty() {
        return Err(OverlayError::NoLayers);
    }
    for root in &roots(process) {
        for layer in &layers {
            for path in spellings(layer, &mount.options) {
                let Some(directory) = root.find(&path) else { continue };
                let Ok(file) = open_below(directory.as_fd(), place, LastLink::Refuse) else { continue };
                if is_it(&file) {
                    let path = root.is_ours().then(|| path.join(place));
                    return Ok(LowerFile { file, path });
                }
            }
        }
    }
    Err(OverlayError::NotThere { layers })
}

/// The overlay mount through which someone opened `merged`, and the file's name for the list of mounts in
/// which we found the mount: the process's list or our own.
fn mount_of<'n>(process: &Process, merged: &File, names: [&'n Path; 2]) -> Option<(Mount, &'n Path)> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", merged.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse::<u64>().ok())?;
    let theirs = process.directory.open_entry("mountinfo", OFlags::RDONLY).map(File::from);
    let ours = File::open("/proc/thread-self/mountinfo");
    let lists = [(theirs.map_err(io::Error::from), names[0]), (ours, names[1])];
    lists.into_iter().find_map(|(list, name)| {
        let mut text = Vec::new();
        list.ok()?.take(MOUNTINFO_BYTES).read_to_end(&mut text).ok()?;
        let mount = mounts(&text).find(|mount| mount.id == id && mount.kind == b"overlay")?;
        Some((mount, name))
    })
}

/// The lower directories that an overlay mount's options name, the uppermost first.
fn layers(options: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for option in options.split(|byte| *byte == b',') {
        if let Some(list) = option.strip_prefix(b"lowerdir=") {
            found.extend(split(&unescape(list)));
        } else if let Some(one) =
            option.strip_prefix(b"lowerdir+=").or_else(|| option.strip_prefix(b"datadir+="))
        {
            found.push(unescape(one));
        }
    }
    let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
    found.into_iter().filter(|bytes| !bytes.is_empty()).take(LAYERS).map(path).collect()
}

/// Splits a list at its colons; a backslash escapes the next character. Two colons precede a layer that holds
/// only data.
fn split(list: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = list.iter();
    while let Some(byte) = bytes.next() {
        let part = match byte {
            b':' => {
                parts.push(Vec::new());
                continue;
            }
            b'\\' => bytes.next(),
            byte => Some(byte),
        };
        if let Some(last) = parts.last_mut() {
            last.extend(part);
        }
    }
    parts
}

/// The absolute paths that a layer may have. containerd and Docker keep the options short: they change to a
/// directory above their layers, and name the layers from there. That directory is also above the upper
/// directory.
fn spellings(layer: &Path, options: &[u8]) -> Vec<PathBuf> {
    if layer.is_absolute() {
        return vec![layer.to_owned()];
    }
    let upper = options.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"upperdir="));
    let upper = PathBuf::from(OsString::from_vec(upper.map(unescape).unwrap_or_default()));
    upper.ancestors().skip(1).filter(|above| above.is_absolute()).map(|above| above.join(layer)).collect()
}

/// A directory in which we resolve the layers' paths.
enum Root {
    /// Our own `/`.
    Ours,
    /// The root of another process.
    Of(OwnedFd),
}

impl Root {
    fn is_ours(&self) -> bool {
        matches!(self, Self::Ours)
    }

    /// Finds a directory below this root.
    fn find(&self, path: &Path) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self {
            Self::Ours => openat(CWD, path, flags, Mode::empty()).ok(),
            Self::Of(root) => find_below(root.as_fd(), path, LastLink::Follow).ok(),
        }
    }
}

/// Our root, the process's root, and the roots of those ancestors that are in other mount namespaces: one of
/// them may have mounted the overlay.
fn roots(process: &Process) -> Vec<Root> {
    let namespace = |pid: Pid| readlinkat(CWD, format!("/proc/{pid}/ns/mnt"), Vec::new()).ok();
    let mut seen = HashSet::from([namespace(Pid::own())]);
    let mut roots = vec![Root::Ours];
    let own = process.shown_by();
    let mut pid = Some(own);
    for _ in 0..=ANCESTORS {
        let Some(of) = pid else { break };
        let root = openat(CWD, format!("/proc/{of}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        // The process's own root may differ from the root of its namespace.
        if (seen.insert(namespace(of)) || of == own)
            && let Ok(root) = root
        {
            roots.push(Root::Of(root));
        }
        pid = super::directory::parent(of);
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(options: &[u8]) -> Vec<String> {
        layers(options).iter().map(|layer| layer.display().to_string()).collect()
    }

    #[test]
    fn layers_are_read_from_either_form_of_the_options() {
        assert_eq!(paths(b"rw,lowerdir=/a:/b,upperdir=/u,workdir=/w"), ["/a", "/b"]);
        // Linux 6.18 shows `lowerdir=/low\:er:/l\,2` like this.
        assert_eq!(paths(br"rw,lowerdir=/low\134:er:/l\134\0542,upperdir=/u"), ["/low:er", "/l,2"]);
        assert_eq!(
            paths(br"ro,lowerdir+=/a:b,lowerdir+=/c\040d\134e,datadir+=/data"),
            ["/a:b", r"/c d\e", "/data"]
        );
        assert_eq!(paths(b"lowerdir=/a::/data1::/data2"), ["/a", "/data1", "/data2"]);
        assert_eq!(paths(br"lowerdir=/a\134"), ["/a"]);
        assert_eq!(paths(b"rw,upperdir=/u"), [""; 0]);
    }

    #[test]
    fn relative_layers_are_looked_for_above_the_upper_directory() {
        let options = b"rw,lowerdir=l/X,upperdir=/var/lib/docker/overlay2/abc/diff,workdir=/w";
        let found = spellings(Path::new("l/X"), options);
        assert!(found.contains(&PathBuf::from("/var/lib/docker/overlay2/l/X")), "{found:?}");
        assert_eq!(spellings(Path::new("/a"), options), [PathBuf::from("/a")]);
        assert!(spellings(Path::new("a"), b"rw,upperdir=u/x").is_empty());
    }

    #[test]
    fn a_message_names_some_layers_and_counts_the_rest() {
        let layers: Vec<PathBuf> = (0..5).map(|n| format!("/l{n}").into()).collect();
        assert_eq!(list(&layers), "`/l0`, `/l1`, `/l2`, 2 more");
    }
}
