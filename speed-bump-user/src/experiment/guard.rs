//! Guards: conditions that must hold during an experiment. Each is polled on its own thread, so a slow check
//! does not delay others. The first guard that does not hold ends the experiment.

use std::{
    io,
    process::Stdio,
    str::FromStr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub(crate) use super::bound::Bound;
use super::{
    metric::{
        page::Pages,
        prometheus::{Source, SourceError},
    },
    shell::ShellCommand,
};

/// How often guards are checked.
const POLL: Duration = Duration::from_millis(100);
/// A command that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// A condition of `--guard`.
#[derive(Clone, Debug)]
pub enum Condition {
    /// A page that must answer with success: `http://HOST/health`.
    Page(String),
    /// A command that must succeed: `command:CMD`.
    Command(String),
    /// A value that must stay within a bound: `prometheus:URL#name<5`.
    Value {
        /// Its source.
        source: Source,
        /// Whether it must be below the bound; otherwise above it.
        below: bool,
        /// Bound, in the unit of the value.
        bound: f64,
    },
    /// A bound on the unit's own metric: `p99<50ms`. The experiment itself checks it.
    Own(Bound),
}

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Its form is unknown.
    #[error(
        "`{0}` is not a guard: write http://HOST/PATH, command:CMD, prometheus:URL#name followed by < or > \
         and a number, or a bound on the unit's metric: rate>100, latency<20ms, p50<10ms, p99<50ms"
    )]
    Unknown(String),
    /// Its source is not valid.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let unknown = || ConditionError::Unknown(text.to_owned());
        if text.starts_with("http://") {
            return Ok(Self::Page(text.to_owned()));
        }
        if let Some(command) = text.strip_prefix("command:").filter(|command| !command.trim().is_empty()) {
            return Ok(Self::Command(command.to_owned()));
        }
        let Some(value) = text.strip_prefix("prometheus:") else {
            return text.parse().map(Self::Own).map_err(|()| unknown());
        };
        let at = value.rfind(['<', '>']).ok_or_else(unknown)?;
        let (source, bound) =
            (value.get(..at).ok_or_else(unknown)?, value.get(at + 1..).ok_or_else(unknown)?);
        Ok(Self::Value {
            source: Source::parse(source)?,
            below: value.as_bytes().get(at) == Some(&b'<'),
            bound: bound.trim().parse().map_err(|_| unknown())?,
        })
    }
}

impl Condition {
    /// Why the condition does not hold now, if it does not. Does not check the unit's own metric.
    pub fn broken(&self) -> Option<String> {
        self.broken_while(|| true)
    }

    /// [`Condition::broken`], which ends early when the result is not wanted any more.
    pub fn broken_while(&self, is_wanted: impl Fn() -> bool) -> Option<String> {
        match self {
            Self::Page(url) => Pages::new().check(url).err().map(|error| error.to_string()),
            Self::Command(command) => run(command, is_wanted).err(),
            Self::Own(_) => None,
            Self::Value { source, below, bound } => {
                let value = match source.value() {
                    Ok(value) => value,
                    Err(error) => return Some(error.to_string()),
                };
                let holds = if *below { value < *bound } else { value > *bound };
                let sign = if *below { '<' } else { '>' };
                (!holds).then(|| format!("{} is {value}, and must be {sign} {bound}", source.name()))
            }
        }
    }
}

/// Runs a command to its end, or until the result is not wanted any more.
fn run(command: &str, is_wanted: impl Fn() -> bool) -> Result<(), String> {
    let shell = ShellCommand::start(command, Stdio::null(), Stdio::null());
    let mut shell = shell.map_err(|error| format!("`{command}` cannot be run: {error}"))?;
    match shell.end_within(PATIENCE, &is_wanted) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(format!("`{command}` failed: {status}")),
        Ok(None) if !is_wanted() => Ok(()),
        Ok(None) => Err(format!("`{command}` took more than {} s", PATIENCE.as_secs())),
        Err(error) => Err(format!("`{command}` cannot be waited for: {error}")),
    }
}

/// Guards that are checked while this lives.
#[derive(Debug)]
pub(crate) struct Guards {
    broken: Arc<OnceLock<String>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Guards {
    /// Starts to check these conditions. Calls `act` once, as soon as one of them does not hold.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn watch(
        conditions: Vec<Condition>,
        act: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        // If a thread cannot start, dropping this ends the threads that were started.
        let mut guards = Self { broken: Arc::default(), ends: Arc::default(), threads: Vec::new() };
        let act = Arc::new(act);
        for condition in conditions {
            let (says, ends, act) = (Arc::clone(&guards.broken), Arc::clone(&guards.ends), Arc::clone(&act));
            let check = move || {
                // When a condition does not hold, the threads of the others end too.
                let is_wanted = || !ends.load(Ordering::SeqCst) && says.get().is_none();
                if let Some(why) = wait_until_broken(&condition, is_wanted)
                    && says.set(why).is_ok()
                {
                    act();
                }
            };
            guards.threads.push(thread::Builder::new().name("guard".to_owned()).spawn(check)?);
        }
        Ok(guards)
    }

    /// Why a guard does not hold, if one does not.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Polls a condition. Returns why it does not hold, unless the result is not wanted any more.
fn wait_until_broken(condition: &Condition, is_wanted: impl Fn() -> bool + Copy) -> Option<String> {
    while is_wanted() {
        let began = Instant::now();
        if let Some(why) = condition.broken_while(is_wanted) {
            // The guard may have ended in the meantime.
            return is_wanted().then_some(why);
        }
        thread::sleep(POLL.saturating_sub(began.elapsed()));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::sync::mpsc::channel;

    use super::*;

    fn condition(text: &str) -> Condition {
        text.parse().unwrap()
    }

    #[test]
    fn commands_must_succeed() {
        assert_eq!(condition("command:true").broken(), None);
        let why = condition("command:exit 3").broken().unwrap();
        assert_eq!(why, "`exit 3` failed: exit status: 3");
    }

    #[test]
    fn pages_must_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/health", listener.local_addr().unwrap());
        drop(listener);
        let why = condition(&url).broken().unwrap();
        assert!(why.starts_with(&url), "{why}");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "true",
            "command:",
            "prometheus:http://a/b#c",
            "prometheus:http://a/b#c<x",
            "p99<5",
            "p9<5ms",
        ] {
            assert!(matches!(text.parse::<Condition>(), Err(ConditionError::Unknown(_))), "{text}");
        }
        assert!(matches!("prometheus:a<3".parse::<Condition>(), Err(ConditionError::Source(_))));
        let Condition::Value { below, bound, source } = condition("prometheus:http://a/b#c{d=\"<\"}>0.5")
        else {
            panic!("not a value")
        };
        assert_eq!((below, bound, source.name()), (false, 0.5, "c"));
    }

    #[test]
    fn the_first_broken_guard_is_reported_once() {
        let (tell, told) = channel();
        let conditions = vec![condition("command:true"), condition("command:false")];
        let guards = Guards::watch(conditions, move || tell.send(()).unwrap()).unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(guards.broken(), Some("`false` failed: exit status: 1"));
        assert!(told.recv_timeout(Duration::from_secs(60)).is_err(), "the thread has ended");
    }

    #[test]
    fn a_slow_guard_does_not_delay_others() {
        let (tell, told) = channel();
        let conditions = vec![condition("command:sleep 1000"), condition("command:false")];
        let guards = Guards::watch(conditions, move || tell.send(()).unwrap()).unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(guards.broken(), Some("`false` failed: exit status: 1"));
        // We do not wait for the slow condition.
        drop(guards);
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn nothing_is_reported_if_all_hold() {
        let guards = Guards::watch(vec![condition("command:true")], || panic!("told")).unwrap();
        assert_eq!(guards.broken(), None);
    }
}
