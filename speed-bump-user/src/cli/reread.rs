//! On SIGUSR1 the tool reads the targets file again and applies it to the session.

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

/// Waits for SIGUSR1.
pub(super) struct Rereading {
    controls: Arc<OnceLock<Controls>>,
}

impl Rereading {
    /// Starts listening, so that SIGUSR1 no longer ends the tool. It has an effect once there is a
    /// [session](Self::attach_to).
    ///
    /// # Errors
    /// The handler could not be installed, or the thread not started.
    pub(super) fn start(source: TargetSource, allow_empty: bool) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            signal(SignalKind::user_defined1())?
        };
        let controls: Arc<OnceLock<Controls>> = Arc::default();
        let session = Arc::clone(&controls);
        let listen = move || {
            while runtime.block_on(signals.recv()).is_some() {
                match session.get() {
                    Some(controls) => reread(controls, &source, allow_empty),
                    None => tell("speed-bump-ebpf: SIGUSR1 came before everything was attached"),
                }
            }
        };
        thread::Builder::new().name("reread".to_owned()).spawn(listen)?;
        Ok(Self { controls })
    }

    /// Sets the session that SIGUSR1 changes.
    pub(super) fn attach_to(&self, controls: &Controls) {
        let _ = self.controls.set(controls.clone());
    }
}

fn reread(controls: &Controls, source: &TargetSource, allow_empty: bool) {
    match source {
        TargetSource::File(path) if path != Path::new("-") => {}
        TargetSource::File(_) | TargetSource::Text { .. } | TargetSource::Before { .. } => {
            return tell(
                "speed-bump-ebpf: SIGUSR1: the targets do not come from a file, and stay as they are",
            );
        }
    }
    let parsed = source.read(allow_empty).map_err(|error| error.to_string());
    match parsed.and_then(|parsed| replace(controls, parsed).map_err(|error| error.to_string())) {
        Ok(Reread { added, dropped, changed }) => tell(format_args!(
            "speed-bump-ebpf: the targets were read again: {} added, {dropped} dropped, {changed} with a new \
             dose",
            counted(added, "target")
        )),
        Err(why) => tell(format_args!("speed-bump-ebpf: warning: the targets stay as they were: {why}")),
    }
}
