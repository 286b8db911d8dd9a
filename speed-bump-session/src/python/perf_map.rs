//! Follows `/tmp/perf-PID.map` as it grows. This file maps perf trampolines to Python functions.
//!
//! CPython 3.12+ appends a line at the first call of each code object, under `-X perf` or
//! `sys.activate_stack_trampoline("perf")` (Python/perf_trampoline.c). The process owns the file and may
//! write anything into it. So we skip garbage, and bound every read.

mod line;

use std::{
    collections::HashMap,
    fs::File,
    hash::{BuildHasher as _, RandomState},
    io,
    ops::Range,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use self::line::Lines;
pub use self::line::PerfMapEntry;
use super::root::ProcessRoot;
use crate::{
    bounds::{Budget, NAME_BYTES, Share},
    sys::below::LastLink,
    units::VirtualAddress,
};

/// The most bytes of the file that one poll reads: about 10,000 entries.
const POLL_LIMIT: u64 = 1 << 20;
/// The most entries that one poll takes. If lines are short, a poll reaches this limit first. Each entry
/// costs microseconds.
const POLL_ENTRIES: usize = 8_192;
/// The number of bytes in one read: at most 4,681 entries.
const CHUNK: usize = 64 << 10;
/// The most trampolines of one process that we follow: twice the number of code objects in the largest
/// programs that we design for.
pub const FOLLOWED: usize = 262_144;
/// The most trampolines that we follow over all processes. Each takes 32 bytes.
pub const FOLLOWED_BY_ALL: usize = 4 * FOLLOWED;
/// The most bytes of names if we read the whole file at once: twice the names of 100,000 functions.
const LISTED_BYTES: usize = 32 << 20;
/// The most time for a whole file, because the process may write faster than we read.
const LISTING: Duration = Duration::from_secs(5);
/// How many bytes before our position we compare, to check that the file is still the one that we read.
const CHECKED: usize = 64;

/// Why we did not read a perf map.
#[derive(Debug, thiserror::Error)]
pub enum PerfMapError {
    /// The file belongs to another user, who could give any address any name.
    #[error(
        "{} belongs to user {owner}, who is neither root nor the process's own user: not trusted; \
         remove the file and switch the trampolines off and on again in the process", path.display()
    )]
    ForeignOwner {
        /// The path of the file, as the process names it.
        path: PathBuf,
        /// The file's owner.
        owner: u32,
    },
    /// The file exists, but cannot be read.
    #[error("cannot read {} in the process's root: {source}", path.display())]
    Unreadable {
        /// The path of the file, as the process names it.
        path: PathBuf,
        /// The system's error; `InvalidInput` if the path does not lead to a regular file.
        r#source: io::Error,
    },
    /// We could not read the process's mappings. Without them we cannot tell entries of this process from old
    /// ones.
    #[error("cannot read the process's mappings to check {}: {source}", path.display())]
    Mappings {
        /// The path of the file, as the process names it.
        path: PathBuf,
        /// The error of `executable`.
        r#source: io::Error,
    },
}

/// Reads a process's perf map repeatedly. Each poll continues where the last one stopped.
#[derive(Debug)]
pub struct PerfMapFollower {
    root: ProcessRoot,
    path: PathBuf,
    owners: Vec<u32>,
    open: Option<OpenMap>,
    /// Hashes of the entries that we have returned, by address: a repeated entry is not new. The hashes are
    /// keyed, so that a process cannot make two entries collide.
    known: HashMap<u64, u64>,
    keys: RandomState,
    /// This follower's share of the room for all followers.
    share: Share,
    behind: bool,
    left_out: bool,
}

/// An open perf map, and our position in it.
#[derive(Debug)]
struct OpenMap {
    file: File,
    identity: (u64, u64),
    offset: u64,
    /// The last bytes before `offset`.
    before: Vec<u8>,
    lines: Lines,
}

impl PerfMapFollower {
    /// Follows the map of the process with this root.
    ///
    /// `namespace_pid` is the process's id in its own PID namespace (the last of `NSpid` in
    /// /proc/PID/status). CPython uses this id in the file's name. `users` are the process's user ids,
    /// because it may have changed its user since it created the file. We always trust root.
    ///
    /// `room` is for the trampolines that all followers remember together.
    pub fn new(root: ProcessRoot, namespace_pid: i32, users: &[u32], room: &Budget) -> Self {
        let path = PathBuf::from(format!("/tmp/perf-{namespace_pid}.map"));
        let owners = users.iter().copied().chain([0]).collect();
        let (known, keys) = Default::default();
        let share = room.share(FOLLOWED);
        Self { root, path, owners, open: None, known, keys, share, behind: false, left_out: false }
    }

    /// The new entries since the last poll. If an address has several lines, only the last one counts,
    /// because the process uses freed memory again. Empty while the file does not exist.
    ///
    /// `executable` returns the process's *anonymous executable* mappings. We call it at most once, after we
    /// have read the file, so that its result contains every trampoline. We drop entries outside of these
    /// mappings: they are from a dead process with the same id (CPython only ever appends to the file).
    ///
    /// One poll reads at most 1 MiB and leaves the rest to the next poll ([`is_behind`](Self::is_behind)).
    /// After an error, a later poll can still read all entries.
    ///
    /// # Errors
    /// We cannot trust or read the file, or `executable` failed.
    pub fn poll(
        &mut self,
        executable: impl FnOnce() -> io::Result<Vec<Range<VirtualAddress>>>,
    ) -> Result<Vec<PerfMapEntry>, PerfMapError> {
        self.reopen()?;
        let Some(open) = &mut self.open else { return Ok(Vec::new()) };
        // If anything below fails, the next poll starts here.
        let start = (open.offset, open.before.clone(), open.lines.clone());
        let read = open.read().map_err(|source| PerfMapError::Unreadable { path: self.path.clone(), source });
        self.behind = *read.as_ref().map_or(&false, |(_, behind)| behind);
        let read = read.map(|(entries, _)| entries);
        let checked = read.and_then(|entries| {
            if entries.is_empty() {
                return Ok(Vec::new());
            }
            let mappings = executable()
                .map(Mappings::new)
                .map_err(|source| PerfMapError::Mappings { path: self.path.clone(), source })?;
            Ok(entries.into_iter().filter(|entry| mappings.hold(entry)).collect())
        });
        let live: Vec<PerfMapEntry> = match checked {
            Ok(live) => live,
            Err(error) => {
                (open.offset, open.before, open.lines) = start;
                return Err(error);
            }
        };

        let mut latest: HashMap<u64, usize> = HashMap::new();
        for (index, entry) in live.iter().enumerate() {
            latest.insert(entry.address.0, index);
        }
        let mut news = Vec::new();
        for (index, entry) in live.into_iter().enumerate() {
            let is_latest = latest.get(&entry.address.0) == Some(&index);
            let hash = self.keys.hash_one(&entry);
            if !is_latest || self.known.get(&entry.address.0) == Some(&hash) {
                continue;
            }
            let is_short = entry.qualname.len() <= NAME_BYTES && entry.filename.len() <= NAME_BYTES;
            if is_short && (self.known.contains_key(&entry.address.0) || self.share.take(1)) {
                self.known.insert(entry.address.0, hash);
                news.push(entry);
            } else {
                self.left_out = true;
            }
        }
        Ok(news)
    }

    /// All entries that the file has now, as far as there is room ([`has_left_out`](Self::has_left_out)).
    ///
    /// # Errors
    /// See [`poll`](Self::poll).
    pub fn list(
        &mut self,
        executable: impl Fn() -> io::Result<Vec<Range<VirtualAddress>>>,
    ) -> Result<Vec<PerfMapEntry>, PerfMapError> {
        let (mut listed, mut bytes, began) = (Vec::new(), 0, Instant::now());
        loop {
            for entry in self.poll(&executable)? {
                bytes += entry.qualname.len() + entry.filename.len();
                if bytes > LISTED_BYTES {
                    self.left_out = true;
                    return Ok(listed);
                }
                listed.push(entry);
            }
            if !self.behind {
                return Ok(listed);
            }
            if began.elapsed() > LISTING {
                self.left_out = true;
                return Ok(listed);
            }
        }
    }

    /// Whether the last poll left entries to the next one.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Whether we have left out entries so far, because their names are too long or there are too many
    /// entries.
    pub fn has_left_out(&self) -> bool {
        self.left_out
    }

    /// The path of the file, as the process names it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file existed at the last poll.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens the file with this path. If this is another file than before, starts at its beginning.
    fn reopen(&mut self) -> Result<(), PerfMapError> {
        let path = || self.path.clone();
        let unreadable = |source| PerfMapError::Unreadable { path: path(), source };
        let file = match self.root.open(&self.path, LastLink::Refuse) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.open = None;
                return Ok(());
            }
            Err(error) => return Err(unreadable(error)),
        };
        let metadata = file.metadata().map_err(unreadable)?;
        if !self.owners.contains(&metadata.uid()) {
            return Err(PerfMapError::ForeignOwner { path: path(), owner: metadata.uid() });
        }
        let identity = (metadata.dev(), metadata.ino());
        if let Some(open) = &self.open
            && open.identity == identity
            && open.is_where_we_left(metadata.len()).map_err(unreadable)?
        {
            return Ok(());
        }
        self.open = Some(OpenMap { file, identity, offset: 0, before: Vec::new(), lines: Lines::default() });
        Ok(())
    }
}

impl OpenMap {
    /// Whether the file still has the bytes before our position. The process may have truncated the file, and
    /// rewritten it.
    fn is_where_we_left(&self, length: u64) -> io::Result<bool> {
        if length < self.offset {
            return Ok(false);
        }
        let mut now = vec![0; self.before.len()];
        match self.file.read_exact_at(&mut now, self.offset - self.before.len() as u64) {
            Ok(()) => Ok(now == self.before),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next entries, and whether more may follow.
    fn read(&mut self) -> io::Result<(Vec<PerfMapEntry>, bool)> {
        let mut entries = Vec::new();
        let mut chunk = vec![0; CHUNK];
        let end = self.offset + POLL_LIMIT;
        while self.offset < end && entries.len() < POLL_ENTRIES {
            let length = match self.file.read_at(&mut chunk, self.offset) {
                Ok(0) => return Ok((entries, false)),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let read = chunk.get(..length).unwrap_or_default();
            self.offset += length as u64;
            self.before.extend_from_slice(read.get(length.saturating_sub(CHECKED)..).unwrap_or_default());
            self.before.drain(..self.before.len().saturating_sub(CHECKED));
            self.lines.push(read, &mut entries);
        }
        Ok((entries, true))
    }
}

/// Ranges of memory, sorted by their start.
struct Mappings(Vec<Range<VirtualAddress>>);

impl Mappings {
    fn new(mut ranges: Vec<Range<VirtualAddress>>) -> Self {
        ranges.sort_unstable_by_key(|range| range.start);
        Self(ranges)
    }

    fn hold(&self, entry: &PerfMapEntry) -> bool {
        let after = self.0.partition_point(|range| range.start <= entry.address);
        let range = after.checked_sub(1).and_then(|index| self.0.get(index));
        let end = entry.address.0.checked_add(entry.size);
        range.zip(end).is_some_and(|(range, end)| end <= range.end.0)
    }
}

#[cfg(test)]
mod tests;
