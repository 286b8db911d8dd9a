//! The control block of one session in one process: we create it, and share it with the helper.
//!
//! We read and write the block as a file, never through a mapping. The process has mapped the block and may
//! do anything with it. If the process truncates the file, we get an error; with a mapping we would get
//! SIGBUS.

mod callers;
mod delays;
mod head;
mod selector;
mod signals;
mod times;

pub use delays::InPlace;
pub use signals::SignalAnswer;

use std::{
    fs::File,
    io,
    mem::{offset_of, size_of},
    ops::Range,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use rustix::fs::{SealFlags, fcntl_add_seals};
use speed_bump_abi::control_block::{
    ControlBlock, FAILURE_TEXT_BYTES, Failure, FunctionRecord, HelperCommand, MAGIC, State, StubForm, VERSION,
};

use super::layout::{Layout, Room};
use crate::{bounds::NAME_BYTES, python::version::PythonVersion, sys::shared_futex::FutexPage, units::Nanos};

/// Why we could not use a block.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Reading or writing failed.
    #[error("the memory shared with the process cannot be used: {0}; has the process closed or cut it?")]
    Io(io::Error),
    /// A new selector is longer than its room in the block.
    #[error(
        "the new targets take {bytes} bytes and there is room for {room}: end this session and start another"
    )]
    SelectorTooLong {
        /// The selector's length in bytes.
        bytes: usize,
        /// The room in bytes.
        room: u64,
    },
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The helper's last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The helper's state; `None` for an unknown number.
    pub state: Option<State>,
    /// Bits of [`notice`](speed_bump_abi::control_block::notice).
    pub notices: u32,
    /// How long another tool's hook replaced the helper's hook and did not call it: a share of the time, in
    /// thousandths.
    pub hook_missed: u32,
    /// Bits of [`unlisted`](speed_bump_abi::control_block::unlisted).
    pub unlisted: u32,
    /// The generation of the selector that the helper has applied to all code.
    pub applied_generation: u32,
    /// The number of functions that the helper has compared with the targets in its survey.
    pub surveyed: u64,
    /// The callers that targets name and that the helper has found, as bits.
    pub callers_found: u64,
    /// The version of the interpreter, as the helper reports it.
    pub python: Option<PythonVersion>,
}

/// The block, from the loader's side.
#[derive(Debug)]
pub struct Block {
    file: File,
    /// See [`ControlBlock::number`].
    number: u32,
    futexes: FutexPage,
    layout: Layout,
    heartbeat: AtomicU32,
    said: Mutex<Said>,
    /// How the helper delays by itself, if it does.
    in_place: Option<InPlace>,
    /// Whether the helper has ever timed calls.
    has_timed: AtomicBool,
}

/// What we wrote to the helper last.
#[derive(Debug)]
struct Said {
    bell: u32,
    generation: u32,
}

/// The contents of a new block.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The most functions that the block can hold.
    pub room: Room,
    /// The compiled targets.
    pub selector: &'a [u8],
    /// The form of the helper's stub.
    pub stub_form: StubForm,
    /// The helper's first command.
    pub command: HelperCommand,
    /// The session's signals, and how long the helper spins on each.
    pub signals: &'a [(u32, Nanos)],
    /// How the helper delays by itself, if it does.
    pub in_place: Option<InPlace>,
}

impl Contents<'_> {
    /// Writes the block into an empty memfd, before the helper sees it, and seals its size.
    ///
    /// # Errors
    /// The system's error; `EPERM` or `EINVAL` for a file that we cannot seal.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let layout = self.layout();
        file.set_len(layout.size)?;
        file.write_all_at(self.selector, layout.selectors[0])?;
        let put_u32 = |offset: usize, value: u32| file.write_all_at(&value.to_ne_bytes(), offset as u64);
        let put_u64 = |offset: usize, value: u64| file.write_all_at(&value.to_ne_bytes(), offset as u64);
        put_u32(offset_of!(ControlBlock, version), VERSION)?;
        put_u32(offset_of!(ControlBlock, stub_form), self.stub_form as u32)?;
        put_u32(offset_of!(ControlBlock, number), number(file)?)?;
        put_u64(offset_of!(ControlBlock, size), layout.size)?;
        put_u64(offset_of!(ControlBlock, selector_offset), layout.selectors[0])?;
        put_u64(offset_of!(ControlBlock, selector_length), self.selector.len() as u64)?;
        put_u32(offset_of!(ControlBlock, generation), 1)?;
        put_u32(offset_of!(ControlBlock, command), self.command as u32)?;
        put_u64(offset_of!(ControlBlock, functions_offset), layout.functions)?;
        put_u32(offset_of!(ControlBlock, functions_capacity), layout.functions_capacity)?;
        put_u32(offset_of!(ControlBlock, index_slots), layout.index_slots)?;
        put_u64(offset_of!(ControlBlock, branches_offset), layout.branches)?;
        put_u64(offset_of!(ControlBlock, index_offset), layout.index)?;
        put_u64(offset_of!(ControlBlock, names_offset), layout.names)?;
        put_u64(offset_of!(ControlBlock, names_capacity), layout.names_capacity)?;
        signals::write(self.signals, put_u32, put_u64)?;
        delays::write(self, &layout, put_u32, put_u64)?;
        put_u64(offset_of!(ControlBlock, magic), MAGIC)?;
        // From here on no process can change the file's size: truncation would end the target by SIGBUS. Nor
        // can a process forbid our writes with another seal.
        Ok(fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?)
    }

    /// The size of the whole block in bytes.
    pub fn size(&self) -> u64 {
        self.layout().size
    }

    fn layout(&self) -> Layout {
        Layout::new(self.room, self.selector.len(), self.in_place.as_ref())
    }
}

/// The number of the block in this memfd: its inode number, which no other block on this machine has.
fn number(file: &File) -> io::Result<u32> {
    Ok(file.metadata()?.ino() as u32)
}

impl Block {
    /// Takes over the file. The caller has written these contents into it.
    ///
    /// # Errors
    /// We cannot map the file.
    pub fn new(file: File, contents: &Contents<'_>) -> Result<Self, BlockError> {
        let futexes = FutexPage::map(&file, size_of::<ControlBlock>())?;
        Ok(Self {
            number: number(&file)?,
            file,
            futexes,
            layout: contents.layout(),
            heartbeat: AtomicU32::new(0),
            said: Mutex::new(Said { bell: 0, generation: 1 }),
            in_place: contents.in_place,
            has_timed: AtomicBool::new(contents.in_place.is_some_and(|in_place| in_place.timing != 0)),
        })
    }

    /// The number of the block. The helper's stub carries it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads the helper's report.
    ///
    /// # Errors
    /// The block is gone.
    pub fn report(&self) -> Result<Report, BlockError> {
        let head = self.head()?;
        Ok(Report {
            state: state(head.u32(offset_of!(ControlBlock, state))),
            notices: head.u32(offset_of!(ControlBlock, notices)),
            hook_missed: head.u32(offset_of!(ControlBlock, hook_missed)),
            unlisted: head.u32(offset_of!(ControlBlock, unlisted)),
            applied_generation: head.u32(offset_of!(ControlBlock, applied_generation)),
            surveyed: head.u64(offset_of!(ControlBlock, surveyed)),
            callers_found: head.u64(offset_of!(ControlBlock, callers_found)),
            python: PythonVersion::from_hex(head.u32(offset_of!(ControlBlock, python_version))),
        })
    }

    /// Why the helper failed, and the helper's own text about it. The reason is `None` for an unknown number.
    ///
    /// # Errors
    /// The block is gone.
    pub fn failure(&self) -> Result<(Option<Failure>, String), BlockError> {
        let mut text = [0; FAILURE_TEXT_BYTES];
        self.read(offset_of!(ControlBlock, failure_text) as u64, &mut text)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let words = String::from_utf8_lossy(text.get(..end).unwrap_or_default()).into_owned();
        Ok((failure(self.get_u32(offset_of!(ControlBlock, failure))?), words))
    }

    /// Sets the helper's command.
    ///
    /// # Errors
    /// The block is gone.
    pub fn command(&self, command: HelperCommand) -> Result<(), BlockError> {
        self.put_u32(offset_of!(ControlBlock, command), command as u32)?;
        self.ring(&mut self.said())
    }

    /// Ends the session for forked children of a process that has ended. The helper's thread would have done
    /// this, but this thread ended together with the process.
    ///
    /// # Errors
    /// The block is gone.
    pub fn end(&self) -> Result<(), BlockError> {
        self.put_u32(offset_of!(ControlBlock, state), State::Left as u32)
    }

    /// Shows the helper that we live.
    ///
    /// # Errors
    /// The block is gone.
    pub fn beat(&self) -> Result<(), BlockError> {
        let beat = self.heartbeat.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.put_u32(offset_of!(ControlBlock, heartbeat), beat)
    }

    /// The number of records that the helper has allocated, at most the capacity.
    pub(super) fn handed_out(&self) -> Result<u32, BlockError> {
        Ok(self.get_u32(offset_of!(ControlBlock, functions))?.min(self.layout.functions_capacity))
    }

    /// Which of the records with these numbers are ready.
    pub(super) fn ready(&self, numbers: Range<u32>) -> Result<Vec<u32>, BlockError> {
        // We read all records with one system call, because we poll them until they are ready.
        let count = u32::saturating_sub(numbers.end, numbers.start) as usize;
        let mut bytes = vec![0; count * size_of::<FunctionRecord>()];
        self.read(self.place_of(numbers.start), &mut bytes)?;
        let is_ready =
            |record: &[u8]| record.first_chunk().is_some_and(|ready| u32::from_ne_bytes(*ready) == 1);
        let records = numbers.zip(bytes.chunks_exact(size_of::<FunctionRecord>()));
        Ok(records.filter(|(_, record)| is_ready(record)).map(|(number, _)| number).collect())
    }

    /// The words of a ready record.
    pub(super) fn record(&self, number: u32) -> Result<[u32; 8], BlockError> {
        // We read the record after `ready` returned it, so its contents are complete.
        let mut bytes = [0; size_of::<FunctionRecord>()];
        self.read(self.place_of(number), &mut bytes)?;
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(words)
    }

    fn place_of(&self, number: u32) -> u64 {
        self.layout.functions + u64::from(number) * size_of::<FunctionRecord>() as u64
    }

    /// The first [`NAME_BYTES`] of a name. Empty if offset and length are outside of the names.
    pub(super) fn name(&self, offset: u32, length: u32) -> Result<String, BlockError> {
        let (offset, length) = (u64::from(offset), u64::from(length));
        if offset + length > self.layout.names_capacity {
            return Ok(String::new());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(NAME_BYTES).min(NAME_BYTES)];
        self.read(self.layout.names + offset, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, said: &mut Said) -> Result<(), BlockError> {
        said.bell = said.bell.wrapping_add(1);
        let bell = offset_of!(ControlBlock, bell);
        self.put_u32(bell, said.bell)?;
        Ok(self.futexes.wake_all(bell)?)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        Ok(self.file.read_exact_at(bytes, offset)?)
    }

    fn file_write(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, place)
    }

    fn get_u32(&self, offset: usize) -> Result<u32, BlockError> {
        let mut bytes = [0; 4];
        self.read(offset as u64, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn put_u32(&self, offset: usize, value: u32) -> Result<(), BlockError> {
        Ok(self.file.write_all_at(&value.to_ne_bytes(), offset as u64)?)
    }

    fn put_u64(&self, offset: usize, value: u64) -> Result<(), BlockError> {
        Ok(self.file.write_all_at(&value.to_ne_bytes(), offset as u64)?)
    }
}

fn state(number: u32) -> Option<State> {
    use State::{Active, Failed, Fresh, Left, Waiting};
    [Fresh, Waiting, Active, Left, Failed].into_iter().find(|state| *state as u32 == number)
}

/// The reason with this number.
pub fn failure(number: u32) -> Option<Failure> {
    use Failure::{
        BadBlock, BadSelector, Busy, Finalizing, NoClock, NoMemory, NoPython, NoThread, NoThreads, NoToolId,
        None as Nothing, NotMapped, Python, UnknownVersion, Unsupported,
    };
    let all = [
        Nothing,
        BadBlock,
        BadSelector,
        NoPython,
        UnknownVersion,
        Finalizing,
        NoToolId,
        Python,
        NoThread,
        Unsupported,
        Busy,
        NoMemory,
        NotMapped,
        NoThreads,
        NoClock,
    ];
    all.into_iter().find(|failure| *failure as u32 == number)
}

/// A word of a row that the helper writes; 0 beyond its end.
fn word(row: &[u8], offset: usize) -> u64 {
    let bytes = row.get(offset..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
pub(in crate::python::helper) mod tests {
    #![allow(clippy::unwrap_used)]

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    pub(in crate::python::helper) fn block(functions: u32, selector: &[u8]) -> Block {
        let (room, stub_form) = (Room { functions }, StubForm::Nop5);
        let contents = Contents {
            room,
            selector,
            stub_form,
            command: HelperCommand::Survey,
            signals: &[],
            in_place: None,
        };
        let file = memfd();
        contents.write(&file).unwrap();
        Block::new(file, &contents).unwrap()
    }

    pub(in crate::python::helper) fn memfd() -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        memfd_create("speed-bump-control", flags).unwrap().into()
    }

    fn u32_at(block: &Block, offset: usize) -> u32 {
        block.get_u32(offset).unwrap()
    }

    #[test]
    fn a_block_says_where_everything_is() {
        let block = block(10, b"selector");
        let layout = *block.layout();
        assert_eq!(block.head().unwrap().u64(offset_of!(ControlBlock, magic)), MAGIC);
        assert_eq!(u32_at(&block, offset_of!(ControlBlock, version)), VERSION);
        assert_eq!(u32_at(&block, offset_of!(ControlBlock, stub_form)), StubForm::Nop5 as u32);
        assert_eq!(u32_at(&block, offset_of!(ControlBlock, command)), HelperCommand::Survey as u32);
        assert_eq!(block.head().unwrap().u64(offset_of!(ControlBlock, size)), layout.size);
        assert_eq!(block.file.metadata().unwrap().len(), layout.size);
        assert_eq!(block.head().unwrap().u64(offset_of!(ControlBlock, names_offset)), layout.names);
        let place = block.head().unwrap().u64(offset_of!(ControlBlock, selector_offset));
        let mut selector = [0; 8];
        block.read(place, &mut selector).unwrap();
        assert_eq!(&selector, b"selector");
        let report = block.report().unwrap();
        assert_eq!((report.state, report.notices, report.python), (Some(State::Fresh), 0, None));
    }

    #[test]
    fn commands_and_new_targets_ring_the_bell() {
        let block = block(10, b"first");
        block.command(HelperCommand::Leave).unwrap();
        assert_eq!(u32_at(&block, offset_of!(ControlBlock, command)), HelperCommand::Leave as u32);
        assert_eq!(u32_at(&block, offset_of!(ControlBlock, bell)), 1);
        let mut places = vec![block.head().unwrap().u64(offset_of!(ControlBlock, selector_offset))];
        for (generation, selector) in [(2, b"second".as_slice()), (3, b"third"), (4, b"fourth")] {
            assert_eq!(block.retarget(selector).unwrap(), generation);
            let place = block.head().unwrap().u64(offset_of!(ControlBlock, selector_offset));
            assert_ne!(places.last(), Some(&place), "the last selector may still be read");
            places.push(place);
            let mut bytes = vec![0; selector.len()];
            block.read(place, &mut bytes).unwrap();
            assert_eq!(bytes, selector);
        }
        assert_eq!(u32_at(&block, offset_of!(ControlBlock, bell)), 4);
        let long = vec![0; usize::try_from(block.layout.selector_room).unwrap() + 1];
        assert!(matches!(block.retarget(&long), Err(BlockError::SelectorTooLong { .. })));
    }

    #[test]
    fn no_process_can_change_its_size_or_what_may_be_written() {
        let block = block(10, b"");
        for length in [8, 1 << 30] {
            let error = block.file.set_len(length).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        let refused = fcntl_add_seals(&block.file, SealFlags::FUTURE_WRITE);
        assert_eq!(refused, Err(rustix::io::Errno::PERM));
        block.beat().unwrap();
    }

    #[test]
    fn a_block_that_is_too_short_is_an_error() {
        let contents = Contents {
            room: Room { functions: 10 },
            selector: b"",
            stub_form: StubForm::Nop,
            command: HelperCommand::Run,
            signals: &[],
            in_place: None,
        };
        let file = memfd();
        file.set_len(8).unwrap();
        let block = Block::new(file, &contents).unwrap();
        assert!(block.report().is_err() && block.failure().is_err() && block.record(0).is_err());
        assert!(block.handed_out().is_err() && block.ready(0..1).is_err());
    }

    #[test]
    fn the_helpers_words_are_read_as_they_are() {
        let block = block(10, b"");
        let at = |offset: usize, bytes: &[u8]| block.file.write_all_at(bytes, offset as u64).unwrap();
        at(offset_of!(ControlBlock, failure), &7_u32.to_ne_bytes());
        at(offset_of!(ControlBlock, failure_text), b"no \xff id\0left over");
        assert_eq!(block.failure().unwrap(), (Some(Failure::Python), "no \u{fffd} id".to_owned()));
        at(offset_of!(ControlBlock, failure), &700_u32.to_ne_bytes());
        assert_eq!(block.failure().unwrap().0, None);
        at(offset_of!(ControlBlock, state), &99_u32.to_ne_bytes());
        assert_eq!(block.report().unwrap().state, None);
    }
}
