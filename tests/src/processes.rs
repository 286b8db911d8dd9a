//! Processes to inspect, and threads with fewer rights to do it.

use std::{
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
};

use speed_bump_testing::everybody;
use speed_bump_units::units::Pid;
use tempfile::TempDir;

/// A user and group that own nothing.
pub const NOBODY: u32 = 65_534;

/// Whether this is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that every user may enter.
pub fn directory() -> TempDir {
    everybody::folder().unwrap()
}

/// A child that is killed when the test is over.
pub struct Running(pub Child);

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Starts a program and waits for the line by which it says that it is up.
    pub fn start_and_wait(command: &mut Command) -> Self {
        let mut running = Self::start(command.stdout(Stdio::piped()));
        let mut byte = [0];
        running.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        running
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::new(self.0.id().cast_signed()).unwrap()
    }

    /// Kills it now.
    pub fn end(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// State and name as /proc/PID/stat has them.
pub fn state(pid: Pid) -> Option<(char, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.split_once('(')?;
    let (name, after) = rest.rsplit_once(") ")?;
    Some((after.chars().next()?, name.to_owned()))
}

/// Runs something in a thread of its own. Credentials and mount namespaces are the thread's in Linux, so
/// what it gives up, the rest of the test keeps.
pub fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("the thread reported why"))
}

/// Runs something as a user without any privilege. Needs root.
pub fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    in_thread(|| {
        become_nobody();
        work()
    })
}

/// Makes the calling thread, and it alone, an unprivileged user's.
pub fn become_nobody() {
    let no_groups: [libc::gid_t; 0] = [];
    // SAFETY: raw calls, which change the calling thread's credentials and touch no memory of ours.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, no_groups.as_ptr()),
            libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY),
            libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY),
        ]
    };
    assert_eq!(results, [0; 3]);
}

/// Keeps only these capabilities (bit numbers) in the calling thread, and it alone; the user stays.
pub fn keep_only(capabilities: &[u32]) {
    let set = capabilities.iter().fold(0_u64, |set, number| set | 1 << number);
    let [low, high] = [set as u32, (set >> 32) as u32];
    // linux/capability.h: version 3, this thread; effective, permitted, inheritable, low words first.
    let header: [u32; 2] = [0x2008_0522, 0];
    let data: [u32; 6] = [low, low, 0, high, high, 0];
    // SAFETY: both point to what the call reads, in the layout that this version has.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    assert_eq!(result, 0);
}

/// Gives the calling thread, and it alone, mounts of its own. Needs root.
pub fn own_mounts() {
    // SAFETY: changes the calling thread's mount namespace and touches no memory.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) }, 0);
    rustix::mount::mount_change(
        "/",
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC,
    )
    .unwrap();
}

/// Mounts something for the calling thread; see [`own_mounts`].
pub fn mount(kind: &str, place: &Path, options: &str) {
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount(kind, place, kind, rustix::mount::MountFlags::empty(), Some(options.as_c_str()))
        .unwrap();
}
