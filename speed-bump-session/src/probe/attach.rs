//! Attaches the probe sites of one process, and detaches them.
//!
//! This module knows offsets and cookies, not functions or targets. If the kernel has `uprobe_multi` links,
//! all sites of a file share one link. Otherwise each site has its own perf event.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    thread,
};

use speed_bump_abi::Cookie;

use super::file::ProbeFile;
use crate::{
    engine::bpf::{BpfEngine, EngineError, Form, SiteProgram, UprobeProgram},
    process::Process,
    sys::{
        bpf::{self, MultiSites},
        perf_event::{self, UprobeSource},
    },
    units::{FileOffset, Pid},
};

/// How many threads close links at a time if each site has its own perf event. For each event the kernel
/// waits for a grace period (about 100 ms). Events that we close at the same time share the grace period.
const CLOSERS: usize = 64;

/// One place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachSite {
    /// The offset of the site in the file.
    pub offset: FileOffset,
    /// The offset of the USDT semaphore in the file. The kernel raises the semaphore while we are attached.
    pub semaphore: Option<FileOffset>,
    /// The number of the site in the engine's list of sites.
    pub site: u32,
}

/// Sites in one file that run the same program.
#[derive(Clone, Debug)]
pub struct SiteGroup {
    /// The open file of the sites.
    pub file: Arc<ProbeFile>,
    /// The BPF program that runs there.
    pub program: UprobeProgram,
    /// The sites.
    pub sites: Vec<AttachSite>,
}

/// A site that the kernel refused.
#[derive(Debug)]
pub struct RefusedSite {
    /// The site.
    pub site: AttachSite,
    /// The open file of the site.
    pub file: Arc<ProbeFile>,
    /// The kernel's error.
    pub error: io::Error,
}

/// Why we could attach nothing.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel has no perf events for uprobes.
    #[error(
        "this kernel offers no uprobe events ({0}); it needs CONFIG_UPROBE_EVENTS and CONFIG_PERF_EVENTS"
    )]
    NoUprobes(io::Error),
    /// The kernel refused the program.
    #[error(transparent)]
    Program(#[from] EngineError),
    /// The process ended.
    #[error("process {pid} ended before its probe sites were attached")]
    ProcessGone {
        /// PID of the process.
        pid: Pid,
    },
    /// The main thread has ended. The kernel finds the memory of a process through its main thread.
    #[error(
        "process {pid} has ended its main thread while other threads run on, and the kernel puts no probes \
         into such a process: its native functions cannot be delayed. Its Python functions can, through the \
         helper (--entry helper)"
    )]
    MainThreadEnded {
        /// PID of the process.
        pid: Pid,
    },
    /// We lack a privilege.
    #[error(
        "not allowed to attach uprobes to process {pid} ({error}): run as root, or with CAP_BPF, CAP_PERFMON \
         and CAP_SYS_PTRACE"
    )]
    Privilege {
        /// PID of the process.
        pid: Pid,
        /// The kernel's error.
        error: io::Error,
    },
    /// There are no file descriptors left.
    #[error(
        "out of file descriptors with {attached} probe sites attached ({error}): raise `ulimit -n`, or \
         select fewer functions"
    )]
    Descriptors {
        /// The number of sites that we had already attached.
        attached: usize,
        /// The kernel's error.
        error: io::Error,
    },
}

/// The links to one process. Dropping this value detaches everything.
#[derive(Debug, Default)]
pub struct Attachment {
    multi: Vec<OwnedFd>,
    single: Vec<SingleLink>,
    sites: usize,
}

/// A site's event, and the program's link if the kernel has links for perf events.
#[derive(Debug)]
struct SingleLink {
    _link: Option<OwnedFd>,
    _event: OwnedFd,
}

impl Attachment {
    /// To how many sites we are attached.
    pub fn sites(&self) -> usize {
        self.sites
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut single = std::mem::take(&mut self.single);
        let share = single.len().div_ceil(CLOSERS).max(1);
        thread::scope(|scope| {
            while !single.is_empty() {
                let part = single.split_off(single.len().saturating_sub(share));
                scope.spawn(move || drop(part));
            }
        });
    }
}

/// Attaches sites to one process. `process` is the number of the process in the session; it becomes part of
/// every cookie.
///
/// Returns the sites that the kernel refuses, and attaches all other sites. Calls `at_work` after each link:
/// with many links, an old kernel takes so long that the caller would seem to hang.
///
/// # Errors
/// We can attach nothing at all. We have detached again what we had attached.
pub fn attach(
    engine: &BpfEngine,
    pid: Pid,
    process: u32,
    groups: &[SiteGroup],
    at_work: &dyn Fn(),
) -> Result<(Attachment, Vec<RefusedSite>), AttachError> {
    // The kernel would accept the link, but the probe would see no call.
    let has_sites = groups.iter().any(|group| !group.sites.is_empty());
    if has_sites && Process::open(pid).is_ok_and(|process| process.shown_by() != pid) {
        return Err(AttachError::MainThreadEnded { pid });
    }
    let mut attaching = Attaching {
        engine,
        pid,
        process,
        everywhere: false,
        source: None,
        attachment: Attachment::default(),
        refused: Vec::new(),
        at_work,
    };
    for group in groups {
        engine.load_program(group.program)?;
        match engine.form() {
            Form::Multi => attaching.multi(group, &group.sites)?,
            Form::Single | Form::Bounded | Form::Copied => attaching.single(group)?,
        }
    }
    Ok((attaching.attachment, attaching.refused))
}

/// Attaches sites to a process and all its forked children, if only these map the file. So a new child hits
/// the sites from its first instruction on. `None` if the kernel can only bind links to a process.
///
/// # Errors
/// See [`attach`].
pub fn attach_to_family(
    engine: &BpfEngine,
    pid: Pid,
    group: &SiteGroup,
) -> Result<Option<Attachment>, AttachError> {
    if engine.form() != Form::Multi {
        return Ok(None);
    }
    let mut attaching = Attaching {
        engine,
        pid,
        process: 0,
        everywhere: true,
        source: None,
        attachment: Attachment::default(),
        refused: Vec::new(),
        at_work: &|| {},
    };
    engine.load_program(group.program)?;
    attaching.multi(group, &group.sites)?;
    Ok(attaching.refused.is_empty().then_some(attaching.attachment))
}

struct Attaching<'a> {
    engine: &'a BpfEngine,
    pid: Pid,
    process: u32,
    /// Whether links apply to every process that maps the file.
    everywhere: bool,
    source: Option<UprobeSource>,
    attachment: Attachment,
    /// The function that we call after each link.
    at_work: &'a dyn Fn(),
    refused: Vec<RefusedSite>,
}

impl Attaching<'_> {
    /// Makes one link for all sites. The kernel accepts all sites or none, and does not report which ones it
    /// refuses. So we find refused sites by halving the list.
    fn multi(&mut self, group: &SiteGroup, sites: &[AttachSite]) -> Result<(), AttachError> {
        if sites.is_empty() {
            return Ok(());
        }
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset.0).collect();
        let semaphores: Vec<u64> =
            sites.iter().map(|site| site.semaphore.map_or(0, |offset| offset.0)).collect();
        let cookies: Vec<u64> = sites.iter().map(|site| self.cookie(site)).collect();
        let only = (!self.everywhere).then_some(self.pid);
        let arrays = MultiSites {
            path: group.file.attach_path(),
            offsets: &offsets,
            semaphores: &semaphores,
            cookies: &cookies,
        };
        // All sites share one program, so the number of the site does not matter.
        let linked = match self.engine.program(group.program, 0) {
            Ok(SiteProgram::Shared(program)) => bpf::link_uprobe_multi(program, &arrays, only),
            Ok(SiteProgram::Own(_)) => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error),
        };
        match linked {
            Ok(link) => {
                self.attachment.multi.push(link);
                self.attachment.sites += sites.len();
                Ok(())
            }
            Err(error) => match (self.fatal(error)?, sites) {
                (error, [site]) => {
                    self.refuse(*site, group, error);
                    Ok(())
                }
                (_, sites) => {
                    let (left, right) = sites.split_at(sites.len() / 2);
                    self.multi(group, left)?;
                    self.multi(group, right)
                }
            },
        }
    }

    /// Makes a perf event for each site, and a link if the kernel has links for perf events.
    fn single(&mut self, group: &SiteGroup) -> Result<(), AttachError> {
        let source = match self.source {
            Some(source) => source,
            None => *self.source.insert(UprobeSource::read().map_err(AttachError::NoUprobes)?),
        };
        for site in &group.sites {
            let linked = source
                .open(group.file.attach_path(), site.offset, site.semaphore, self.pid)
                .and_then(|event| {
                    let link = match self.engine.program(group.program, site.site)? {
                        SiteProgram::Shared(program) => {
                            Some(bpf::link_perf_event(program, event.as_fd(), self.cookie(site))?)
                        }
                        SiteProgram::Own(program) => {
                            perf_event::set_program(event.as_fd(), program.as_fd())?;
                            None
                        }
                    };
                    Ok(SingleLink { _link: link, _event: event })
                });
            match linked {
                Ok(link) => {
                    self.attachment.single.push(link);
                    self.attachment.sites += 1;
                    (self.at_work)();
                }
                Err(error) => {
                    let error = self.fatal(error)?;
                    self.refuse(*site, group, error);
                }
            }
        }
        Ok(())
    }

    fn cookie(&self, site: &AttachSite) -> u64 {
        Cookie { process: self.process, site: site.site }.to_bits()
    }

    fn refuse(&mut self, site: AttachSite, group: &SiteGroup, error: io::Error) {
        self.refused.push(RefusedSite { site, file: Arc::clone(&group.file), error });
    }

    /// Returns the error if it concerns only one site. Fails if the error concerns the whole attach.
    fn fatal(&self, error: io::Error) -> Result<io::Error, AttachError> {
        let pid = self.pid;
        match error.raw_os_error() {
            Some(libc::ESRCH) => Err(AttachError::ProcessGone { pid }),
            Some(libc::EPERM | libc::EACCES) => Err(AttachError::Privilege { pid, error }),
            Some(libc::EMFILE | libc::ENFILE) => {
                Err(AttachError::Descriptors { attached: self.attachment.sites, error })
            }
            _ => Ok(error),
        }
    }
}
