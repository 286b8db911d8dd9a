//! The BPF programs that count the requests that a service answers on its sockets: an object of its own, so
//! that a session without them loads nothing more. Built by `cargo xtask ebpf`, as the other object.
//!
//! They run at tracepoints of the kernel's (include/trace/events/sock.h, since Linux 6.3) that every way from
//! a program to the data of a socket passes, except splice(2) from a socket: read(2), recvmmsg(2),
//! sendfile(2), io_uring; also with kTLS, MPTCP or a sockmap, whose own functions lie below these
//! tracepoints.

#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features, reason = "atomic operations, see `count` and `connection`")]

mod accepted;
mod connection;
#[path = "../count.rs"]
#[allow(dead_code, reason = "the other object counts in more ways")]
mod count;
mod maps;
mod requests;
mod status;
#[path = "../task.rs"]
mod task;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use crate::{connection::Sock, requests::is_of_service};

/// `MSG_ERRQUEUE` (include/linux/socket.h): what was received is no data.
const ERROR_QUEUE: i32 = 0x2000;

/// `sock_recv_length(struct sock *, int received, int flags)`: a receive returns. One that takes nothing
/// (`MSG_PEEK`) is said to have received 0.
#[btf_tracepoint]
pub fn sock_recv_length(context: BtfTracePointContext) -> i32 {
    if is_of_service() && context.arg::<i32>(1) > 0 && context.arg::<i32>(2) & ERROR_QUEUE == 0 {
        requests::received(Sock(context.arg(0)));
    }
    0
}

/// `sock_send_length(struct sock *, int sent, int flags)`: a send returns.
#[btf_tracepoint]
pub fn sock_send_length(context: BtfTracePointContext) -> i32 {
    if is_of_service() && context.arg::<i32>(1) > 0 {
        requests::sent(Sock(context.arg(0)));
    }
    0
}

/// `tcp_destroy_sock(struct sock *)`: a connection is no more, whoever has closed it.
#[btf_tracepoint]
pub fn tcp_destroy_sock(context: BtfTracePointContext) -> i32 {
    requests::closed(Sock(context.arg(0)));
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence that the kernel checks before it lends GPL-only functions.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
