//! Processes with mounts of their own, and what they mount.

#![allow(unreachable_pub, missing_docs)]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use speed_bump_testing::{Fixture, Service, everybody};
use tempfile::TempDir;

/// The owner of the mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounter {
    Root,
    /// A user without any privilege, in a user namespace of its own.
    Nobody,
}

impl Mounter {
    /// Why they are impossible here, if so.
    pub fn obstacle(self) -> Option<String> {
        const TRIES: &str = "mount -t tmpfs t /tmp && cd /tmp && mkdir l u w m && \
                             mount -t overlay o -o lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w m";
        let tried = match self.command(TRIES).output() {
            Ok(tried) => tried,
            Err(error) => return Some(format!("no unshare or setpriv (util-linux): {error}")),
        };
        (!tried.status.success()).then(|| {
            format!("{self:?} cannot mount overlays here: {}", String::from_utf8_lossy(&tried.stderr))
        })
    }

    /// A command that runs a script with mounts of its own.
    pub fn command(self, script: &str) -> Command {
        let mut command = Command::new(if self == Self::Root { "unshare" } else { "setpriv" });
        if self == Self::Nobody {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Ur"]);
        }
        command.args(["-m", "sh", "-ec", script]);
        command
    }
}

/// A service that runs from an overlay.
#[derive(Debug)]
pub struct Layers {
    mounter: Mounter,
    /// `lowerdir=`.
    lower: String,
    folder: TempDir,
    service: Fixture,
    pid: std::cell::Cell<i32>,
}

impl Layers {
    /// `LAYERS` stands for where the layers are; the service is in `LAYERS/lo:wer`.
    pub fn new(mounter: Mounter, lower: &str) -> Self {
        let (folder, service) = (everybody::folder().unwrap(), Fixture::service().unwrap());
        Self { mounter, lower: lower.to_owned(), folder, service, pid: 0.into() }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn in_place(&self, script: &str) -> String {
        script.replace("LAYERS", self.folder().to_str().unwrap())
    }

    /// Mounts the layers in a mount namespace of its own, and starts the service there.
    pub fn service(&self) -> Service {
        let script = self.in_place(&format!(
            "mount -t tmpfs -o mode=755 layers LAYERS; cd LAYERS; mkdir none lo:wer upper work merged; \
             cp {}/* lo:wer; \
             mount -t overlay overlay -o lowerdir={},upperdir=LAYERS/upper,workdir=LAYERS/work merged; \
             cd /; exec LAYERS/merged/service 0",
            self.service.folder().display(),
            self.lower,
        ));
        let service = Service::start(&mut self.mounter.command(&script)).unwrap();
        self.pid.set(service.pid());
        service
    }

    /// Runs a script among the service's mounts.
    pub fn run(&self, script: &str) {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid.get().to_string(), "--mount"]);
        if self.mounter == Mounter::Nobody {
            command.arg("--user");
        }
        let Output { status, stderr, .. } =
            command.args(["sh", "-ec", &self.in_place(script)]).output().unwrap();
        assert!(status.success(), "{script}: {}", String::from_utf8_lossy(&stderr));
    }

    /// Has overlayfs copy files.
    pub fn touch(&self, names: &[&str]) {
        for name in names {
            self.run(&format!("touch LAYERS/merged/{name}; [ -e LAYERS/upper/{name} ]"));
        }
    }
}

/// How many bytes of the kernel's log are unread.
pub struct KernelLog(i32);

impl KernelLog {
    pub fn unread() -> Self {
        Self(unread_kernel_log())
    }

    /// Who reads it takes all that there are. A full log gives up a few of its oldest records for new ones.
    #[track_caller]
    pub fn assert_unread(&self, said: &str) {
        const FEW: i32 = 4096;
        let Self(before) = self;
        let left = unread_kernel_log();
        assert!(left > before / 2 && left + FEW > *before, "{left} bytes were left of {before}: {said}");
    }
}

/// There are some.
fn unread_kernel_log() -> i32 {
    const SIZE_UNREAD: libc::c_int = 9;
    fs::write("/dev/kmsg", "a line that nobody reads\n").unwrap();
    // SAFETY: takes no buffer, and touches no memory.
    let unread = unsafe { libc::klogctl(SIZE_UNREAD, std::ptr::null_mut(), 0) };
    assert!(unread > 0, "{}", std::io::Error::last_os_error());
    unread
}
