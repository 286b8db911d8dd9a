//! Whether a socket is a connection that was accepted on one of the service's listening sockets.
//!
//! No kernel remembers that. But an accepted socket has the local port, or the name, of the one that
//! listened; one that connects has a port of its own, and seldom a name. So this also works for connections
//! from before the programs were attached.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use speed_bump_abi::UnixName;

use crate::{
    connection::Sock,
    maps::{NAMES, PORTS, has},
    task::field,
};

/// `SOCK_STREAM` (include/linux/net.h).
const STREAM: u16 = 1;
/// `AF_UNIX`, `AF_INET` and `AF_INET6` (include/linux/socket.h).
const UNIX: u16 = 1;
const INTERNET: [u16; 2] = [2, 10];
/// What comes before the name: `sun_family`.
const FAMILY_BYTES: u32 = 2;

/// Offset of `sock.sk_type` (2 bytes).
#[unsafe(no_mangle)]
static SOCK_TYPE_OFFSET: u32 = 0;
/// Offset of `sock_common.skc_family` in `struct sock` (2 bytes).
#[unsafe(no_mangle)]
static SOCK_FAMILY_OFFSET: u32 = 0;
/// Offset of `sock_common.skc_num` in `struct sock`: the local port, as this processor has numbers (2 bytes).
#[unsafe(no_mangle)]
static SOCK_PORT_OFFSET: u32 = 0;
/// Offset of `unix_sock.addr`: a pointer to a `struct unix_address`, or null.
#[unsafe(no_mangle)]
static UNIX_ADDRESS_OFFSET: u32 = 0;
/// Offset of `unix_address.len`: an `int`, the bytes of family and name.
#[unsafe(no_mangle)]
static UNIX_LENGTH_OFFSET: u32 = 0;
/// Offset of `unix_address.name`: a `struct sockaddr_un`.
#[unsafe(no_mangle)]
static UNIX_NAME_OFFSET: u32 = 0;

/// Whether the socket is an accepted connection of the service. A socket that cannot be read is not.
#[inline(always)]
pub fn is_accepted(sock: Sock) -> bool {
    let sock = sock.0;
    // We do not compare options, for the reason in the other object's `follow`.
    if field::<u16>(sock, &SOCK_TYPE_OFFSET).unwrap_or(0) != STREAM {
        return false;
    }
    let family = field::<u16>(sock, &SOCK_FAMILY_OFFSET).unwrap_or(0);
    if family == UNIX {
        return has_name(sock) != 0;
    }
    if !INTERNET.contains(&family) {
        return false;
    }
    has(&PORTS, u32::from(field::<u16>(sock, &SOCK_PORT_OFFSET).unwrap_or(0)))
}

/// Whether a unix socket has a name that the service listens on. A function of its own in BPF too, for its
/// stack.
#[inline(never)]
fn has_name(sock: u64) -> u32 {
    let address = field::<u64>(sock, &UNIX_ADDRESS_OFFSET).unwrap_or(0);
    if address == 0 {
        return 0;
    }
    let Some(length) = field::<u32>(address, &UNIX_LENGTH_OFFSET) else { return 0 };
    let bytes = length.wrapping_sub(FAMILY_BYTES) & (UnixName::BYTES as u32 - 1);
    // SAFETY: a constant of this object; the loader may have replaced its value.
    let offset = unsafe { core::ptr::read_volatile(&raw const UNIX_NAME_OFFSET) };
    let from = address + u64::from(offset) + u64::from(FAMILY_BYTES);
    let mut name = UnixName([0; UnixName::BYTES]);
    // SAFETY: `bytes` is less than `name` has, and the helper checks the address.
    let result =
        unsafe { bpf_probe_read_kernel((&raw mut name).cast::<c_void>(), bytes, from as *const c_void) };
    // SAFETY: presence is all that is asked.
    u32::from(result == 0 && unsafe { NAMES.get(&name) }.is_some())
}
