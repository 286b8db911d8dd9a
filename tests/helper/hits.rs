//! How often the stub is run into, counted by the kernel: a uprobe in the image's file, in every process.

#![allow(clippy::unwrap_used)]

use std::{ffi::CString, fs::File, io::Read as _, os::fd::FromRawFd as _, path::Path};

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use speed_bump_session::inject::image::IMAGE;

/// The image in a file of its own, with a counter on the stub.
pub(crate) struct Hits {
    pub(crate) image: tempfile::NamedTempFile,
    counters: Counters,
}

/// A counter on a place in a file.
pub(crate) struct Counters(Vec<File>);

/// `perf_event_attr` up to PERF_ATTR_SIZE_VER1 (include/uapi/linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    numbers: [u64; 5],
    wakeup_events: u32,
    bp_type: u32,
    uprobe_path: u64,
    probe_offset: u64,
}

impl Hits {
    /// Counts from now on, at the stub of this name.
    pub(crate) fn at_stub(stub: &str) -> Self {
        let image = tempfile::Builder::new().suffix(".so").tempfile().unwrap();
        std::fs::write(image.path(), IMAGE).unwrap();
        let counters = Counters::at(image.path(), offset(stub));
        Self { image, counters }
    }

    /// So far.
    pub(crate) fn count(&self) -> u64 {
        self.counters.count()
    }

    /// During this.
    pub(crate) fn during(&self, what: impl FnOnce()) -> u64 {
        let before = self.count();
        what();
        self.count() - before
    }
}

impl Counters {
    /// Counts from now on, in every process that maps the file.
    pub(crate) fn at(file: &Path, offset: u64) -> Self {
        let cpus = std::thread::available_parallelism().unwrap().get();
        Self((0..cpus).map(|cpu| open(file, offset, cpu)).collect())
    }

    /// So far.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(read).sum()
    }
}

fn read(mut counter: &File) -> u64 {
    let mut bytes = [0; 8];
    counter.read_exact(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Where the stub lies in the file.
fn offset(stub: &str) -> u64 {
    let elf = object::File::parse(IMAGE).unwrap();
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(stub)).unwrap();
    let contains = |segment: &object::Segment<'_, '_>| {
        (segment.address()..segment.address() + segment.size()).contains(&symbol.address())
    };
    let segment = elf.segments().find(contains).unwrap();
    assert!(elf.section_by_name(".note.stapsdt").unwrap().size() > 0);
    symbol.address() - segment.address() + segment.file_range().0
}

fn open(file: &Path, offset: u64, cpu: usize) -> File {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    let attributes = Attributes {
        kind: kind.trim().parse().unwrap(),
        size: size_of::<Attributes>() as u32,
        uprobe_path: path.as_ptr() as u64,
        probe_offset: offset,
        ..Attributes::default()
    };
    let (every_process, no_group, flags) = (-1, -1, 0);
    // SAFETY: the structure is as long as it says, and the path outlives the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, every_process, cpu, no_group, flags)
    };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { File::from_raw_fd(fd as i32) }
}
