//! What a session cannot do on an old kernel, told before anything is attached.

use super::{SessionError, Settings};
use crate::{
    engine::{EngineKind, bpf::Form},
    policy::Dose,
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
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
    let policies = &settings.policies;
    let has_helper = policies.wants_helper() || roots.iter().all(|(_, plan)| plan.wants_helper());
    let has_signals = calibration.signal().is_some() && has_helper;
    for (index, target) in resolver.targets().iter() {
        let dose = policies.dose(index);
        let is_signalled = policies.engine(dose.delay, form, has_signals) == EngineKind::Signal;
        if let Some(lack) = lack(form, dose, is_signalled) {
            return Err(SessionError::OldKernel { line: target.line, lack });
        }
    }
    Ok(())
}

/// Why a line cannot be had.
pub(super) fn lack(form: Form, Dose { delay, frequency }: Dose, is_signalled: bool) -> Option<String> {
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
    use crate::units::Nanos;

    const SHORT: Dose = dose(25_000, 1);
    const LONG: Dose = dose(25_001, 1);

    const fn dose(ns: u64, frequency: u64) -> Dose {
        Dose { delay: Nanos(ns), frequency }
    }

    #[test]
    fn a_kernel_with_everything_does_everything() {
        for form in [Form::Multi, Form::Single] {
            assert_eq!(lack(form, dose(Nanos::MAX_DELAY.0, 1000), false), None);
        }
    }

    #[test]
    fn without_bpf_loop_long_delays_need_the_helper() {
        for form in [Form::Bounded, Form::Copied] {
            assert_eq!(lack(form, SHORT, false), None);
            assert_eq!(lack(form, LONG, true), None);
            let why = lack(form, LONG, false).unwrap_or_default();
            assert!(
                why.contains("25.001us") && why.contains("--engine signal") && why.contains("5.17"),
                "{why}"
            );
        }
    }

    #[test]
    fn before_cookies_every_call_counts() {
        assert_eq!(lack(Form::Bounded, dose(25_000, 2), false), None);
        assert_eq!(lack(Form::Copied, SHORT, false), None);
        assert!(lack(Form::Copied, dose(25_000, 2), false).is_some_and(|why| why.contains("5.15")));
    }
}
