//! Finds SIGTRAPs that hardware breakpoints may have caused. We must not deliver these signals, because they
//! end most programs.
//!
//! A register of the processor, DR6, says which breakpoint was hit. On virtual machines this register's value
//! is sometimes lost. KVM before Linux 6.14 loads an old value when it handles an exit on its fast path. (The
//! change that repaired this is "KVM: x86: Load DR6 with guest value only before entering .vcpu_run() loop".)
//! If DR6 gives no cause, the kernel assumes that the program executed the instruction `int1`
//! (arch/x86/kernel/traps.c, `exc_debug_user`: `icebp`), and sends a SIGTRAP. We saw this about once in five
//! thousand hits.
//!
//! So we set breakpoints only in traced threads: a traced thread stops before the kernel delivers a signal.
//! If we do not deliver the signal, the thread executes the same instruction again, and hits the breakpoint
//! again.

use std::{io, time::Instant};

use super::ptrace::{Resume, Stop, Tracee};
use crate::units::VirtualAddress;

/// The signal to deliver to a thread that stopped for `signal`. Returns 0 if the signal comes from a
/// breakpoint at one of these places.
///
/// # Errors
/// The thread has not stopped for a signal.
pub fn to_deliver(signal: i32, tracee: &Tracee, places: &[VirtualAddress]) -> io::Result<i32> {
    Ok(if is_stray(signal, tracee, places)? { 0 } else { signal })
}

fn is_stray(signal: i32, tracee: &Tracee, places: &[VirtualAddress]) -> io::Result<bool> {
    Ok(signal == libc::SIGTRAP && tracee.trapped_at()?.is_some_and(|place| places.contains(&place)))
}

/// Drops a SIGTRAP from a breakpoint at one of these places, if one is pending. The thread is stopped for
/// another reason, and these breakpoints must be gone. Returns a signal to deliver, or 0. Returns `None` if
/// the thread did not stop again in time.
///
/// # Errors
/// The thread is not stopped.
pub fn drop_pending(
    tracee: &Tracee,
    places: &[VirtualAddress],
    deadline: Instant,
) -> io::Result<Option<i32>> {
    if !tracee.is_pending(libc::SIGTRAP)? {
        return Ok(Some(0));
    }
    // The kernel first delivers the signals that the thread itself caused, and does so at once.
    tracee.resume(Resume::Freely, 0)?;
    let Some(Stop::Signal(signal)) = tracee.wait(deadline)? else { return Ok(None) };
    to_deliver(signal, tracee, places).map(Some)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{PipeWriter, Read as _, Write as _},
        time::Duration,
    };

    use super::*;
    use crate::units::Pid;

    // For this instruction, the kernel takes an exception without a cause.
    std::arch::global_asm!(
        ".globl speed_bump_test_int1",
        "speed_bump_test_int1: .byte 0xf1",
        ".globl speed_bump_test_behind_int1",
        "speed_bump_test_behind_int1: ret",
    );
    unsafe extern "C" {
        fn speed_bump_test_int1();
        fn speed_bump_test_behind_int1();
    }

    /// A traced child. It waits for a byte, calls `act`, and ends when the pipe is closed.
    fn traced(act: impl Fn()) -> (Tracee, PipeWriter) {
        let (mut wait, go) = io::pipe().unwrap();
        // SAFETY: the child reads from a pipe, does what the test says, and ends without cleaning up.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(go);
            let mut byte = [0];
            let began = wait.read_exact(&mut byte).is_ok();
            act();
            let ended = wait.read(&mut byte).is_ok();
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(i32::from(!began || !ended)) }
        }
        (Tracee::seize(Pid::new(child).unwrap(), true).unwrap(), go)
    }

    fn next(tracee: &Tracee) -> Stop {
        tracee.wait(Instant::now() + Duration::from_secs(30)).unwrap().unwrap()
    }

    #[test]
    fn it_is_known_by_its_place() {
        // SAFETY: the call raises SIGTRAP, which the parent does not deliver, and then returns.
        let (tracee, mut go) = traced(|| unsafe { speed_bump_test_int1() });
        go.write_all(&[1]).unwrap();
        assert_eq!(next(&tracee), Stop::Signal(libc::SIGTRAP));
        let places = [speed_bump_test_int1, speed_bump_test_behind_int1]
            .map(|place: unsafe extern "C" fn()| VirtualAddress(place as usize as u64));
        // We measured the place: it is behind the instruction on Intel's processors, and at the instruction
        // on AMD's under KVM.
        let place = tracee.trapped_at().unwrap().unwrap();
        let (here, elsewhere): (Vec<_>, Vec<_>) = places.into_iter().partition(|known| *known == place);
        assert_eq!((here.len(), elsewhere.len()), (1, 1), "{place}");
        assert!(is_stray(libc::SIGTRAP, &tracee, &here).unwrap());
        assert!(!is_stray(libc::SIGTRAP, &tracee, &elsewhere).unwrap());
        assert!(!is_stray(libc::SIGTRAP, &tracee, &[]).unwrap());
        tracee.resume(Resume::Freely, 0).unwrap();
        drop(go);
    }

    #[test]
    fn one_that_somebody_sent_is_kept() {
        let (tracee, go) = traced(|| ());
        tracee.interrupt().unwrap();
        assert_eq!(next(&tracee), Stop::Interrupted);
        let soon = || Instant::now() + Duration::from_secs(30);
        assert_eq!(drop_pending(&tracee, &[], soon()).unwrap(), Some(0));
        let pid = tracee.thread().get();
        // SAFETY: the call sends a signal to our child.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, libc::SIGTRAP) };
        assert_eq!(drop_pending(&tracee, &[VirtualAddress(0)], soon()).unwrap(), Some(libc::SIGTRAP));
        tracee.resume(Resume::Freely, 0).unwrap();
        drop(go);
    }
}
