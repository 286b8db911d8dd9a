//! The programs for uprobes, and which of them goes to a site.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::copies::Original;

/// The programs that are attached to uprobes, by how a hit names its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UprobeProgram {
    /// The site is the function: native functions and USDT probes.
    Site,
    /// The return address is in the function's trampoline: CPython with `-X perf`.
    Trampoline,
    /// The probe's arguments name the function: CPython's `function__entry`.
    PythonUsdt,
    /// The registers name the function: the stub of the helper in a Python process.
    PythonHelper,
}

/// A loaded program for uprobes.
#[derive(Debug)]
pub enum SiteProgram<'a> {
    /// For all sites: a cookie tells them apart.
    Shared(BorrowedFd<'a>),
    /// For one site.
    Own(OwnedFd),
}

/// The programs for uprobes. A form without other means than the helper's lacks two.
pub(super) enum Programs {
    /// Loaded once.
    Shared {
        site: OwnedFd,
        trampoline: Option<OwnedFd>,
        python_usdt: Option<OwnedFd>,
        python_helper: OwnedFd,
    },
    /// To be loaded for each site.
    Copied { site: Original, python_helper: Original },
}

impl Programs {
    /// The program to attach to a site.
    pub(super) fn program(&self, program: UprobeProgram, site: u32) -> io::Result<SiteProgram<'_>> {
        let lacking = || io::Error::from(io::ErrorKind::Unsupported);
        match self {
            Self::Shared { site, trampoline, python_usdt, python_helper } => {
                let shared = match program {
                    UprobeProgram::Site => Some(site),
                    UprobeProgram::Trampoline => trampoline.as_ref(),
                    UprobeProgram::PythonUsdt => python_usdt.as_ref(),
                    UprobeProgram::PythonHelper => Some(python_helper),
                };
                shared.map(|program| SiteProgram::Shared(program.as_fd())).ok_or_else(lacking)
            }
            Self::Copied { site: native, python_helper } => {
                let original = match program {
                    UprobeProgram::Site => native,
                    UprobeProgram::PythonHelper => python_helper,
                    UprobeProgram::Trampoline | UprobeProgram::PythonUsdt => return Err(lacking()),
                };
                let copy = original.load_for(site).map_err(|refused| {
                    tracing::warn!("the kernel refused a BPF program: {refused}");
                    refused.error
                })?;
                Ok(SiteProgram::Own(copy))
            }
        }
    }
}
