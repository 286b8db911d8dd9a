//! What a session cannot do on an old kernel, told before anything is attached.

use super::{SessionError, Settings};
use crate::{
    engine::{EngineKind, bpf::Form},
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    units::Nanos,
};

/// Refuses what the programs of this kernel's form cannot do. `roots` is empty for a command that does not
/// run yet.
///
/// # Errors
/// The first line that asks for it, with the way out.
pub(super) fn check(
    resolver: &Resolver,
    settings: &Settings,
    roots: &[(Process, Plan)],
) -> Result<(), SessionError> {
    let calibration = resolver.calibration();
    let form = calibration.form();
    let has_helper = settings.engine.wants_helper() || roots.iter().all(|(_, plan)| plan.wants_helper());
    let is_signalled = |delay| {
        calibration.signal().is_some()
            && has_helper
            && settings.engine.engine(delay, form) == EngineKind::Signal
    };
    for (_, target) in resolver.targets().iter() {
        let delay = target.delay.unwrap_or(settings.delay);
        let frequency = target.frequency.map_or(settings.frequency, u64::from);
        if let Some(lack) = lack(form, delay, frequency, is_signalled(delay)) {
            return Err(SessionError::OldKernel { line: target.line, lack });
        }
    }
    Ok(())
}

/// Why a line cannot be had.
fn lack(form: Form, delay: Nanos, frequency: u64, is_signalled: bool) -> Option<String> {
    if frequency > 1 && !form.counts_for_frequency() {
        return Some(
            "this kernel does not allow frequency=: use frequency=1, or Linux 5.15 or later".to_owned(),
        );
    }
    let longest = form.longest_spin()?;
    (delay > longest && !is_signalled).then(|| {
        format!(
            "a delay of {delay} cannot be spun in this kernel, which allows at most {longest}: use `--engine \
             signal`, which spins it in the process, or Linux 5.17 or later"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Nanos = Nanos(25_000);
    const LONG: Nanos = Nanos(25_001);

    #[test]
    fn a_kernel_with_everything_does_everything() {
        for form in [Form::Multi, Form::Single] {
            assert_eq!(lack(form, Nanos::MAX_DELAY, 1000, false), None);
        }
    }

    #[test]
    fn without_bpf_loop_long_delays_need_the_helper() {
        for form in [Form::Bounded, Form::Copied] {
            assert_eq!(lack(form, SHORT, 1, false), None);
            assert_eq!(lack(form, LONG, 1, true), None);
            let why = lack(form, LONG, 1, false).unwrap_or_default();
            assert!(
                why.contains("25.001us") && why.contains("--engine signal") && why.contains("5.17"),
                "{why}"
            );
        }
    }

    #[test]
    fn before_cookies_every_call_counts() {
        assert_eq!(lack(Form::Bounded, SHORT, 2, false), None);
        assert_eq!(lack(Form::Copied, SHORT, 1, false), None);
        assert!(lack(Form::Copied, SHORT, 2, false).is_some_and(|why| why.contains("5.15")));
    }
}
