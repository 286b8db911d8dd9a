//! How often each function was called, counted in the process itself: the stub is replaced by an instruction
//! that counts.

use std::{
    collections::BTreeMap,
    fs::File,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::MmapRaw;
use object::{Object as _, ObjectSymbol as _};
use rustix::fs::{MemfdFlags, memfd_create};
use speed_bump_session::inject::image::IMAGE;
use speed_bump_testing::Service;

use crate::control::Control;

/// Functions that can be counted.
const FUNCTIONS: usize = 4096;

/// A counter for each function of a table.
pub(crate) struct Tally {
    file: File,
    map: MmapRaw,
}

impl Tally {
    /// Has the process, whose service evaluates Python, count in the image that it has loaded from this path.
    pub(crate) fn install(service: &mut Service, image: &str) -> Self {
        let file = File::from(memfd_create("speed-bump-tally", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(FUNCTIONS as u64 * 8).unwrap();
        let map = MmapRaw::map_raw(&file).unwrap();
        let tally = Self { file, map };
        let path = format!("/proc/{}/fd/{}", std::process::id(), tally.file.as_raw_fd());
        let ask = format!(
            "import mmap; TALLY = globals().get('TALLY', []); \
             TALLY.append(mmap.mmap(os.open('{path}', os.O_RDWR), {})); \
             say(event='tally', at=ctypes.addressof(ctypes.c_char.from_buffer(TALLY[-1])))",
            FUNCTIONS * 8
        );
        let at = service.ask(&ask).unwrap()[0]["at"].as_u64().unwrap();
        let memory = File::options().write(true).open(format!("/proc/{}/mem", service.pid())).unwrap();
        memory.write_all_at(&counting(at), stub(service.pid(), image)).unwrap();
        tally
    }

    /// Since the last time, by file and qualified name. A function whose number is not ready has a name of
    /// its own.
    pub(crate) fn take(&self, control: &Control) -> BTreeMap<(String, String), u64> {
        let mut calls = BTreeMap::new();
        for number in 0..FUNCTIONS {
            // SAFETY: in the map, aligned, an atomic.
            let counter: &AtomicU64 = unsafe { &*self.map.as_mut_ptr().cast::<AtomicU64>().add(number) };
            let count = counter.swap(0, Ordering::AcqRel);
            if count > 0 {
                let function = control.function(number as u32);
                let name = function.map_or_else(
                    || (String::new(), format!("(function {number})")),
                    |found| (found.file, found.qualname),
                );
                *calls.entry(name).or_default() += count;
            }
        }
        calls
    }
}

/// `mov rax, at; mov edi, edi; lock inc qword ptr [rax + rdi * 8]; ret`: the number of the function is in
/// edi.
fn counting(at: u64) -> Vec<u8> {
    [&[0x48, 0xb8][..], &at.to_le_bytes(), &[0x89, 0xff, 0xf0, 0x48, 0xff, 0x04, 0xf8, 0xc3]].concat()
}

fn stub(pid: i32, image: &str) -> u64 {
    let elf = object::File::parse(IMAGE).unwrap();
    let stub = elf.symbols().find(|symbol| symbol.name() == Ok("speed_bump_python_entry_nop")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps.lines().find(|line| line.ends_with(image)).unwrap();
    u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap() + stub.address()
}
