//! SIGUSR1: the targets file is read again, and the session goes on with what it says now.

use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock},
    thread,
};

use tokio::signal::unix::{SignalKind, signal};

use super::{terminal::tell, words::counted};
use crate::{
    control::choice::{Reread, replace},
    session::controls::Controls,
    targets::source::TargetSource,
};

/// Waits for the signal, from here on.
pub(super) struct Rereading {
    controls: Arc<OnceLock<Controls>>,
}

impl Rereading {
    /// Has SIGUSR1 no longer end the process. It is heeded once there is a [session](Self::of).
    ///
    /// # Errors
    /// The handler could not be installed, or the thread not started.
    pub(super) fn start(source: TargetSource, allow_empty: bool) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut asked = {
            let _entered = runtime.enter();
            signal(SignalKind::user_defined1())?
        };
        let controls: Arc<OnceLock<Controls>> = Arc::default();
        let of = Arc::clone(&controls);
        let listen = move || {
            while runtime.block_on(asked.recv()).is_some() {
                match of.get() {
                    Some(controls) => reread(controls, &source, allow_empty),
                    None => tell("speed-bump-ebpf: SIGUSR1 came before everything was attached"),
                }
            }
        };
        thread::Builder::new().name("reread".to_owned()).spawn(listen)?;
        Ok(Self { controls })
    }

    /// The session that it changes.
    pub(super) fn of(&self, controls: &Controls) {
        let _ = self.controls.set(controls.clone());
    }
}

fn reread(controls: &Controls, source: &TargetSource, allow_empty: bool) {
    match source {
        TargetSource::File(path) if path != Path::new("-") => {}
        TargetSource::File(_) | TargetSource::Text { .. } | TargetSource::Before { .. } => {
            return tell("speed-bump-ebpf: SIGUSR1: the targets come from no file, and stay as they are");
        }
    }
    let parsed = source.read(allow_empty).map_err(|error| error.to_string());
    match parsed.and_then(|parsed| replace(controls, parsed).map_err(|error| error.to_string())) {
        Ok(Reread { added, dropped, changed }) => tell(format_args!(
            "speed-bump-ebpf: the targets were read again: {} added, {dropped} dropped, {changed} with \
             another dose",
            counted(added, "target")
        )),
        Err(why) => tell(format_args!("speed-bump-ebpf: warning: the targets stay as they were: {why}")),
    }
}
