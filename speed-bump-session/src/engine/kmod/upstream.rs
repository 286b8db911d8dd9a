//! Upstream's module, speed-bump-native-kmod, if the user accepts it: checks which requests are safe.
//!
//! At each hit of a target with `pid=N`, that module goes from the thread to its ancestors, until it finds
//! process N or PID 1. A process that the kernel itself has started descends from PID 0 only, and PID 0 is
//! its own parent. There the search never ends, in the kernel, and nothing can kill it. So we refuse a
//! function if a process like that may call it. It is impossible to list all programs of these processes. So
//! the user accepts a risk: a program that we do not know may run the file.
//!
//! We also check what that module does not check: whether a symbol is a function, and whether two names are
//! one place. And we give the module the path of our descriptor, so that the path leads to the file that we
//! checked.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use super::{Listed, Listing, TargetName};
use crate::{
    elf::ElfFile,
    kernel::namespace::Namespace,
    process::{Process, mapped_file::FileIdentity},
    units::{Pid, VirtualAddress},
};

/// System folders. The kernel starts programs from these folders. It may use the programs and their libraries
/// at any time.
const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/nix/store", "/gnu/store"];
/// A folder that we allow, although it lies in one of these.
const LOCAL: &str = "/usr/local";
/// The most bytes of the module's list. It must fit into a page, including the NUL at its end.
const PAGE: usize = 4095;
/// The longest text after a name in the list: ` delay_ns=10000000000 hits=9223372036854775807 pid=4194304`
/// and the newline.
const LINE: usize = 62;
/// The most ancestors that we follow. PIDs are below 2^22, and real chains are far shorter than a thousand.
const GENERATIONS: usize = 4096;

/// Why a function or a process cannot be a target of upstream's module.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamRefusal {
    /// That module takes `pid=` as a number in the initial PID namespace.
    #[error(
        "upstream's kernel module reads pid= as the initial PID namespace numbers processes, and the tool is \
         in another one: run it on the host, or use --engine bpf"
    )]
    PidNamespace,
    /// The process is PID 1. That module's search ends at PID 1.
    #[error("upstream's kernel module never finds process 1: use --engine bpf")]
    Init,
    /// The process itself does not descend from PID 1.
    #[error(
        "process {pid} does not descend from process 1, and upstream's kernel module would search its \
         ancestors for ever: use --engine bpf"
    )]
    NoInit {
        /// PID of the process that does not descend from process 1.
        pid: Pid,
    },
    /// The file is in a system folder.
    #[error(
        "{} belongs to the system, and the kernel may start a program that runs it (modprobe, a handler of \
         core dumps): upstream's kernel module would hang that for ever. Only functions of programs and \
         libraries outside of /usr, /bin, /sbin and /lib are safe with it: leave this one out, load \
         kmod/speed_bump.ko in its place, or use --engine bpf",
        .file.display()
    )]
    System {
        /// The path of the function's file.
        file: PathBuf,
    },
    /// The kernel starts a program that is near the file.
    #[error(
        "the kernel starts {} ({setting}), which may run {}: upstream's kernel module would hang it for \
         ever; leave the function out, or use --engine bpf", .program.display(), .file.display()
    )]
    KernelStarts {
        /// The setting that names the program.
        setting: &'static str,
        /// The path of that program.
        program: PathBuf,
        /// The path of the function's file.
        file: PathBuf,
    },
    /// A process that does not descend from PID 1 already runs the file.
    #[error(
        "process {pid} ({comm}) runs {} too and does not descend from process 1: upstream's kernel module \
         would hang it for ever; leave the function out, or use --engine bpf", .file.display()
    )]
    Runs {
        /// PID of the process that does not descend from process 1.
        pid: i32,
        /// The name of the process, from its `comm`.
        comm: String,
        /// The path of the function's file.
        file: PathBuf,
    },
    /// Several symbols have this name, and that module takes the first, of any kind.
    #[error(
        "{symbol} in {}: the file has other symbols of this name, and upstream's kernel module may take one \
         of them, data too; leave it out, or use --engine bpf", .file.display()
    )]
    Ambiguous {
        /// The symbol of the function, as in the symbol table.
        symbol: String,
        /// The path of the function's file.
        file: PathBuf,
    },
    /// Another user has a target in the same file: two targets at one place add up their delays.
    #[error(
        "somebody else has the target {other} in the same file, and with upstream's kernel module two names \
         of one function add their delays; remove it, or use --engine bpf"
    )]
    Shared {
        /// The other target, in the form `PATH:SYMBOL`.
        other: String,
    },
    /// The list has no room for the targets, so we could not count their calls.
    #[error(
        "upstream's kernel module lists its targets in one page, which has no room for {wanted} more: select \
         fewer, or use --engine bpf"
    )]
    Unlisted {
        /// How many targets we wanted to add.
        wanted: usize,
    },
    /// A file that the check needs cannot be read.
    #[error("cannot read {}: {error}", .file.display())]
    Unreadable {
        /// The path of that file.
        file: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is no longer an ELF file.
    #[error(transparent)]
    Elf(#[from] crate::elf::ElfError),
}

/// Decides which functions may be targets, and keeps their files open.
#[derive(Debug)]
pub struct UpstreamGuard {
    /// Programs that the kernel may start, with the settings that name them.
    started: Vec<(&'static str, PathBuf)>,
    held: Vec<(FileIdentity, File)>,
}

impl UpstreamGuard {
    /// A guard for targets of one process.
    ///
    /// # Errors
    /// The process cannot be a target.
    pub fn new(process: Pid) -> Result<Self, UpstreamRefusal> {
        if Namespace::Pid.is_initial() != Some(true) {
            return Err(UpstreamRefusal::PidNamespace);
        }
        if process.get() == 1 {
            return Err(UpstreamRefusal::Init);
        }
        if !descends_from_init(process.get(), parent) {
            return Err(UpstreamRefusal::NoInit { pid: process });
        }
        Ok(Self { started: programs_that_the_kernel_starts(), held: Vec::new() })
    }

    /// Checks a function of a file. Returns the path for the module. It is the path of our own descriptor,
    /// which no one can redirect. The file stays open as long as the guard exists.
    ///
    /// # Errors
    /// The function may not be a target.
    pub fn admit(
        &mut self,
        path_in_process: &Path,
        path: &Path,
        identity: FileIdentity,
        symbol: &str,
        address: VirtualAddress,
    ) -> Result<String, UpstreamRefusal> {
        for path in [path_in_process, path] {
            check_place(path, &self.started)?;
        }
        let unreadable = |error| UpstreamRefusal::Unreadable { file: path.to_owned(), error };
        let known = self.held.iter().position(|(held, _)| *held == identity);
        let at = match known {
            Some(at) => at,
            None => {
                if let Some((pid, comm)) = run_without_init(identity) {
                    return Err(UpstreamRefusal::Runs { pid, comm, file: path.to_owned() });
                }
                self.held.push((identity, File::open(path).map_err(unreadable)?));
                self.held.len() - 1
            }
        };
        let (_, file) = &self.held[at];
        let elf = ElfFile::from_file(file.try_clone().map_err(unreadable)?, path)?;
        if elf.values_of(symbol)? != [address].into() {
            return Err(UpstreamRefusal::Ambiguous { symbol: symbol.to_owned(), file: path.to_owned() });
        }
        Ok(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
    }
}

/// Checks that the list has room for new targets, and that no other user has a target in their files.
pub(super) fn check_listing(
    listing: &Listing,
    own: &[TargetName],
    wanted: &[&TargetName],
) -> Result<(), UpstreamRefusal> {
    let is_own = |listed: &&Listed| own.iter().any(|name| name.as_str() == listed.name);
    let others: Vec<_> = listing.targets.iter().filter(|listed| !is_own(listed)).collect();
    let names = others.iter().map(|listed| listed.name.len());
    let names = names.chain(own.iter().chain(wanted.iter().copied()).map(|name| name.as_str().len()));
    if names.map(|length| length + LINE).sum::<usize>() > PAGE {
        return Err(UpstreamRefusal::Unlisted { wanted: wanted.len() });
    }
    let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let others: HashMap<_, _> = others
        .iter()
        .filter_map(|listed| Some((file(Path::new(listed.name.split_once(':')?.0))?, &listed.name)))
        .collect();
    let shared = wanted.iter().find_map(|name| others.get(&file(name.path())?));
    match shared {
        Some(other) => Err(UpstreamRefusal::Shared { other: (*other).clone() }),
        None => Ok(()),
    }
}

/// Refuses files in system folders, and files near programs that the kernel starts.
fn check_place(path: &Path, started: &[(&'static str, PathBuf)]) -> Result<(), UpstreamRefusal> {
    // A path may go through a process's own root. There may be another system behind this root, or the
    // machine's own files.
    let inside = path.strip_prefix("/proc").ok().map(|rest| rest.components().skip(2).collect::<PathBuf>());
    if let Some(inside) = inside.filter(|_| path.components().any(|part| part.as_os_str() == "root")) {
        return check_place(&Path::new("/").join(inside), started);
    }
    if SYSTEM.iter().any(|folder| path.starts_with(folder)) && !path.starts_with(LOCAL) {
        return Err(UpstreamRefusal::System { file: path.to_owned() });
    }
    // A program's libraries may lie beside it, for example below /opt/NAME.
    let near = |path: &Path| -> Vec<_> {
        path.components()
            .filter(|part| *part != Component::RootDir)
            .take(2)
            .map(Component::as_os_str)
            .map(ToOwned::to_owned)
            .collect()
    };
    let beside = started.iter().find(|(_, program)| near(program) == near(path));
    match beside {
        Some((setting, program)) => {
            Err(UpstreamRefusal::KernelStarts { setting, program: program.clone(), file: path.to_owned() })
        }
        None => Ok(()),
    }
}

/// The programs that the kernel starts, as far as the kernel's settings show them.
fn programs_that_the_kernel_starts() -> Vec<(&'static str, PathBuf)> {
    const SETTINGS: [&str; 4] = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/poweroff_cmd",
        "/sys/kernel/uevent_helper",
    ];
    let mut found: Vec<_> = SETTINGS
        .into_iter()
        .filter_map(|setting| Some((setting, program_of(setting, &fs::read_to_string(setting).ok()?)?)))
        .collect();
    // In version 1 of control groups, each hierarchy has a setting.
    for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let agent = fs::read_to_string(entry.path().join("release_agent")).ok();
        found.extend(
            agent
                .and_then(|text| program_of("release_agent", &text))
                .map(|program| ("release_agent", program)),
        );
    }
    found
}

/// The program that a setting names, such as `/sbin/modprobe` or `|/path/to/handler %p`; `None` if it names
/// none. `core_pattern` names a program only after `|`; otherwise it names a file for the core dump.
fn program_of(setting: &str, text: &str) -> Option<PathBuf> {
    let text = text.trim();
    let command = if setting.ends_with("core_pattern") { text.strip_prefix('|')? } else { text };
    let program = command.split_ascii_whitespace().next()?;
    program.starts_with('/').then(|| PathBuf::from(program))
}

/// A process that maps the file, and for which the module's search would not end. The ancestors of this
/// process end at PID 0, or the process is PID 1 and has several threads.
fn run_without_init(identity: FileIdentity) -> Option<(i32, String)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| !descends_from_init(*pid, parent) || (*pid == 1 && has_threads(*pid))).find_map(|pid| {
        let process = Process::open(Pid::new(pid)?).ok()?;
        let mappings = process.mappings().ok()?;
        let maps = mappings.files.iter().any(|file| file.identity == identity);
        maps.then(|| (pid, process.comm().unwrap_or_default()))
    })
}

fn has_threads(pid: i32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() > 1)
}

/// Whether the process or one of its ancestors is PID 1. A process that is gone does no harm, so the answer
/// is also true for it.
fn descends_from_init(pid: i32, parent: impl Fn(i32) -> Option<i32>) -> bool {
    let mut ancestor = pid;
    for _ in 0..GENERATIONS {
        match ancestor {
            1 => return true,
            0 => return false,
            pid => match parent(pid) {
                Some(parent) => ancestor = parent,
                None => return true,
            },
        }
    }
    false
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
