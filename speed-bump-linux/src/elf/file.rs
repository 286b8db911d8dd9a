//! An open ELF file: determines its kind, and makes the checks that come before all reading.

use std::{
    cell::Cell,
    fs::File,
    io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use object::{
    LittleEndian, elf,
    read::{ReadCache, ReadRef as _, elf::ProgramHeader as _},
};

use super::{
    error::{ElfError, ElfErrorKind},
    machine::Machine,
    root::{self, Root},
    segments::Segments,
    source::{Cache, Reader, Source},
    tables::{CodeSections, Tables},
};
use crate::{
    sys::below::OpenError,
    units::{FileOffset, VirtualAddress},
};

/// A 64-bit little-endian executable or shared library for this machine.
///
/// We keep the file open, and do not store its contents: each method reads what it needs. Several threads may
/// use it at the same time.
#[derive(Debug)]
pub struct ElfFile {
    path: PathBuf,
    source: Source,
    /// The size of the file when we opened it. If the file is shorter later, reads beyond its end return
    /// [`ElfErrorKind::Changed`].
    length: u64,
    /// How many bytes of the file one question may read.
    room: u64,
    machine: Machine,
    /// Whether the file is `ET_EXEC`: linked for one fixed address.
    fixed: bool,
    segments: Segments,
    code: CodeSections,
}

/// What we use a file for. In a separate debug file, the segments describe another file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Loaded,
    Debug,
}

/// The size of the header, from the specification (gABI, "ELF Header").
const HEADER_BYTES: u64 = 64;

impl ElfFile {
    /// Opens a file by a path in our own mount namespace. For paths of a process, use [`ElfFile::open_in`].
    ///
    /// # Errors
    /// [`ElfError`]. [`ElfErrorKind`] lists everything that this refuses.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        Self::from_opened(root::open_regular(path), path.to_owned(), Role::Loaded)
    }

    /// Opens a file by a path as a process sees it, below the process's root. This follows symbolic links,
    /// even absolute ones, below that root.
    ///
    /// # Errors
    /// See [`ElfFile::open`].
    pub fn open_in(root: &Root, path: &Path) -> Result<Self, ElfError> {
        Self::from_opened(root.open_regular(path), path.to_owned(), Role::Loaded)
    }

    /// Opens a separate debug file. It need not contain its segments.
    pub(super) fn open_debug_file(root: &Root, path: &Path) -> Result<Self, ElfError> {
        Self::from_opened(root.open_regular(path), path.to_owned(), Role::Debug)
    }

    /// Takes an open regular file, such as `/proc/PID/map_files/…`. `name` is for messages.
    ///
    /// # Errors
    /// See [`ElfFile::open`]. [`ElfErrorKind::Open`] and [`ElfErrorKind::Special`] do not occur.
    pub fn from_file(file: File, name: impl Into<PathBuf>) -> Result<Self, ElfError> {
        Self::parse(Source::File(file), name.into(), Role::Loaded)
    }

    /// Takes bytes as the contents of a file. `name` is for messages.
    ///
    /// # Errors
    /// See [`ElfFile::from_file`].
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>, name: impl Into<PathBuf>) -> Result<Self, ElfError> {
        Self::parse(Source::Bytes(bytes.into()), name.into(), Role::Loaded)
    }

    /// Takes bytes as the contents of a separate debug file.
    pub(super) fn debug_from_bytes(bytes: Vec<u8>, name: PathBuf) -> Result<Self, ElfError> {
        Self::parse(Source::Bytes(bytes.into()), name, Role::Debug)
    }

    fn from_opened(opened: Result<File, OpenError>, path: PathBuf, role: Role) -> Result<Self, ElfError> {
        match opened {
            Ok(file) => Self::parse(Source::File(file), path, role),
            Err(OpenError::Special(kind)) => Err(ElfError { path, kind: ElfErrorKind::Special(kind) }),
            Err(OpenError::MadeUp(name)) => Err(ElfError { path, kind: ElfErrorKind::MadeUp(name) }),
            Err(OpenError::System(error)) => Err(ElfError { path, kind: ElfErrorKind::Open(error) }),
        }
    }

    fn parse(source: Source, path: PathBuf, role: Role) -> Result<Self, ElfError> {
        let (length, room) = match source.sizes() {
            Ok(sizes) => sizes,
            Err(error) => return Err(ElfError { path, kind: ElfErrorKind::Read(error) }),
        };
        // We know the machine only after reading the header, and reading needs this value.
        let mut file = Self {
            path,
            source,
            length,
            room,
            machine: Machine::X86_64,
            fixed: false,
            segments: Segments::default(),
            code: CodeSections::default(),
        };
        (file.machine, file.fixed) = file.check_header()?;
        let (segments, code) = {
            let cache = file.cache();
            let tables = Tables::read(&file, &cache)?;
            if role == Role::Loaded {
                for segment in tables.program_headers() {
                    if segment.p_type(LittleEndian) == elf::PT_LOAD {
                        let (offset, size) = segment.file_range(LittleEndian);
                        file.check_range(offset, size, "loadable segment")?;
                    }
                }
            }
            let segments = Segments::from_headers(tables.program_headers())
                .ok_or_else(|| file.corrupt("a segment wraps around the address space"))?;
            (segments, tables.code_sections()?)
        };
        file.segments = segments;
        file.code = code;
        Ok(file)
    }

    /// Checks the first 64 bytes. Returns the machine, and whether the file is linked for a fixed address.
    fn check_header(&self) -> Result<(Machine, bool), ElfError> {
        let available = usize::try_from(self.length.min(HEADER_BYTES)).unwrap_or(0);
        let mut bytes = [0; HEADER_BYTES as usize];
        self.source
            .read_exact_at(&mut bytes[..available], 0)
            .map_err(|error| self.error(read_failure(error)))?;
        let magic = available.min(4);
        if bytes[..magic] != elf::ELFMAG[..magic] {
            return Err(self.error(ElfErrorKind::NotElf));
        }
        if self.length < HEADER_BYTES {
            return Err(self.error(ElfErrorKind::TooShort { length: self.length }));
        }
        match bytes[4] {
            elf::ELFCLASS64 => {}
            elf::ELFCLASS32 => return Err(self.error(ElfErrorKind::Class32)),
            _ => return Err(self.corrupt("its class is neither 32 nor 64 bits")),
        }
        match bytes[5] {
            elf::ELFDATA2LSB => {}
            elf::ELFDATA2MSB => return Err(self.error(ElfErrorKind::BigEndian)),
            _ => return Err(self.corrupt("its byte order is neither little- nor big-endian")),
        }
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[6] != elf::EV_CURRENT {
            return Err(self.corrupt("its ELF version is not 1"));
        }
        let (e_type, e_machine) = (half(16), half(18));
        let machine = match Machine::from_header(e_machine) {
            Some(machine) if Some(machine) == Machine::HOST => machine,
            _ => {
                let host = Machine::HOST;
                return Err(self.error(ElfErrorKind::WrongMachine { found: e_machine, host }));
            }
        };
        match e_type {
            elf::ET_EXEC | elf::ET_DYN => Ok((machine, e_type == elf::ET_EXEC)),
            elf::ET_REL => Err(self.error(ElfErrorKind::NotLoadable("an object file or kernel module"))),
            elf::ET_CORE => Err(self.error(ElfErrorKind::NotLoadable("a core dump"))),
            _ => Err(self.error(ElfErrorKind::NotLoadable("an ELF file of unknown type"))),
        }
    }

    /// The path or name with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The architecture of the file.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The loadable segments of the file.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The build id (the `NT_GNU_BUILD_ID` note), which differs between builds of one program. `None` if the
    /// linker wrote none.
    ///
    /// # Errors
    /// [`ElfError`] if the notes cannot be read.
    pub fn build_id(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let cache = self.cache();
        Tables::read(self, &cache)?.build_id()
    }

    /// Copies code at `address` from the file, up to the end of `buffer` or of the segment. Returns the
    /// number of bytes; 0 if `address` is not in an executable segment.
    ///
    /// # Errors
    /// [`ElfError`] if the file cannot be read.
    pub fn read_code(&self, address: VirtualAddress, buffer: &mut [u8]) -> Result<usize, ElfError> {
        let mut code = self.segments.iter().filter(|segment| segment.executable);
        let found = code.find_map(|segment| Some((segment, segment.offset_of(address)?)));
        let Some((segment, FileOffset(offset))) = found else { return Ok(0) };
        let left = segment.file_size - (address.0 - segment.address.0);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.source
            .read_exact_at(&mut buffer[..count], offset)
            .map_err(|error| self.error(read_failure(error)))?;
        Ok(count)
    }

    /// The code sections, from the section headers.
    pub(super) fn code_sections(&self) -> &CodeSections {
        &self.code
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.fixed
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// An empty cache for one question.
    pub(super) fn cache(&self) -> FileCache<'_> {
        let failure = Rc::new(Cell::new(None));
        let reader =
            Reader { source: &self.source, length: self.length, position: 0, failure: Rc::clone(&failure) };
        FileCache { cache: ReadCache::new(reader), failure, taken: Cell::new(0) }
    }

    pub(super) fn error(&self, kind: ElfErrorKind) -> ElfError {
        ElfError { path: self.path.clone(), kind }
    }

    pub(super) fn corrupt(&self, what: &'static str) -> ElfError {
        self.error(ElfErrorKind::Corrupt { what })
    }

    /// Checks that a table lies within the file.
    pub(super) fn check_range(&self, offset: u64, size: u64, what: &'static str) -> Result<(), ElfError> {
        match offset.checked_add(size) {
            None => Err(self.corrupt("a table wraps around the file")),
            Some(end) if end > self.length => {
                Err(self.error(ElfErrorKind::Truncated { what, end, length: self.length }))
            }
            Some(_) => Ok(()),
        }
    }
}

/// The tables that we have read for one question. If reading has failed, also the system's error.
pub(super) struct FileCache<'s> {
    cache: Cache<'s>,
    failure: Rc<Cell<Option<io::Error>>>,
    /// The size of the tables that we have read.
    taken: Cell<u64>,
}

impl<'s> FileCache<'s> {
    pub(super) fn data(&self) -> &Cache<'s> {
        &self.cache
    }

    /// Checks that a table is not too large, neither alone nor together with the tables that we read before
    /// it. The table must lie within the file.
    pub(super) fn check_size(
        &self,
        file: &ElfFile,
        size: u64,
        limit: u64,
        what: &'static str,
    ) -> Result<(), ElfError> {
        if size > limit {
            return Err(file.error(ElfErrorKind::TooLarge { what, size, limit }));
        }
        let taken = self.taken.get().saturating_add(size);
        if taken > file.room {
            return Err(file.error(ElfErrorKind::Sparse { what, size: taken, limit: file.room }));
        }
        self.taken.set(taken);
        Ok(())
    }

    /// Reads bytes of the file. The caller must have checked their range with [`ElfFile::check_range`] and
    /// [`check_size`](Self::check_size).
    pub(super) fn bytes(&self, file: &ElfFile, offset: u64, size: u64) -> Result<&[u8], ElfError> {
        self.cache.read_bytes_at(offset, size).map_err(|()| self.explain(file, "a table cannot be read"))
    }

    /// The system's error if a read has failed. Otherwise an error with the text `what`.
    pub(super) fn explain(&self, file: &ElfFile, what: &'static str) -> ElfError {
        match self.failure.take() {
            Some(error) => file.error(read_failure(error)),
            None => file.corrupt(what),
        }
    }
}

pub(super) fn read_failure(error: io::Error) -> ElfErrorKind {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        ElfErrorKind::Changed
    } else {
        ElfErrorKind::Read(error)
    }
}

#[cfg(test)]
pub(super) mod tests;
