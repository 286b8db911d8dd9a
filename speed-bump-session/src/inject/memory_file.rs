//! A memory file that a borrowed thread creates. The file is open in that thread's process and in ours, and
//! holds the helper's image or its control block.
//!
//! The process knows the number of the file's descriptor before we do. Other threads of the process, or
//! processes that share its descriptors, may put another file there. So we open the file with the process's
//! own rights, and check the file before we write anything.

use std::{ffi::CStr, fs::File, io, os::fd::AsFd as _};

use super::{InjectError, arch::number, remote_call::Borrowed, system};
use crate::{
    process::Process,
    sys::{
        memory_file::{self, Unlike},
        remote_descriptor::Descriptors,
    },
};

/// Flags of `memfd_create` (include/uapi/linux/memfd.h). The kernel knows the last two from Linux 6.3 on.
const MFD_CLOEXEC: u64 = libc::MFD_CLOEXEC as u64;
const MFD_ALLOW_SEALING: u64 = libc::MFD_ALLOW_SEALING as u64;
const MFD_NOEXEC_SEAL: u64 = 8;
const MFD_EXEC: u64 = 16;

/// Whether the process may execute the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Execution {
    Allowed,
    Never,
}

/// A memory file.
pub(super) struct MemoryFile {
    /// The number of the file's descriptor in the process.
    pub(super) in_process: u64,
    pub(super) here: File,
}

impl MemoryFile {
    /// Makes the thread create a memory file, and opens it here.
    pub(super) fn make(
        process: &Process,
        thread: &mut Borrowed<'_>,
        name: &CStr,
        execution: Execution,
    ) -> Result<Self, InjectError> {
        let (call, pid, borrowed) = ("memfd_create", process.pid(), thread.thread());
        let descriptors = Descriptors::of_thread(process.as_fd(), pid, borrowed)
            .map_err(|source| system(process, "opening a thread's pidfd", source))?
            .ok_or(InjectError::OwnDescriptors { pid, thread: borrowed })?;
        let address = thread.text(name)?;
        let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
        let how = match execution {
            Execution::Allowed => MFD_EXEC,
            Execution::Never => MFD_NOEXEC_SEAL,
        };
        let mut create = |flags| thread.system_call(call, number::MEMFD_CREATE, [address, flags, 0, 0, 0, 0]);
        let mut result = create(flags | how)?;
        if result == i64::from(-libc::EINVAL) {
            result = create(flags)?;
        }
        // EACCES for a file that nobody executes has another cause, perhaps a security module.
        if result == i64::from(-libc::EACCES) && execution == Execution::Allowed {
            return Err(InjectError::NoExecutableMemfd { pid });
        }
        let in_process = u64::try_from(result).map_err(|_| InjectError::RemoteCall {
            pid,
            call,
            source: io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(0)),
        })?;
        match Self::take(&descriptors, in_process) {
            Ok(Ok(here)) => Ok(Self { in_process, here }),
            // The program itself has put another file there.
            Ok(Err(found)) => Err(InjectError::NotOurs { pid, descriptor: in_process, found }),
            Err(source) => {
                // We ignore an error here, because we report the first failure.
                let _ = close(thread, in_process);
                Err(system(process, "taking a memory file (pidfd_getfd)", source))
            }
        }
    }

    fn take(descriptors: &Descriptors<'_>, number: u64) -> io::Result<Result<File, Unlike>> {
        let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
        match descriptors.take(number) {
            Ok(taken) => memory_file::open_new(taken),
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(Err(Unlike::Closed)),
            Err(error) => Err(error),
        }
    }

    /// Makes the thread close the file in the process.
    pub(super) fn close(&self, thread: &mut Borrowed<'_>) -> Result<(), InjectError> {
        if thread.is_ours() { close(thread, self.in_process) } else { Ok(()) }
    }
}

fn close(thread: &mut Borrowed<'_>, descriptor: u64) -> Result<(), InjectError> {
    thread.checked_system_call("close", number::CLOSE, [descriptor, 0, 0, 0, 0, 0]).map(|_| ())
}
