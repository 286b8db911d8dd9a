//! The module's files in sysfs.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::{KmodError, Listing, Refusal, TargetName};
use crate::units::{Nanos, Pid};

/// The folder of the module's files.
pub const FOLDER: &str = "/sys/kernel/speed_bump";

/// The loaded module.
#[derive(Clone, Debug)]
pub struct Module {
    folder: PathBuf,
    /// Whether this is upstream's module, which the user has accepted.
    is_upstream: bool,
}

impl Module {
    /// Opens the module whose files are in this folder ([`FOLDER`], except in tests).
    ///
    /// # Errors
    /// The module is not loaded, another module has its name, or we may not write to its files.
    pub fn open(folder: &Path) -> Result<Self, KmodError> {
        let module = Self::open_any(folder)?;
        module.check()?;
        Ok(module)
    }

    /// Like [`open`](Self::open), but also accepts upstream's module: see
    /// [`UpstreamGuard`](super::UpstreamGuard).
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_any(folder: &Path) -> Result<Self, KmodError> {
        let mut module = Self { folder: folder.to_owned(), is_upstream: false };
        if !folder.is_dir() {
            return Err(KmodError::Absent { folder: module.folder });
        }
        for name in ["targets", "enabled"] {
            let file = module.file(name);
            OpenOptions::new()
                .write(true)
                .open(&file)
                .map_err(|error| KmodError::file("write", file, error))?;
        }
        module.is_upstream = match module.check() {
            Err(KmodError::Other { .. }) => true,
            checked => checked.map(|()| false)?,
        };
        module.listing()?;
        Ok(module)
    }

    /// Like [`open`](Self::open), but for reading only.
    ///
    /// # Errors
    /// The module is not loaded.
    pub fn look(folder: &Path) -> Result<Self, KmodError> {
        if folder.is_dir() {
            Ok(Self { folder: folder.to_owned(), is_upstream: false })
        } else {
            Err(KmodError::Absent { folder: folder.to_owned() })
        }
    }

    /// Checks that this is the module in kmod/.
    ///
    /// # Errors
    /// This is another module, or the module is gone.
    pub fn check(&self) -> Result<(), KmodError> {
        self.is_enabled()?;
        if self.read("stats")?.lines().any(|line| line.starts_with("total_interrupted: ")) {
            Ok(())
        } else {
            Err(KmodError::Other { file: self.file("stats") })
        }
    }

    /// Whether this is upstream's module.
    pub fn is_upstream(&self) -> bool {
        self.is_upstream
    }

    /// The path of one of the module's files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether the module counts and delays calls.
    ///
    /// # Errors
    /// The module is gone, or this is another module.
    pub fn is_enabled(&self) -> Result<bool, KmodError> {
        let text = self.read("enabled")?;
        match text.trim_end() {
            "0" => Ok(false),
            "1" => Ok(true),
            other => Err(KmodError::Unexpected { file: self.file("enabled"), text: other.to_owned() }),
        }
    }

    /// Starts or stops counting and delaying, for all targets.
    ///
    /// # Errors
    /// The module is gone.
    pub fn enable(&self, enabled: bool) -> Result<(), KmodError> {
        let file = self.file("enabled");
        let text: &[u8] = if enabled { b"1" } else { b"0" };
        let written = OpenOptions::new().write(true).open(&file).and_then(|mut to| to.write_all(text));
        written.map_err(|error| KmodError::file("write", file, error))
    }

    /// All targets in the module, with their counts.
    ///
    /// # Errors
    /// The module is gone.
    pub fn listing(&self) -> Result<Listing, KmodError> {
        let mut text = self.read("targets_list")?;
        if self.is_upstream {
            // Upstream's list ends at the end of a page, even in the middle of a number.
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        }
        Ok(Listing::parse(&text))
    }

    /// Adds a target, for a process and its descendants, or for all processes.
    ///
    /// # Errors
    /// [`KmodError::Refused`] has the reason.
    pub fn add(&self, name: &TargetName, delay: Nanos, process: Option<Pid>) -> Result<(), KmodError> {
        let process = process.map(|pid| format!(" pid={pid}")).unwrap_or_default();
        self.command(&format!("+{name} {}{process}", delay.0))
    }

    /// Changes a target's delay.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn set_delay(&self, name: &TargetName, delay: Nanos) -> Result<(), KmodError> {
        self.command(&format!("={name} {}", delay.0))
    }

    /// Removes a target. Its delays in progress end.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn remove(&self, name: &TargetName) -> Result<(), KmodError> {
        self.command(&format!("-{name}"))
    }

    /// Writes a command.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn command(&self, command: &str) -> Result<(), KmodError> {
        let path = self.file("targets");
        let file: File = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|error| KmodError::file("write", path, error))?;
        // Each write is one command. So after a partial write we must not send the rest, which would be
        // another command.
        match rustix::io::write(&file, command.as_bytes()) {
            Ok(length) if length == command.len() => Ok(()),
            Ok(_) => Err(KmodError::Refused { command: command.to_owned(), why: Refusal::Malformed }),
            Err(errno) => Err(self.refused(command, errno)),
        }
    }

    fn refused(&self, command: &str, errno: Errno) -> KmodError {
        // Someone unloaded the module after we opened the file.
        if errno == Errno::NODEV {
            return KmodError::Absent { folder: self.folder.clone() };
        }
        KmodError::Refused { command: command.to_owned(), why: errno.into() }
    }

    fn read(&self, name: &str) -> Result<String, KmodError> {
        let file = self.file(name);
        let text = fs::read(&file).map_err(|error| KmodError::file("read", file, error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A folder with files like the module's. Writing to them has no effect.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("enabled", "0\n"),
            ("targets", ""),
            ("targets_list", "/a:f delay_ns=5 hits=1\n"),
            ("stats", "total_interrupted: 0\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn commands_are_what_the_module_documents() {
        let folder = folder();
        let module = Module::open(folder.path()).unwrap();
        let name = TargetName::new(Path::new("/usr/lib/a.so"), "f").unwrap();
        let written = || {
            let text = fs::read_to_string(folder.path().join("targets")).unwrap();
            fs::write(folder.path().join("targets"), "").unwrap();
            text
        };
        module.add(&name, Nanos(1500), Pid::new(77)).unwrap();
        assert_eq!(written(), "+/usr/lib/a.so:f 1500 pid=77");
        module.add(&name, Nanos(0), None).unwrap();
        assert_eq!(written(), "+/usr/lib/a.so:f 0");
        module.set_delay(&name, Nanos(7)).unwrap();
        assert_eq!(written(), "=/usr/lib/a.so:f 7");
        module.remove(&name).unwrap();
        assert_eq!(written(), "-/usr/lib/a.so:f");
        assert!(!module.is_enabled().unwrap());
        module.enable(true).unwrap();
        assert!(module.is_enabled().unwrap());
        assert_eq!(module.listing().unwrap().targets[0].delay, Nanos(5));
    }

    #[test]
    fn upstreams_module_is_taken_where_it_is_accepted() {
        let folder = folder();
        assert!(!Module::open_any(folder.path()).unwrap().is_upstream());
        fs::write(folder.path().join("stats"), "enabled: 1\ntotal_hits: 0\n").unwrap();
        // Upstream's list ends at the end of a page, at any position.
        let list = "/a:f delay_ns=5 hits=1 pid=7\n/a:g delay_ns=5 hits=17";
        fs::write(folder.path().join("targets_list"), list).unwrap();
        let module = Module::open_any(folder.path()).unwrap();
        assert!(module.is_upstream());
        let listing = module.listing().unwrap();
        assert_eq!(listing.targets.iter().map(|listed| listed.name.as_str()).collect::<Vec<_>>(), ["/a:f"]);
    }

    #[test]
    fn what_is_no_such_module_is_told() {
        let folder = folder();
        let absent = Module::open(&folder.path().join("none")).unwrap_err();
        assert!(matches!(absent, KmodError::Absent { .. }), "{absent}");
        assert!(absent.to_string().contains("insmod"), "{absent}");
        fs::write(folder.path().join("enabled"), "maybe\n").unwrap();
        let unexpected = Module::open(folder.path()).unwrap_err();
        assert!(matches!(unexpected, KmodError::Unexpected { .. }), "{unexpected}");
        fs::write(folder.path().join("enabled"), "1\n").unwrap();
        fs::write(folder.path().join("stats"), "enabled: 1\ntotal_hits: 0\n").unwrap();
        let other = Module::open(folder.path()).unwrap_err();
        assert!(matches!(other, KmodError::Other { .. }), "{other}");
        assert!(other.to_string().contains("--accept-upstream-module"), "{other}");
        // Someone unloaded the module while we had it open.
        let module = Module::look(folder.path()).unwrap();
        fs::remove_file(folder.path().join("targets_list")).unwrap();
        assert!(matches!(module.listing(), Err(KmodError::Absent { .. })));
    }
}
