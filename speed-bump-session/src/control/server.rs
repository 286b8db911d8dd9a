//! The socket of our own session. Each connection gets a greeting, and the answer to one request.

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
use serde_json::Value;

use super::{
    ControlError, RequestError,
    answer::{Greeting, to_line, value},
    lines::Lines,
    place::Place,
    request::{self, Ask},
    running,
};
use crate::{session::controls::Controls, units::Pid};

/// How long a client may take to send its request and to receive the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listens on the socket. Dropping this removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, on a separate thread, for requests about the session of these processes.
    ///
    /// # Errors
    /// We cannot create the socket.
    pub fn start(controls: Controls, pids: Vec<Pid>) -> Result<Self, ControlError> {
        let path = Place::make()?.socket(Pid::own());
        let failed = |error| ControlError::Io { path: path.clone(), error };
        // An earlier process with our PID may have left its socket when someone killed it.
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

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread, so that the thread notices the end.
        let woken = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if woken.is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

fn serve(stream: &UnixStream, controls: &Controls, pids: &[Pid]) -> io::Result<()> {
    let peer = socket_peercred(stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the request is another user's"));
    }
    let mut lines = Lines::new(stream, PATIENCE);
    lines.write(&serde_json::to_string(&Greeting::own())?)?;
    let (id, ask) = match lines.read() {
        Ok(line) => request::read(&line),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            (Value::Null, Err(RequestError::request(error.to_string())))
        }
        Err(error) => return Err(error),
    };
    let answer = ask.and_then(|ask| answer(ask, controls, pids));
    lines.wait_for(PATIENCE);
    lines.write(&to_line(&id, answer))
}

fn answer(ask: Ask, controls: &Controls, pids: &[Pid]) -> Result<Value, RequestError> {
    match ask {
        Ask::About {} => value(&running::about(controls, pids)),
        Ask::Set(ask) => {
            let set = running::set(controls, ask.doses(), ask.lines())?;
            tracing::info!("doses were changed from outside: {ask:?}");
            value(&set)
        }
        Ask::ChangeTargets { add, drop } => {
            let changed = running::change_targets(controls, &add, &drop)?;
            tracing::info!("targets were changed from outside: {add:?} came, {drop:?} went");
            value(&changed)
        }
        Ask::Prepare(_)
        | Ask::Sweep(_)
        | Ask::Start {}
        | Ask::Snapshot { .. }
        | Ask::Events { .. }
        | Ask::Report {}
        | Ask::Stop {} => Err(RequestError::state(
            "only who started the session may ask for this: others may ask `about`, `set` and \
             `change-targets`",
        )),
    }
}
