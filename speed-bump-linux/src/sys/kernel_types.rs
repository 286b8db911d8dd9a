//! The kernel's type information, mapped into memory where the kernel allows that (Linux 6.16). Each read of
//! a sysfs file returns at most one page, and there are 1,300 pages.

use std::{fs::File, io, ops::Deref, path::Path};

use memmap2::{Mmap, MmapOptions};

/// The bytes of the kernel's file.
#[derive(Debug)]
pub enum KernelTypes {
    /// A mapping of the kernel's own memory.
    Mapped(Mmap),
    /// A copy of the file.
    Read(Vec<u8>),
}

impl KernelTypes {
    /// Opens one of the files in /sys/kernel/btf.
    ///
    /// # Errors
    /// We cannot open or read the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the kernel never writes to this memory again, and files in this directory never become
        // shorter.
        match unsafe { MmapOptions::new().map_copy_read_only(&file) } {
            Ok(mapped) => Ok(Self::Mapped(mapped)),
            Err(_) => std::fs::read(path).map(Self::Read),
        }
    }
}

impl Deref for KernelTypes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapped) => mapped,
            Self::Read(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kernel::task_offsets::VMLINUX_BTF;

    #[test]
    fn mapped_or_read_it_is_the_same() {
        let path = Path::new(VMLINUX_BTF);
        if !path.exists() {
            return speed_bump_testing::skip!("{VMLINUX_BTF} does not exist (CONFIG_DEBUG_INFO_BTF)");
        }
        assert!(*KernelTypes::open(path).unwrap() == *std::fs::read(path).unwrap());
        assert!(KernelTypes::open(Path::new("/sys/kernel/btf/no-such-module")).is_err());
    }
}
