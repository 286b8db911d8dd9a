//! What `--times` can be had for: told before anything is touched.

use super::{PrepareError, Request, look::Planned, notice::Notice};
use crate::{
    engine::{EngineChoice, EngineKind},
    probe::plan::PythonPlan,
    python::entry_source::{EntryChoice, EntrySource},
    targets::{TargetKind, Targets},
};

/// Refuses to time calls where nobody could.
pub(super) fn check(request: &Request, targets: &Targets) -> Result<(), PrepareError> {
    if !request.times {
        return Ok(());
    }
    let refuse = |why: String| Err(PrepareError::Incapable(vec![why]));
    let python = targets.has_kind(TargetKind::Python);
    let not_the_helper = matches!(request.entry, EntryChoice::Only(source) if source != EntrySource::Helper);
    match request.engine {
        EngineChoice::Only(EngineKind::Kmod) => {
            refuse("the kernel module (--engine kmod) cannot time calls (--times)".to_owned())
        }
        EngineChoice::Only(engine) if python && !request.engine.delays_in_helper() => refuse(format!(
            "the engine `{engine}` cannot time calls of Python functions (--times): leave --engine out, or \
             use --engine helper"
        )),
        _ if python && (!request.inject || not_the_helper) => refuse(
            "calls of Python functions are timed by the helper in the process (--times): leave --no-inject \
             and --entry out"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Which targets are not timed.
pub(super) fn notices(request: &Request, targets: &Targets) -> Option<Notice> {
    let is_python = |kind| kind == TargetKind::Python;
    let others = targets.iter().any(|(_, target)| !is_python(target.kind));
    let text = "calls of native functions and USDT probes are counted and not timed";
    (request.times && others).then(|| Notice::NotTimed { text: text.to_owned() })
}

/// Which processes are not timed.
pub(super) fn of_processes(request: &Request, planned: &[Planned]) -> Vec<Notice> {
    let others = planned.iter().filter(|of| {
        request.times
            && matches!(&of.plan.python, PythonPlan::Source { source, .. } if *source != EntrySource::Helper)
    });
    let text = |of: &Planned| {
        let pid = of.process.pid();
        format!(
            "process {pid}: calls of Python functions are not timed, as the helper cannot be loaded there"
        )
    };
    others.map(|of| Notice::NotTimed { text: text(of) }).collect()
}
