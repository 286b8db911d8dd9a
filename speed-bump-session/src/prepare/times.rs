//! Checks which calls `--times` can time, before we change anything.

use super::{PrepareError, Request, look::Planned, notice::Notice};
use crate::{
    engine::{EngineChoice, EngineKind},
    probe::{plan::PythonPlan, resolve::Resolver},
    python::entry_source::{EntryChoice, EntrySource},
    stats::times::not_timed,
    targets::{TargetKind, Targets},
    units::Pid,
};

/// The notice for a kernel that cannot time calls.
pub const NO_NATIVE_TIMES: &str =
    "calls of native functions are counted and not timed: that needs Linux 5.17 or later";

/// The notice for a process whose Python calls we do not time, because we cannot load the helper there.
pub fn python_untimed(pid: Pid) -> String {
    format!("process {pid}: calls of Python functions are not timed, as the helper cannot be loaded there")
}

/// Refuses to time calls where no engine can.
///
/// # Errors
/// No engine can time the calls. The error has the way out.
pub fn check(request: &Request, targets: &Targets) -> Result<(), PrepareError> {
    if !request.times {
        return Ok(());
    }
    let refuse = |why: String| Err(PrepareError::Incapable(vec![why]));
    let python = targets.has_kind(TargetKind::Python);
    if request.callers && !python {
        return refuse(
            "no target is a Python function: of other functions it is not recorded who calls them \
             (--callers)"
                .to_owned(),
        );
    }
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

/// Notices about targets whose calls we do not time, or whose callers we do not record.
pub(super) fn notices(request: &Request, targets: &Targets) -> impl Iterator<Item = Notice> {
    let usdt = "calls of USDT probes are counted and not timed: a probe is a place, and no function";
    let native = "of native functions it is not recorded who calls them";
    let told = |is_so: bool, text: &str| is_so.then(|| Notice::NotTimed { text: text.to_owned() });
    let usdt = told(request.times && targets.has_kind(TargetKind::Usdt), usdt);
    let native = told(request.callers && targets.has_kind(TargetKind::Native), native);
    usdt.into_iter().chain(native)
}

/// Whether we should time calls of native functions, if this kernel allows it. Native targets may be there
/// now, or may come later.
pub(super) fn of_native(request: &Request, targets: &Targets) -> bool {
    let may_come = request.allow_empty || request.times_later;
    (request.times || request.times_later) && (targets.has_kind(TargetKind::Native) || may_come)
}

/// The notice about calls that this kernel cannot time.
pub(super) fn of_kernel(request: &Request, resolver: &Resolver) -> Option<Notice> {
    let lacks = request.times && of_native(request, resolver.targets()) && !resolver.form().times_calls();
    lacks.then(|| Notice::NotTimed { text: NO_NATIVE_TIMES.to_owned() })
}

/// The notices about processes whose calls we do not time.
pub(super) fn of_processes(request: &Request, planned: &[Planned]) -> Vec<Notice> {
    let others = planned.iter().filter(|of| {
        request.times
            && matches!(&of.plan.python, PythonPlan::Source { source, .. } if *source != EntrySource::Helper)
    });
    let text = |of: &Planned| python_untimed(of.process.pid());
    let native = planned.iter().flat_map(|of| not_timed(of.plan.untimed()));
    let native = native.map(|text| Notice::NotTimed { text });
    others.map(|of| Notice::NotTimed { text: text(of) }).chain(native).collect()
}
