//! Keeps the functions of files from one preparation to the next. A sweep has several sessions with the same
//! processes, and reading the symbols of large libraries takes most of the time of a preparation.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    elf::{Effort, ElfError, ElfFile, Functions, Root},
    process::Process,
};

/// The most bytes that we keep. Ten thousand functions take two or three million bytes.
const KEPT: usize = 128 << 20;

/// The functions of the files that we have read. Clones share these functions. The default keeps nothing,
/// because a single session reads each file only once.
#[derive(Clone, Debug, Default)]
pub struct KnownFunctions(Option<Arc<Mutex<Known>>>);

#[derive(Debug, Default)]
struct Known {
    files: HashMap<Key, Arc<Functions>>,
    bytes: usize,
}

/// What the functions of a file depend on: the file in its present state, and the place of its debug files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    file: [u64; 3],
    /// When the contents and the metadata of the file were last changed, in seconds and ns.
    changed: [i64; 4],
    path: PathBuf,
    root: [u64; 2],
    mount_namespace: u64,
}

impl Key {
    fn new(file: &File, path: &Path, process: &Process) -> io::Result<Self> {
        let of_file = file.metadata()?;
        let root = process.root();
        let of_root = fs::metadata(&root)?;
        let namespace = fs::metadata(root.with_file_name("ns").join("mnt"))?;
        Ok(Self {
            file: [of_file.dev(), of_file.ino(), of_file.size()],
            changed: [of_file.mtime(), of_file.mtime_nsec(), of_file.ctime(), of_file.ctime_nsec()],
            path: path.to_owned(),
            root: [of_root.dev(), of_root.ino()],
            mount_namespace: namespace.ino(),
        })
    }
}

impl KnownFunctions {
    /// A store that keeps functions.
    pub fn kept() -> Self {
        Self(Some(Arc::default()))
    }

    /// The functions in a file of a process and in its debug files. We take them from the store if the file
    /// has not changed since. `elf` must read from `file`.
    ///
    /// # Errors
    /// See [`ElfFile::functions`].
    pub(super) fn functions(
        &self,
        elf: &ElfFile,
        file: &File,
        path: &Path,
        process: &Process,
        effort: &Effort,
    ) -> Result<Arc<Functions>, ElfError> {
        // Without a store, we read the functions each time.
        let key = self.0.as_ref().and_then(|_| Key::new(file, path, process).ok());
        if let Some(known) = key.as_ref().and_then(|key| self.get(key)) {
            return Ok(known);
        }
        let functions = Arc::new(match Root::open(&process.root()) {
            Ok(root) => elf.functions_with_debug_files(&root, path, effort)?,
            Err(_) => elf.functions()?,
        });
        if let Some(key) = key
            && Key::new(file, path, process).is_ok_and(|after| after == key)
        {
            self.keep(key, &functions);
        }
        Ok(functions)
    }

    fn get(&self, key: &Key) -> Option<Arc<Functions>> {
        let known = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        known.files.get(key).cloned()
    }

    fn keep(&self, key: Key, functions: &Arc<Functions>) {
        let bytes = functions.bytes();
        // If we could not read a part, or had no time for it, we may be able to read it the next time.
        if !functions.warnings().is_empty() || bytes > KEPT {
            return;
        }
        let Some(known) = &self.0 else { return };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.bytes + bytes > KEPT {
            *known = Known::default();
        }
        if known.files.insert(key, Arc::clone(functions)).is_none() {
            known.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{io::Write as _, process::Command};

    use super::*;

    #[test]
    fn a_file_that_changed_is_read_again() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = crate::units::Pid::new(child.id().cast_signed()).unwrap();
        let process = Process::open(pid).unwrap();
        let mut copy = tempfile::NamedTempFile::new().unwrap();
        // A file with a few thousand functions.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
        copy.write_all(&fs::read(libc).unwrap()).unwrap();
        let known = KnownFunctions::kept();
        let read = || {
            let file = File::open(copy.path()).unwrap();
            let elf = ElfFile::from_file(file.try_clone().unwrap(), copy.path()).unwrap();
            known.functions(&elf, &file, copy.path(), &process, &Effort::default()).unwrap()
        };
        let first = read();
        assert!(!first.functions().is_empty() && first.bytes() > 0);
        assert!(Arc::ptr_eq(&first, &read()));
        let times = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        copy.as_file().set_times(times).unwrap();
        assert!(!Arc::ptr_eq(&first, &read()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn there_is_a_bound_to_what_is_kept() {
        let known = KnownFunctions::kept();
        let key = |inode| Key {
            file: [0, inode, 0],
            changed: [0; 4],
            path: PathBuf::new(),
            root: [0; 2],
            mount_namespace: 0,
        };
        known.keep(key(0), &Arc::default());
        assert!(known.get(&key(0)).is_some());
        let none = KnownFunctions::default();
        none.keep(key(0), &Arc::default());
        assert!(none.get(&key(0)).is_none());
        known.0.as_ref().unwrap().lock().unwrap().bytes = KEPT + 1;
        known.keep(key(1), &Arc::default());
        assert!(known.get(&key(0)).is_none() && known.get(&key(1)).is_some());
    }
}
