//! Samples native functions: each tick of a processor's clock gives a place in a file.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use super::{
    own_time,
    profile::{ClockSeen, FunctionSeen, ThreadOf},
};
use crate::{
    bounds::NAMES_OF_SESSION,
    elf::{Effort, ElfFile, Functions},
    process::{
        AnonymousMapping, MappedFile, MappedRange, Mappings, OpenFile, Process, mapped_file::FileIdentity,
    },
    sys::{clock::now, clock_samples::ClockSample},
    units::{FileOffset, Nanos, Pid},
};

/// The most places in files that we count.
const PLACES: usize = 1 << 17;
/// The most files that we open and read.
const FILES: usize = 256;
/// How often per second we read the mappings of a process again, because it may have loaded more code.
const LOOKS: u32 = 4;
/// The most bytes of mappings that we store, over all processes. A single process can have 32 MiB.
const MAPPINGS: usize = 64 << 20;
/// The most processor time per second for reading mappings.
const MAX_READING: Nanos = Nanos(250_000_000);
/// The most bytes for the names of functions.
const NAMES: usize = NAMES_OF_SESSION;
/// The most time for reading symbols. The last file may exceed it.
const MAX_SYMBOLS: Nanos = Nanos(10_000_000_000);

/// The number of ticks in each thread.
type ByThread = BTreeMap<ThreadOf, u64>;

/// A file with samples.
#[derive(Debug)]
struct SeenFile {
    path: PathBuf,
    /// `None` if we cannot open the file.
    open: Option<OpenFile>,
    is_interpreter: bool,
}

/// The samples of native code.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    files: HashMap<FileIdentity, SeenFile>,
    places: HashMap<(FileIdentity, FileOffset), ByThread>,
    elsewhere: BTreeMap<String, u64>,
    samples: u64,
    mappings: HashMap<Pid, (Mappings, u32)>,
    /// The size of the stored mappings in bytes.
    mapping_bytes: usize,
    /// How long it took to read mappings since we last dropped them.
    reading: Nanos,
}

impl Leaves {
    /// Drops the mappings, so that we read them again when we need them.
    pub(super) fn look_again(&mut self) {
        self.forget_mappings();
        self.reading = Nanos(0);
    }

    fn forget_mappings(&mut self) {
        self.mappings = HashMap::new();
        self.mapping_bytes = 0;
    }

    /// Reads the mappings of a process, if there is time for that.
    fn read_mappings(&mut self, process: &Process, looks: u32) {
        if self.reading >= MAX_READING {
            return;
        }
        let begun = own_time();
        let mappings = process.mappings().unwrap_or_default();
        let bytes = bytes_of(&mappings);
        if let Some((before, _)) = self.mappings.remove(&process.pid()) {
            self.mapping_bytes -= bytes_of(&before);
        }
        if self.mapping_bytes + bytes > MAPPINGS {
            self.forget_mappings();
        }
        self.mapping_bytes += bytes;
        self.mappings.insert(process.pid(), (mappings, looks));
        self.reading = self.reading + Nanos(own_time().0 - begun.0);
    }

    /// Adds a tick for a process. `interpreter` is the file with its interpreter, if it has one.
    pub(super) fn add(&mut self, process: &Process, interpreter: Option<FileIdentity>, sample: ClockSample) {
        self.samples += 1;
        let pid = process.pid();
        if !self.mappings.contains_key(&pid) {
            self.read_mappings(process, LOOKS);
        }
        let is_known = |mappings: &Mappings| {
            let is_anonymous = mappings.anonymous.iter().any(|of| of.contains(sample.place));
            is_anonymous || mappings.file_at(sample.place).is_some()
        };
        let looks =
            self.mappings.get(&pid).filter(|(mappings, _)| !is_known(mappings)).map(|(_, looks)| *looks);
        if let Some(looks) = looks.filter(|looks| *looks > 0) {
            self.read_mappings(process, looks - 1);
        }
        let Some((mappings, _)) = self.mappings.get(&pid) else {
            *self.elsewhere.entry("code that there was no time to look up".to_owned()).or_default() += 1;
            return;
        };
        let found = mappings.file_at(sample.place);
        let Some((mapped, offset)) = found else {
            let anonymous = mappings.anonymous.iter().find(|of| of.contains(sample.place));
            let what = match anonymous {
                Some(of) if of.is_the_kernels() => "the kernel's pages (vdso)",
                Some(_) => "code that was made at run time",
                None => "code that is not mapped any more",
            };
            *self.elsewhere.entry(what.to_owned()).or_default() += 1;
            return;
        };
        if !self.files.contains_key(&mapped.identity) {
            if self.files.len() == FILES {
                *self.elsewhere.entry("other files".to_owned()).or_default() += 1;
                return;
            }
            let file = SeenFile {
                path: mapped.path_in_process.clone(),
                open: mapped.open(process).ok(),
                is_interpreter: Some(mapped.identity) == interpreter,
            };
            self.files.insert(mapped.identity, file);
        }
        let of = ThreadOf { process: pid, thread: sample.thread };
        let place = (mapped.identity, offset);
        if self.places.len() == PLACES && !self.places.contains_key(&place) {
            *self.elsewhere.entry("other places".to_owned()).or_default() += 1;
            return;
        }
        *self.places.entry(place).or_default().entry(of).or_default() += 1;
    }

    /// The results: functions, and the ticks that belong to no function. If time runs out, there are fewer
    /// functions.
    pub(super) fn seen(
        mut self,
        rate: u64,
        may_go_on: &mut dyn FnMut() -> bool,
    ) -> (Vec<FunctionSeen>, ClockSeen) {
        let mut by_file: HashMap<FileIdentity, Vec<(FileOffset, ByThread)>> = HashMap::new();
        for ((identity, offset), threads) in std::mem::take(&mut self.places) {
            by_file.entry(identity).or_default().push((offset, threads));
        }
        let mut functions = Vec::new();
        let mut interpreter = ByThread::new();
        let samples_of = |places: &[(FileOffset, ByThread)]| -> u64 {
            places.iter().flat_map(|(_, threads)| threads.values()).sum()
        };
        let mut by_file: Vec<_> = by_file.into_iter().collect();
        by_file.sort_by_cached_key(|(_, places)| Reverse(samples_of(places)));
        let (begun, mut name_bytes) = (now(), 0);
        let effort = Effort::default();
        for (identity, places) in by_file {
            let Some(file) = self.files.get(&identity) else { continue };
            let samples = || samples_of(&places);
            let name = || file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(what) = file.no_candidates() {
                *self.elsewhere.entry(what).or_default() += samples();
                if file.is_interpreter {
                    for (of, ticks) in places.iter().flat_map(|(_, threads)| threads) {
                        *interpreter.entry(*of).or_default() += ticks;
                    }
                    continue;
                }
            }
            if now().0 - begun.0 > MAX_SYMBOLS.0 || !may_go_on() {
                let what = "files that there was no time to look into".to_owned();
                *self.elsewhere.entry(what).or_default() += samples();
                continue;
            }
            let is_everybodys = is_everybodys(&file.path);
            let Some((elf, symbols)) = effort.read(|| file.symbols()).ok().flatten() else {
                if !is_everybodys {
                    let what = format!("{}, which cannot be read", name());
                    *self.elsewhere.entry(what).or_default() += samples();
                }
                continue;
            };
            let mut of_file: BTreeMap<String, FunctionSeen> = BTreeMap::new();
            for (offset, threads) in &places {
                let address = elf.segments().code_address_of(*offset);
                let symbol = address.and_then(|address| symbols.containing(address));
                let Some(symbol) = symbol.map(|symbol| symbol.names.canonical().as_str()) else {
                    if !is_everybodys {
                        let what = format!("code of {} without a symbol", name());
                        *self.elsewhere.entry(what).or_default() += threads.values().sum::<u64>();
                    }
                    continue;
                };
                if !of_file.contains_key(symbol) {
                    if name_bytes + symbol.len() > NAMES {
                        let what = "functions beyond the first 32 MiB of names".to_owned();
                        *self.elsewhere.entry(what).or_default() += threads.values().sum::<u64>();
                        continue;
                    }
                    name_bytes += symbol.len();
                }
                let seen = of_file.entry(symbol.to_owned()).or_insert_with(|| FunctionSeen {
                    file: file.path.clone(),
                    name: symbol.to_owned(),
                    line: None,
                    own: 0,
                    running: Nanos(0),
                    anywhere: 0,
                    anywhere_running: Nanos(0),
                    is_qualified: true,
                    is_everybodys,
                    depth: u32::MAX,
                    threads: BTreeMap::new(),
                });
                for (thread, samples) in threads {
                    let time = Nanos(samples * 1_000_000_000 / rate.max(1));
                    seen.add(*thread, *samples, time);
                    seen.anywhere += samples;
                    seen.anywhere_running = seen.anywhere_running + time;
                }
            }
            functions.extend(of_file.into_values());
        }
        let clock = ClockSeen { rate, samples: self.samples, elsewhere: self.elsewhere, interpreter };
        (functions, clock)
    }
}

impl SeenFile {
    /// A description of the file if a delay of its functions is of no use. The interpreter's time belongs to
    /// the Python functions that the interpreter executes. For the C library and allocators, a delay has no
    /// meaningful result.
    fn no_candidates(&self) -> Option<String> {
        if self.is_interpreter {
            return Some("the Python interpreter".to_owned());
        }
        is_everybodys(&self.path).then(|| "the C library and allocators".to_owned())
    }

    fn symbols(&self) -> Option<(ElfFile, Functions)> {
        let file = self.open.as_ref()?.file().try_clone().ok()?;
        let elf = ElfFile::from_file(file, &self.path).ok()?;
        let functions = elf.functions().ok()?;
        Some((elf, functions))
    }
}

/// An estimate of the memory that mappings take, in bytes.
fn bytes_of(mappings: &Mappings) -> usize {
    let of_file = |file: &MappedFile| {
        let ranges = file.ranges.capacity() * size_of::<MappedRange>();
        size_of::<MappedFile>() + file.path_in_process.as_os_str().len() + ranges
    };
    let files = mappings.files.iter().chain(&mappings.moved).map(of_file).sum::<usize>();
    files + mappings.anonymous.len() * size_of::<AnonymousMapping>()
}

/// Whether a file is the C library or an allocator.
fn is_everybodys(path: &Path) -> bool {
    const NAMES: [&str; 10] = [
        "libc.so",
        "libc-2",
        "ld-",
        "ld.so",
        "libpthread",
        "libjemalloc",
        "libtcmalloc",
        "libmimalloc",
        "libdl.so",
        "librt.so",
    ];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    NAMES.iter().any(|start| name.starts_with(start)) && name.contains(".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_everybody_are_known_by_name() {
        for (path, is) in [
            ("/lib/x86_64-linux-gnu/libc.so.6", true),
            ("/lib/libc-2.31.so", true),
            ("/lib64/ld-linux-x86-64.so.2", true),
            ("/lib/ld-musl-x86_64.so.1", true),
            ("/usr/lib/libjemalloc.so.2", true),
            ("/usr/lib/libm.so.6", false),
            ("/usr/lib/libcrypto.so.3", false),
            ("/usr/bin/ld-tool", false),
            ("/", false),
        ] {
            assert_eq!(is_everybodys(Path::new(path)), is, "{path}");
        }
    }
}
