//! The signals that end a session, and with it the tool.
//!
//! The first one has the session stop, which ends all delays; then the tool reports. Where it hangs, in a
//! write to a terminal that takes nothing any more (Ctrl-S) or in a file system that never answers, a second
//! one ends it at once. A terminal like that, and memory or a file that never answers, end it without one.

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

/// How often the tool looks, after a signal, whether its terminal takes anything.
const LOOKS: Duration = Duration::from_millis(250);
/// A terminal that takes nothing at so many looks in a row will not take the report, and a read that has not
/// returned will not return.
const MAX_LOOKS: u32 = 12;
/// What is said then.
const HUNG: &str = "speed-bump-ebpf: error: memory or a file of a process did not answer for three seconds: \
                    whoever serves its file system or its memory (FUSE, NFS, userfaultfd) may hang; nothing \
                    is reported";
/// The exit code of what signal N has ended is so much more than N (POSIX shells).
const BY_SIGNAL: i32 = 128;

/// Signals that stop a session, from here on: they end the process no more, and none is lost.
#[derive(Debug)]
pub(super) struct StopSignals {
    first: Arc<OnceLock<&'static str>>,
    is_over: Arc<AtomicBool>,
}

/// Whether a second signal ends the tool at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Second {
    /// The kernel removes what is in place then.
    Ends,
    /// What is in place would stay.
    IsLikeTheFirst,
}

impl Second {
    /// Of sessions with this engine: the kernel module's breakpoints stay when the tool is gone.
    pub(super) fn with(engine: EngineChoice) -> Self {
        if engine == EngineChoice::Only(EngineKind::Kmod) { Self::IsLikeTheFirst } else { Self::Ends }
    }
}

impl StopSignals {
    /// Has SIGINT, SIGTERM and SIGHUP ask for this stop, on a thread of their own: the session may be waiting
    /// for the kernel.
    ///
    /// # Errors
    /// The handlers could not be installed, or the thread not started.
    pub(super) fn ask(stop: Stop, second: Second) -> io::Result<Self> {
        Self::on_each(move || stop.ask(), second)
    }

    /// Has them do this, each time that one comes. The calling thread, and those that it starts from here on,
    /// leave them to the one that listens.
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
        // All other threads may come to wait for what never comes.
        signals::leave_to_others();
        let listen = move || {
            signals::take();
            runtime.block_on(async {
                let came = coming.next().await;
                let _ = heard.set(came.name);
                act();
                let (mut looks, mut frozen, mut reading) = (looks(), 0, Reading::default());
                loop {
                    tokio::select! {
                        _ = coming.next() => match second {
                            Second::Ends => exit(BY_SIGNAL + came.number),
                            Second::IsLikeTheFirst => act(),
                        },
                        _ = looks.tick(), if second == Second::Ends => {
                            let is_frozen = is_frozen(&stderr()) || is_frozen(&stdout());
                            frozen = if is_frozen { frozen + 1 } else { 0 };
                            if frozen > MAX_LOOKS {
                                exit(BY_SIGNAL + came.number);
                            }
                            // What is written then takes as long as it takes.
                            if !over.load(Ordering::Relaxed) && reading.look() > MAX_LOOKS {
                                if takes(&stderr()) {
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

    /// The session is over: nothing of its processes is read any more.
    pub(super) fn session_is_over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The first that came.
    pub(super) fn first(&self) -> Option<&'static str> {
        self.first.get().copied()
    }
}

/// A signal that came.
#[derive(Clone, Copy, Debug)]
struct Came {
    name: &'static str,
    number: i32,
}

/// Those that are caught.
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

    async fn next(&mut self) -> Came {
        let (name, kind) = tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            _ = self.hangup.recv() => ("SIGHUP", SignalKind::hangup()),
        };
        Came { name, number: kind.as_raw_value() }
    }
}

fn looks() -> Interval {
    let mut looks = interval(LOOKS);
    // Looks that come late are not made up for.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Whether it is a terminal that takes nothing now.
fn is_frozen(of: &(impl AsFd + IsTerminal)) -> bool {
    of.is_terminal() && !takes(of)
}

/// Whether it takes something now.
fn takes(of: &impl AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(of, PollFlags::OUT)], Some(&at_once)) != Ok(0)
}
