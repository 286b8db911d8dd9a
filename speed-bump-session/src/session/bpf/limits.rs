//! Refuses what a session cannot do on an old kernel, before we attach anything.

use crate::{
    engine::EngineKind,
    probe::{plan::Plan, resolve::Resolver},
    process::Process,
    session::{error::SessionError, settings::Settings},
};

/// Refuses what the BPF programs cannot do on this kernel. `roots` is empty for a command that has not been
/// started.
///
/// # Errors
/// The error names the first line that needs more than this kernel has, and says what the user can do.
pub(super) fn check(
    resolver: &Resolver,
    settings: &Settings,
    roots: &[(Process, Plan)],
) -> Result<(), SessionError> {
    let form = resolver.form();
    let policies = &settings.policies;
    let has_helper = policies.wants_helper() || roots.iter().all(|(_, plan)| plan.wants_helper());
    let has_signals = resolver.signal().is_some() && has_helper;
    for (index, target) in resolver.targets().iter() {
        let dose = policies.dose(index);
        let is_signalled = policies.engine(dose.delay, form, has_signals) == EngineKind::Signal;
        if let Some(lack) = form.lack(dose, is_signalled) {
            return Err(SessionError::OldKernel { line: target.line, lack });
        }
    }
    Ok(())
}
