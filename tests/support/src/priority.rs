//! Gives processes priority over others of this machine, for tests of the time of single calls.

use std::{fs, io};

use rustix::process::{Pid, setpriority_process};

/// The most that there is of it but for real time (nice).
const MAX: i32 = -20;

/// Has the threads that a process has now run before those of others, as far as we may: a spin of
/// milliseconds is then seldom interrupted by tests beside it.
///
/// # Errors
/// There is no such process.
pub fn prefer(pid: i32) -> io::Result<()> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = thread?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // Without root this fails, and we measure at normal priority.
        let _ = id.map(|id| setpriority_process(Some(id), MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;
    use crate::{session::obstacle, skip};

    #[test]
    fn all_threads_are_preferred() {
        if let Some(why) = obstacle() {
            return skip!("{why}");
        }
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        prefer(child.id().cast_signed()).unwrap();
        let nice = rustix::process::getpriority_process(Pid::from_raw(child.id().cast_signed())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(nice, MAX);
        assert!(prefer(-1).is_err());
    }
}
