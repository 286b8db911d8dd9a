//! The bytes of a file. We read them in pieces, without mapping the file (the [module](super) says why).

use std::{
    cell::Cell,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    rc::Rc,
    sync::Arc,
};

use object::read::{ReadCache, ReadCacheOps};

/// The largest table that we read, in bytes: the names of a million functions with 250 bytes each. The
/// largest known tables belong to browsers with all their symbols, and have half this size.
pub const TABLE_LIMIT: u64 = 256 << 20;
/// However little of a file is on disk, one question may read at least this many bytes: file systems that
/// compress report too little.
const ALWAYS_READ: u64 = 16 << 20;
/// One question may read this many times the bytes on disk. A sparse file can claim any size.
const MORE_THAN_ON_DISK: u64 = 8;

/// The unit of `st_blocks` (stat(3type)).
const BLOCK_BYTES: u64 = 512;

/// Where bytes come from. Reading does not move a shared position, so several threads may use a source.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Bytes(Arc<[u8]>),
}

impl Source {
    /// The size, and how much one question may read, both in bytes.
    pub(super) fn sizes(&self) -> io::Result<(u64, u64)> {
        let (length, on_disk) = match self {
            Self::File(file) => {
                let metadata = file.metadata()?;
                (metadata.len(), metadata.blocks().saturating_mul(BLOCK_BYTES))
            }
            Self::Bytes(bytes) => (bytes.len() as u64, bytes.len() as u64),
        };
        // Some file systems do not report the bytes on disk.
        let on_disk = if on_disk == 0 { length } else { on_disk };
        let room = on_disk.saturating_mul(MORE_THAN_ON_DISK).clamp(ALWAYS_READ, 2 * TABLE_LIMIT);
        Ok((length, room))
    }

    /// The bytes on disk, if there are so few that nearly all of the file must be holes.
    pub(super) fn on_disk_of_holes(&self) -> io::Result<Option<u64>> {
        let Self::File(file) = self else { return Ok(None) };
        let metadata = file.metadata()?;
        let on_disk = metadata.blocks().saturating_mul(BLOCK_BYTES);
        // Some file systems do not report the bytes on disk.
        let is_said = on_disk > 0 && metadata.len() > ALWAYS_READ;
        Ok((is_said && metadata.len() / MORE_THAN_ON_DISK > on_disk).then_some(on_disk))
    }

    /// Fills `buffer` with the bytes at `offset`; `UnexpectedEof` if the source ends before.
    pub(super) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buffer, offset),
            Self::Bytes(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..));
                let part = rest.and_then(|rest| rest.get(..buffer.len()));
                buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// The tables that we have already read for one question. We drop them with the answer.
pub(super) type Cache<'s> = ReadCache<Reader<'s>>;

/// Adapts a [`Source`] to `object`. The errors of `object` cannot contain the system's error, so `failure`
/// stores the first one.
pub(super) struct Reader<'s> {
    pub(super) source: &'s Source,
    pub(super) length: u64,
    pub(super) position: u64,
    pub(super) failure: Rc<Cell<Option<io::Error>>>,
}

impl Reader<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        self.source.read_exact_at(buffer, self.position).map_err(|error| self.failure.set(Some(error)))?;
        self.position += buffer.len() as u64;
        Ok(())
    }
}

impl ReadCacheOps for Reader<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        let left = self.length.saturating_sub(self.position);
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.fill(&mut buffer[..count])?;
        Ok(count)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        self.fill(buffer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_may_be_read_follows_what_is_on_disk() {
        let bytes = |count: usize| Source::Bytes(vec![0; count].into()).sizes().unwrap();
        assert_eq!(bytes(5), (5, ALWAYS_READ));
        assert_eq!(bytes(3 << 20), (3 << 20, 24 << 20));
        // A file of only holes has nothing on disk. So it looks like a file on a file system that does not
        // report the bytes on disk.
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(Source::File(file).sizes().unwrap(), (1 << 40, 512 << 20));
    }

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let source = Source::Bytes((*b"0123456789").into());
        let failure = Rc::new(Cell::new(None));
        let mut reader = Reader { source: &source, length: 10, position: 0, failure: Rc::clone(&failure) };
        let mut part = [0; 4];
        let mut read = |reader: &mut Reader<'_>| {
            let count = reader.read(&mut part).unwrap();
            part[..count].to_vec()
        };
        assert_eq!(read(&mut reader), b"0123");
        assert_eq!(read(&mut reader), b"4567");
        assert_eq!(read(&mut reader), b"89");
        assert_eq!(read(&mut reader), b"");
        assert_eq!(reader.seek(3), Ok(3));
        assert_eq!(read(&mut reader), b"3456");
        assert_eq!(reader.read_exact(&mut [0; 4]), Err(()));
        assert_eq!(failure.take().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}
