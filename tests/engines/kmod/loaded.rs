//! The kernel module, loaded for one test at a time.
//!
//! It is only loaded into kernels that were made for that: where `SPEED_BUMP_MODULE` names it, as in the
//! virtual machines of `cargo xtask test --vm`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use speed_bump_testing::skip;

/// There is one kernel.
static KERNEL: Mutex<()> = Mutex::new(());
/// Where the module's files are.
pub(crate) const FOLDER: &str = "/sys/kernel/speed_bump";

/// Holds the kernel; no other test of this program changes what is loaded meanwhile.
pub(crate) struct Kernel {
    _alone: MutexGuard<'static, ()>,
    module: PathBuf,
}

impl Kernel {
    /// The kernel without the module, if it may be loaded here; else the test is skipped.
    pub(crate) fn take() -> Option<Self> {
        let kernel = Self::find();
        if kernel.is_none() {
            skip!(
                "no kernel module may be loaded here (SPEED_BUMP_MODULE names none; `cargo xtask test --vm \
                 all` builds it)"
            );
        }
        kernel
    }

    /// The same for a test that goes on without.
    pub(crate) fn find() -> Option<Self> {
        let alone = KERNEL.lock().unwrap_or_else(PoisonError::into_inner);
        let module = env::var_os("SPEED_BUMP_MODULE").map(PathBuf::from).filter(|path| path.is_file())?;
        let kernel = Self { _alone: alone, module };
        kernel.unload();
        Some(kernel)
    }

    /// Unloads it, if it is loaded.
    pub(crate) fn unload(&self) {
        if Path::new(FOLDER).is_dir() {
            busybox(&["rmmod", "speed_bump"]);
        }
    }

    /// The module's file.
    pub(crate) fn module(&self) -> &Path {
        &self.module
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if Path::new(FOLDER).is_dir() {
            // The failure of the test before tells more.
            let _ = Command::new("busybox").args(["rmmod", "speed_bump"]).status();
        }
        // Records are useless without the module.
        let _ = fs::remove_dir_all("/run/speed-bump-ebpf");
    }
}

/// Runs a command of busybox's.
pub(crate) fn busybox(arguments: &[&str]) {
    let output = Command::new("busybox").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
