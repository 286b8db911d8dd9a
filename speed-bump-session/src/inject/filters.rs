//! Checks the seccomp filters of a process before we change anything. The kernel only shows the filters of
//! stopped threads. So we stop a thread for this, but only if its program cannot notice the stop.

use std::{
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::sockopt::{Timeout, socket_timeout},
};

use super::{
    InjectError,
    borrow::{Look, let_go, stop},
    calls::{Continuation, continuation},
    seccomp,
    threads::{Suits, Tried, candidates, waits_in},
};
use crate::{process::Process, sys::remote_descriptor::Descriptors, units::Pid};

/// How long we search for a thread that we may stop, and the pause between two attempts.
const LIMIT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(1);

/// Checks the filters of a thread that we may borrow later. Returns `None` if we cannot see the filters: all
/// threads wait in calls, and the program would notice an interruption of these calls.
///
/// # Errors
/// The filters forbid injecting, or we cannot read them.
pub(super) fn judge(process: &Process) -> Result<Option<()>, InjectError> {
    let system = |what| move |source| super::system(process, what, source);
    let over = Instant::now() + LIMIT;
    loop {
        for candidate in candidates(process, &process.regions()?, &mut Tried::default()) {
            let thread = candidate.thread;
            if !seccomp::is_filtered(process, thread) {
                return Ok(Some(()));
            }
            seccomp::check_readable(process, thread)?;
            if candidate.suits == Suits::WaitsNoticed && !waits_without_limit(process, thread) {
                continue;
            }
            let Ok((tracee, _)) = stop(process, thread)? else { continue };
            let found = Look::at(process, &tracee).map_err(system("reading registers"))?;
            let judged = seccomp::check(process, &tracee);
            let_go(process, tracee, &found)?;
            return judged.map(Some);
        }
        if Instant::now() > over {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a thread waits for a file without a time limit (SO_RCVTIMEO, SO_SNDTIMEO). If so, the kernel
/// continues the call after an interruption.
fn waits_without_limit(process: &Process, thread: Pid) -> bool {
    let Some(call) = waits_in(process, thread) else { return false };
    let [descriptor, ..] = call.arguments;
    if continuation(call.number, call.arguments) != Some(Continuation::Socket) {
        return false;
    }
    let of_thread = Descriptors::of_thread(process.as_fd(), process.pid(), thread);
    let taken = i32::try_from(descriptor).ok().zip(of_thread.ok().flatten());
    let Some(file) = taken.and_then(|(descriptor, of_thread)| of_thread.take(descriptor).ok()) else {
        return false;
    };
    [Timeout::Recv, Timeout::Send]
        .into_iter()
        .all(|which| matches!(socket_timeout(&file, which), Ok(None) | Err(Errno::NOTSOCK)))
}
