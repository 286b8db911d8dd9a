//! Reading many elements of a per-CPU BPF array with one system call, which aya does not offer (0.14).
//!
//! The layouts are those of `union bpf_attr` in include/uapi/linux/bpf.h.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use aya::maps::MapData;

const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
/// What the kernel says to commands that a kind of map does not know (include/linux/errno.h).
const ENOTSUPP: i32 = 524;
/// Elements that are read with one system call.
const BATCH: u32 = 4_096;

/// A per-CPU array of words.
#[derive(Debug)]
pub struct PerCpuArray {
    fd: OwnedFd,
    elements: u32,
    /// Words of a value, on one CPU and on all.
    words: usize,
    all_words: usize,
}

impl PerCpuArray {
    /// Takes another handle to a per-CPU array.
    ///
    /// # Errors
    /// No more file descriptors, or the kernel does not say how large it is.
    pub fn of(map: &MapData) -> io::Result<Self> {
        let info = map.info().map_err(io::Error::other)?;
        let is_array = matches!(info.map_type(), Ok(aya::maps::MapType::PerCpuArray));
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        if !is_array || cpus == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The kernel rounds them up (kernel/bpf/syscall.c, `bpf_map_value_size`).
        let words = (info.value_size() as usize).div_ceil(size_of::<u64>());
        let fd = map.fd().as_fd().try_clone_to_owned()?;
        Ok(Self { fd, elements: info.max_entries(), words, all_words: words * cpus })
    }

    /// Words of a value on one CPU.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Reads consecutive elements, and hands the words of each, of one CPU after the other, to `take`.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; what the look-up returns.
    pub fn read(&self, first: u32, count: u32, mut take: impl FnMut(&[u64])) -> io::Result<()> {
        let end = first.checked_add(count).filter(|end| *end <= self.elements);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let mut values = vec![0_u64; self.all_words * count.min(BATCH) as usize];
        let mut next = first;
        while next < end {
            let wanted = (end - next).min(BATCH);
            let values = values.get_mut(..self.all_words * wanted as usize).unwrap_or_default();
            match self.look_up_batch(next, wanted, values) {
                // Before Linux 5.13.
                Err(error) if error.raw_os_error() == Some(ENOTSUPP) => {
                    for (index, value) in (next..).zip(values.chunks_exact_mut(self.all_words)) {
                        self.look_up(index, value)?;
                    }
                }
                done => done?,
            }
            values.chunks_exact(self.all_words).for_each(&mut take);
            next += wanted;
        }
        Ok(())
    }

    /// Sets one element, of which these are the words of one CPU after the other.
    ///
    /// # Errors
    /// `InvalidInput` for another number of words; what the update returns.
    pub fn set(&self, index: u32, words: &mut [u64]) -> io::Result<()> {
        self.element(BPF_MAP_UPDATE_ELEM, index, words)
    }

    fn look_up(&self, index: u32, value: &mut [u64]) -> io::Result<()> {
        self.element(BPF_MAP_LOOKUP_ELEM, index, value)
    }

    fn element(&self, command: libc::c_long, index: u32, value: &mut [u64]) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map_fd: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        if value.len() != self.all_words {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attributes = Attributes {
            map_fd: self.fd.as_raw_fd().unsigned_abs(),
            padding: 0,
            key: (&raw const index).addr() as u64,
            value: value.as_mut_ptr().expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: laid out as the elements' part of the union; the key is a `u32`, as arrays have it, and the
        // value has as many words as the kernel reads or writes.
        unsafe { bpf(command, &mut attributes) }
    }

    fn look_up_batch(&self, first: u32, count: u32, values: &mut [u64]) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            in_batch: u64,
            out_batch: u64,
            keys: u64,
            values: u64,
            count: u32,
            map_fd: u32,
            elem_flags: u64,
            flags: u64,
        }
        if values.len() != self.all_words * count as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The kernel begins behind this one; without one, at the first.
        let before = first.checked_sub(1);
        let mut keys = vec![0_u32; count as usize];
        let mut out_batch = 0_u32;
        let mut attributes = Attributes {
            in_batch: before
                .as_ref()
                .map_or(0, |before| std::ptr::from_ref(before).expose_provenance() as u64),
            out_batch: (&raw mut out_batch).expose_provenance() as u64,
            keys: keys.as_mut_ptr().expose_provenance() as u64,
            values: values.as_mut_ptr().expose_provenance() as u64,
            count,
            map_fd: self.fd.as_raw_fd().unsigned_abs(),
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: laid out as the batches' part of the union; there is room for `count` keys and values, and
        // a batch is told by a key.
        match unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attributes) } {
            // Where it comes to the end of the array.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            done => done?,
        }
        let is_all = attributes.count == count && keys.first().is_none_or(|key| *key == first);
        if is_all { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// A `bpf(2)` command.
///
/// # Safety
/// `attributes` is laid out as the command's part of `union bpf_attr`, without uninitialised padding, and
/// every pointer in it is valid for what the command does with it.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<()> {
    let size = size_of::<T>();
    // SAFETY: the kernel reads and writes within `size` bytes at `attributes`; the rest is the caller's
    // promise.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
