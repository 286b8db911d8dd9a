//! `process_vm_readv(2)`: reads another process's memory while the process runs.

use std::io::{IoSlice, IoSliceMut};

use crate::units::{Pid, VirtualAddress};

/// The most parts that one call can read (`UIO_MAXIOV`, include/uapi/linux/uio.h).
pub const PARTS: usize = 1_024;

/// Reads memory at an address. Returns how many bytes were read. Returns 0 if nothing can be read: there is
/// no such process, we have no right to read it, or nothing is mapped there.
pub fn read(pid: Pid, address: VirtualAddress, buffer: &mut [u8]) -> usize {
    read_parts(pid, &[(address, buffer.len())], buffer)
}

/// Reads several parts of memory into a buffer, one behind the other. Stops at the first part that cannot be
/// read, and after [`PARTS`] parts. Returns how many bytes were read.
pub fn read_parts(pid: Pid, parts: &[(VirtualAddress, usize)], buffer: &mut [u8]) -> usize {
    let mut room = buffer.len();
    let mut remote = Vec::with_capacity(parts.len().min(PARTS));
    for (address, length) in parts.iter().take(PARTS) {
        let length = (*length).min(room);
        room -= length;
        let Ok(base) = usize::try_from(address.0) else { break };
        remote.push(libc::iovec { iov_base: std::ptr::without_provenance_mut(base), iov_len: length });
    }
    let mut local = [IoSliceMut::new(buffer)];
    // SAFETY: `IoSliceMut` has the layout of `iovec`, and points to memory that we may write during the whole
    // call. The kernel checks the remote addresses, which belong to another process.
    let read = unsafe {
        libc::process_vm_readv(
            pid.get(),
            local.as_mut_ptr().cast::<libc::iovec>(),
            local.len() as libc::c_ulong,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).unwrap_or(0)
}

const _: () = assert!(size_of::<IoSlice<'_>>() == size_of::<libc::iovec>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_one_behind_the_other_up_to_the_first_hole() {
        let (first, second) = (0x0123_4567_89ab_cdef_u64, [7_u8; 3]);
        let (first, second) = (std::hint::black_box(&first), std::hint::black_box(&second));
        let at = |pointer: *const u8| VirtualAddress(pointer.addr() as u64);
        let parts = [(at(std::ptr::from_ref(first).cast()), 8), (at(second.as_ptr()), 3)];
        let mut buffer = [0; 11];
        assert_eq!(read_parts(Pid::own(), &parts, &mut buffer), 11);
        assert_eq!(buffer[..8], first.to_ne_bytes());
        assert_eq!(buffer[8..], [7; 3]);
        let parts = [parts[1], (VirtualAddress(8), 4), parts[0]];
        assert_eq!(read_parts(Pid::own(), &parts, &mut buffer), 3);
        for address in [0, u64::MAX, 1 << 63] {
            assert_eq!(read(Pid::own(), VirtualAddress(address), &mut buffer), 0);
        }
        assert_eq!(read(Pid::own(), parts[0].0, &mut []), 0);
    }
}
