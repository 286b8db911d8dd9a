//! The socket of our own session.

use std::{
    fs, io,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};

use super::{
    ControlError, SCHEMA,
    choice::{self, Changed, ChoiceError},
    place::Place,
    request::{Answer, Ask, read, write},
};
use crate::{session::controls::Controls, units::Pid};

/// How long whoever has connected may take for a request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a session is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// [`SCHEMA`].
    pub schema: String,
    /// The processes that were named.
    pub pids: Vec<i32>,
    /// Its targets.
    pub targets: Vec<TargetAbout>,
}

/// A target, with the dose that it has now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetAbout {
    /// The pattern.
    pub pattern: String,
    /// The delay of each trigger.
    pub delay_ns: u64,
    /// Every how many calls.
    pub frequency: u64,
    /// Functions that are known now.
    pub functions: usize,
}

/// Listens. Dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens for requests about a session of these processes, on a thread of its own.
    ///
    /// # Errors
    /// There is no place for the socket.
    pub fn start(controls: Controls, pids: Vec<Pid>) -> Result<Self, ControlError> {
        let path = Place::make()?.socket(Pid::own());
        let failed = |error| ControlError::Io { path: path.clone(), error };
        // One of a process that was killed, and had our number.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let serve = move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let served = stream.and_then(|stream| serve(&stream, &controls, &pids));
                if let Err(error) = served {
                    tracing::debug!("a request to change the session failed: {error}");
                }
            }
        };
        let thread = thread::Builder::new().name("control".to_owned()).spawn(serve);
        let thread = thread.map_err(|error| {
            let _ = fs::remove_file(&path);
            ControlError::Io { path: path.clone(), error }
        })?;
        Ok(Self { path, is_over, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Has it look.
        let woken = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if woken.is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

fn serve(stream: &UnixStream, controls: &Controls, pids: &[Pid]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket_peercred(stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the request is another user's"));
    }
    match read::<Ask>(stream)? {
        Some(Ask::About) => write(stream, &Answer::Ok(about(controls, pids))),
        Some(Ask::Set { line }) => write(stream, &done("doses", &line, choice::set(controls, &line))),
        Some(Ask::Add { line }) => write(stream, &done("targets", &line, choice::add(controls, &line))),
        Some(Ask::Drop { pattern }) => {
            write(stream, &done("targets", &pattern, choice::drop(controls, &pattern)))
        }
        None => write(stream, &Answer::<()>::Error("this is no request".to_owned())),
    }
}

fn done(what: &str, line: &str, changed: Result<Changed, ChoiceError>) -> Answer<Changed> {
    match changed {
        Ok(changed) => {
            tracing::info!("{what} were changed from outside: {line}");
            Answer::Ok(changed)
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

fn about(controls: &Controls, pids: &[Pid]) -> About {
    let (known, policies) = (controls.known(), controls.policies());
    let all_targets = controls.targets();
    let targets = all_targets.iter().filter(|(_, target)| !target.is_dropped).map(|(index, target)| {
        let dose = policies.dose(index);
        TargetAbout {
            pattern: target.pattern.clone(),
            delay_ns: dose.delay.0,
            frequency: dose.frequency,
            functions: known.iter().filter(|(_, function)| function.target == index).count(),
        }
    });
    About {
        schema: SCHEMA.to_owned(),
        pids: pids.iter().map(|pid| pid.get()).collect(),
        targets: targets.collect(),
    }
}
