//! Stops a session at once, whatever its event loop is doing.
//!
//! Attaching waits for grace periods of the kernel, and a grace period lasts until delays in progress are
//! over. So with long delays the event loop may receive a request seconds late. Therefore the requesting
//! thread itself sets the stop flag, which ends every delay in progress. The event loop does the rest. Code
//! that waits outside the event loop checks the flag to see whether to go on.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, Ordering},
};

use tokio::sync::Notify;

use crate::engine::bpf::switch::PolicySwitch;

/// Stops a session. Any thread may ask for that at any time, even before the session starts. Clones share the
/// same state.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    times: AtomicU32,
    switch: OnceLock<Arc<PolicySwitch>>,
    notify: Notify,
}

impl Stop {
    /// From now on nothing is delayed, and the session detaches. After a second call, the session does not
    /// wait for helpers to leave.
    pub fn ask(&self) {
        self.0.times.fetch_add(1, Ordering::SeqCst);
        if let Some(switch) = self.0.switch.get() {
            switch.stop();
        }
        self.0.notify.notify_one();
    }

    /// How often someone has asked the session to stop.
    pub fn times(&self) -> u32 {
        self.0.times.load(Ordering::SeqCst)
    }

    /// Waits until someone asks for the first time. Only the event loop may use this.
    pub(super) async fn asked(&self) {
        while self.times() == 0 {
            self.0.notify.notified().await;
        }
    }

    /// From now on, asking to stop also sets this switch's flag. Only the first call has an effect.
    pub(super) fn stops(&self, switch: &Arc<PolicySwitch>) {
        let _ = self.0.switch.set(Arc::clone(switch));
        if self.times() > 0 {
            switch.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn who_waits_hears_of_it_whenever_it_is_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (before, meanwhile) = (Stop::default(), Stop::default());
        before.ask();
        before.ask();
        runtime.block_on(before.asked());
        assert_eq!((before.times(), meanwhile.times()), (2, 0));
        let asks = meanwhile.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            asks.ask();
        });
        runtime.block_on(meanwhile.asked());
        thread.join().unwrap();
        assert_eq!(meanwhile.times(), 1);
    }
}
