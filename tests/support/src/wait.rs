//! Waits for the effects of other processes, by polling with a time limit.

use std::{
    env,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// How long anything that a test waits for may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Names how many times slower than an ordinary machine this one is: where the processor is emulated.
pub const SLOWNESS_VARIABLE: &str = "SPEED_BUMP_SLOWNESS";

/// When something that may take so long on an ordinary machine counts as hung on this one.
pub(crate) fn deadline(patience: Duration) -> Instant {
    let slowness = env::var(SLOWNESS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    Instant::now() + patience * slowness
}

/// Between two checks.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until there is something, and returns it.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    look_for(PATIENCE, || Ok(look()))?.with_context(|| in_vain(what))
}

/// Waits until something holds. An error ends the wait.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    look_for(PATIENCE, || Ok(holds()?.then_some(())))?.with_context(|| in_vain(what))
}

/// Waits for the end of a child.
pub fn wait_for_exit(child: &mut Child) -> Result<ExitStatus> {
    wait(child, PATIENCE)?.with_context(|| in_vain("the end of a child"))
}

/// Waits for a child, at most this long; `None` if it still runs.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Result<Option<ExitStatus>> {
    look_for(patience, || child.try_wait().context("cannot wait for a child"))
}

fn in_vain(what: &str) -> String {
    format!("waited in vain for {PATIENCE:?}: {what}")
}

/// Polls until there is a result; `None` after this time. An error ends it at once.
pub(crate) fn look_for<T>(
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let deadline = deadline(patience);
    loop {
        let found = look()?;
        if found.is_some() || Instant::now() >= deadline {
            return Ok(found);
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_ends_when_something_is_there() {
        let mut looks = 0;
        let found = wait_for("the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn an_error_ends_it() {
        let error = wait_until("nothing", || anyhow::bail!("no such thing")).unwrap_err();
        assert_eq!(error.to_string(), "no such thing");
    }

    #[test]
    fn it_looks_once_more_than_it_has_time_for() {
        assert_eq!(look_for::<()>(Duration::ZERO, || Ok(None)).unwrap(), None);
        assert_eq!(look_for(Duration::ZERO, || Ok(Some(1))).unwrap(), Some(1));
    }
}
