//! The user as whom a command runs.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    process::Command,
    ptr,
};

/// The room for the strings of an entry in the user database, in bytes: far more than any entry has.
const TEXT_BYTES: usize = 64 << 10;
/// The most groups to which a user can belong: the kernel's limit (`NGROUPS_MAX`).
const GROUPS: usize = 65536;

/// Why a command cannot run as a user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is no user of this name.
    #[error("there is no user {0} on this machine: --user takes a name as in /etc/passwd")]
    Unknown(String),
    /// The user database cannot be read.
    #[error("cannot look up user {name}: {source}")]
    System {
        /// The name, as given with `--user`.
        name: String,
        /// The system's error.
        r#source: io::Error,
    },
}

/// A user, with the groups of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: OsString,
    home: OsString,
    user: libc::uid_t,
    group: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl User {
    /// Finds a user by name.
    ///
    /// # Errors
    /// [`UserError`].
    pub fn named(name: &str) -> Result<Self, UserError> {
        let unknown = || UserError::Unknown(name.to_owned());
        let text = CString::new(name).map_err(|_| unknown())?;
        let mut entry = MaybeUninit::<libc::passwd>::zeroed();
        let mut texts: Vec<libc::c_char> = vec![0; TEXT_BYTES];
        let mut found = ptr::null_mut();
        // SAFETY: all pointers are valid for the call, and the length is the length of the buffer.
        let error = unsafe {
            libc::getpwnam_r(
                text.as_ptr(),
                entry.as_mut_ptr(),
                texts.as_mut_ptr(),
                texts.len(),
                &raw mut found,
            )
        };
        if error != 0 {
            let source = io::Error::from_raw_os_error(error);
            return Err(UserError::System { name: name.to_owned(), source });
        }
        if found.is_null() {
            return Err(unknown());
        }
        // SAFETY: the call has found an entry, and has filled in this structure.
        let entry = unsafe { entry.assume_init() };
        // SAFETY: this is a C string in the buffer, which still exists.
        let home = unsafe { CStr::from_ptr(entry.pw_dir) };
        Ok(Self {
            name: name.into(),
            home: OsString::from_vec(home.to_bytes().to_vec()),
            user: entry.pw_uid,
            group: entry.pw_gid,
            groups: groups_of(&text, entry.pw_gid),
        })
    }

    /// Gives the command the user's environment.
    pub(super) fn adjust_environment(&self, command: &mut Command) {
        let name: &OsStr = OsStr::from_bytes(self.name.as_bytes());
        command.env("USER", name).env("LOGNAME", name).env("HOME", &self.home);
    }

    /// Gives the calling process the user's identity. The process must have only one thread. This only makes
    /// system calls.
    pub(super) fn become_it(&self) -> io::Result<()> {
        let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the length is the length of the list. The other calls take numbers only.
        unsafe {
            done(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            done(libc::setgid(self.group))?;
            done(libc::setuid(self.user))
        }
    }
}

fn groups_of(name: &CStr, group: libc::gid_t) -> Vec<libc::gid_t> {
    let mut groups = vec![group; GROUPS];
    let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `count` is the length of the list, and the name is a C string.
    let result = unsafe { libc::getgrouplist(name.as_ptr(), group, groups.as_mut_ptr(), &raw mut count) };
    groups.truncate(if result < 0 { 1 } else { usize::try_from(count).unwrap_or(1) });
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_everywhere_and_nobody_is_called_nothing() {
        let root = User::named("root").map(|user| (user.user, user.group, user.groups.contains(&0)));
        assert!(matches!(root, Ok((0, 0, true))), "{root:?}");
        assert!(matches!(User::named(""), Err(UserError::Unknown(_))));
        assert!(matches!(User::named("no\0body"), Err(UserError::Unknown(_))));
    }
}
