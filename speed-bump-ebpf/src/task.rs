//! Reading what the kernel knows of a task.
//!
//! Where it keeps that is in constants of this object, which the loader replaces before the programs are
//! loaded: it reads them from the running kernel's BTF.

use aya_ebpf::helpers::bpf_probe_read_kernel;

/// A field of a structure of the kernel's, at an offset that the loader has filled in. `None`: the address is
/// not readable.
#[inline(always)]
pub fn field<T: Copy>(task: u64, offset: &'static u32) -> Option<T> {
    // SAFETY: a constant of this object; the loader may have replaced its value.
    let offset = unsafe { core::ptr::read_volatile(offset) };
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((task + u64::from(offset)) as *const T) }.ok()
}
