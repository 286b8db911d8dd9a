//! Signals that end a session and the tool.
//!
//! The first signal stops the session, which ends all delays; then the tool reports. The tool may hang in a
//! write to a frozen terminal (Ctrl-S), or in a file system or memory that never answers. Then a second
//! signal ends it at once, and without one it ends after three seconds.

mod hung;

use std::{
    io::{self, IsTerminal, stderr, stdout},
    os::fd::AsFd,
    process::exit,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval},
};

use self::hung::Reading;
use super::terminal::tell;
use crate::{
    engine::{EngineChoice, EngineKind},
    session::stop::Stop,
    sys::signals,
};

/// How often the tool polls after a signal whether it hangs.
const POLL: Duration = Duration::from_millis(250);
/// After this many polls in a row, a frozen terminal counts as hung, and so does a read that has not
/// returned.
const MAX_POLLS: u32 = 12;
/// The message when a read hangs.
const HUNG: &str = "speed-bump-ebpf: error: memory or a file of a process did not answer for three seconds: \
                    the server of its file system or memory (FUSE, NFS, userfaultfd) may hang; there is no \
                    report";
/// The exit code of a command that signal N ended is this plus N (POSIX shells).
const BY_SIGNAL: i32 = 128;

/// Catches the signals that stop a session: they no longer end the process, and none is lost.
#[derive(Debug)]
pub(super) struct StopSignals {
    first: Arc<OnceLock<&'static str>>,
    is_over: Arc<AtomicBool>,
}

/// Whether a second signal ends the tool at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Second {
    /// The kernel then removes the session's probes.
    Ends,
    /// Breakpoints would stay in place.
    IsLikeTheFirst,
}

impl Second {
    /// For sessions with this engine: breakpoints of the kernel module outlive the tool.
    pub(super) fn with(engine: EngineChoice) -> Self {
        if engine == EngineChoice::Only(EngineKind::Kmod) { Self::IsLikeTheFirst } else { Self::Ends }
    }
}

impl StopSignals {
    /// Makes SIGINT, SIGTERM and SIGHUP ask for this stop. A separate thread handles them, because the
    /// session may be waiting for the kernel.
    ///
    /// # Errors
    /// The handlers could not be installed, or the thread not started.
    pub(super) fn ask(stop: Stop, second: Second) -> io::Result<Self> {
        Self::on_each(move || stop.ask(), second)
    }

    /// Calls `act` for each of these signals. The calling thread blocks them, and so do threads that it
    /// starts later; the listening thread receives them.
    ///
    /// # Errors
    /// As [`StopSignals::ask`].
    pub(super) fn on_each(act: impl Fn() + Send + 'static, second: Second) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let mut coming = {
            let _entered = runtime.enter();
            Signals::catch()?
        };
        let first = Arc::new(OnceLock::new());
        let heard = Arc::clone(&first);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        // Any other thread may hang.
        signals::leave_to_others();
        let listen = move || {
            signals::take();
            runtime.block_on(async {
                let came = coming.next().await;
                let _ = heard.set(came.name);
                act();
                let (mut polls, mut frozen, mut reading) = (polls(), 0, Reading::default());
                loop {
                    tokio::select! {
                        _ = coming.next() => match second {
                            Second::Ends => exit(BY_SIGNAL + came.number),
                            Second::IsLikeTheFirst => act(),
                        },
                        _ = polls.tick(), if second == Second::Ends => {
                            let is_frozen = is_frozen(&stderr()) || is_frozen(&stdout());
                            frozen = if is_frozen { frozen + 1 } else { 0 };
                            if frozen > MAX_POLLS {
                                exit(BY_SIGNAL + came.number);
                            }
                            // After the session, writing the report may take any time.
                            if !over.load(Ordering::Relaxed) && reading.poll() > MAX_POLLS {
                                if is_writable(&stderr()) {
                                    tell(HUNG);
                                }
                                exit(BY_SIGNAL + came.number);
                            }
                        }
                    }
                }
            })
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(Self { first, is_over })
    }

    /// Notes that the session is over: the tool no longer reads from its processes.
    pub(super) fn session_is_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The first signal that arrived.
    pub(super) fn first(&self) -> Option<&'static str> {
        self.first.get().copied()
    }
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug)]
struct CaughtSignal {
    name: &'static str,
    number: i32,
}

/// The caught signals.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> CaughtSignal {
        let (name, kind) = tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            _ = self.hangup.recv() => ("SIGHUP", SignalKind::hangup()),
        };
        CaughtSignal { name, number: kind.as_raw_value() }
    }
}

fn polls() -> Interval {
    let mut polls = interval(POLL);
    // Do not make up for late polls.
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    polls
}

/// Whether this is a terminal that accepts no output now.
fn is_frozen(stream: &(impl AsFd + IsTerminal)) -> bool {
    stream.is_terminal() && !is_writable(stream)
}

/// Whether a write would not block now.
fn is_writable(stream: &impl AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&at_once)) != Ok(0)
}
