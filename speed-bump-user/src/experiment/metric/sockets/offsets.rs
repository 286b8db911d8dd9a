//! Offsets of the fields of kernel sockets that the programs read.

use crate::kernel::btf::{Btf, BtfError};

/// Offsets in bytes, by the constants of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketOffsets {
    of_constants: [(&'static str, u32); 6],
}

impl SocketOffsets {
    /// Offsets of the kernel that this BTF describes.
    pub(super) fn from_btf(data: &[u8]) -> Result<Self, BtfError> {
        let btf = Btf::parse(data)?;
        let offset = |structure, member| btf.member_offset(btf.structure(structure)?, member);
        let of_constants = [
            ("SOCK_TYPE_OFFSET", offset("sock", "sk_type")?),
            // A `struct sock` begins with its `sock_common` (include/net/sock.h).
            ("SOCK_FAMILY_OFFSET", offset("sock_common", "skc_family")?),
            ("SOCK_PORT_OFFSET", offset("sock_common", "skc_num")?),
            ("UNIX_ADDRESS_OFFSET", offset("unix_sock", "addr")?),
            ("UNIX_LENGTH_OFFSET", offset("unix_address", "len")?),
            // The name is an array without a length, at the end of the structure.
            ("UNIX_NAME_OFFSET", btf.structure("unix_address")?.size),
        ];
        Ok(Self { of_constants })
    }

    /// Constants of the programs with their values.
    pub(super) fn constants(&self) -> impl Iterator<Item = (&'static str, &u32)> {
        self.of_constants.iter().map(|(name, offset)| (*name, offset))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::{kernel::task_offsets::VMLINUX_BTF, sys::kernel_types::KernelTypes};

    #[test]
    fn the_running_kernel_has_them() {
        if !Path::new(VMLINUX_BTF).exists() {
            speed_bump_testing::skip!("{VMLINUX_BTF} does not exist (CONFIG_DEBUG_INFO_BTF)");
            return;
        }
        let types = KernelTypes::open(Path::new(VMLINUX_BTF)).unwrap();
        let offsets = SocketOffsets::from_btf(&types).unwrap();
        let of = |wanted| offsets.constants().find(|(name, _)| *name == wanted).map(|(_, offset)| *offset);
        // Two addresses, a hash and a port lie before the port that we read; the family follows it.
        assert_eq!((of("SOCK_PORT_OFFSET"), of("SOCK_FAMILY_OFFSET")), (Some(14), Some(16)));
        assert!(of("UNIX_NAME_OFFSET") > of("UNIX_LENGTH_OFFSET"));
        assert!(of("SOCK_TYPE_OFFSET") > of("SOCK_FAMILY_OFFSET"));
        // More than a `struct sock` lies before the address.
        assert!(of("UNIX_ADDRESS_OFFSET") > Some(200));
    }
}
