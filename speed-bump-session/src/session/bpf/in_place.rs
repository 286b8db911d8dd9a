//! Refuses what would count nothing: files to which no path leads, and probes whose breakpoints are missing.

use super::{context::Context, engines::Engines, phase::Processes};
use crate::{
    engine::bpf::UprobeProgram,
    probe::{attach::SiteGroup, in_place, plan::Plan, resolve::Resolver},
    process::{Process, ProcessError},
    session::error::SessionError,
    units::{FileOffset, Pid},
};

/// Refuses a target that selects nothing in any process, if no path leads to the file that it names.
///
/// # Errors
/// The error names the first such target.
pub(super) fn check_reach(resolver: &Resolver, roots: &[(Process, Plan)]) -> Result<(), SessionError> {
    for remark in roots.iter().flat_map(|(_, plan)| &plan.out_of_reach) {
        let Some(index) = remark.target else { continue };
        let Some(target) = resolver.targets().get(index) else { continue };
        if !roots.iter().any(|(_, plan)| plan.would_select(index)) {
            return Err(SessionError::OutOfReach {
                line: target.line,
                target: target.text.clone(),
                why: remark.text.clone(),
            });
        }
    }
    Ok(())
}

/// Checks that a covered process has the breakpoints of its probes.
///
/// # Errors
/// [`SessionError::NotInPlace`] if a breakpoint is missing. All probes stay attached.
pub(super) fn check_in_place(
    pid: Pid,
    processes: &Processes,
    engines: &mut Engines,
    context: &mut Context,
) -> Result<(), SessionError> {
    let helper = processes.get(pid).and_then(|covered| covered.helper.id());
    let stub = helper.map(|helper| engines.stub_group(helper, context)).transpose()?.flatten();
    let Some(covered) = processes.get(pid) else { return Ok(()) };
    let Some(memory) = &covered.image else {
        let is_ending = match covered.process.memory() {
            Ok(now) => now.is_gone(),
            Err(ProcessError::Gone { .. }) => true,
            Err(_) => !covered.process.is_alive(),
        };
        if is_ending {
            return Ok(());
        }
        context.warn(format!(
            "process {pid}: its memory cannot be read, so that it is not known whether its probes are in \
             place; without them no call is counted"
        ));
        return Ok(());
    };
    // Probes at exits are attached only while the session times calls.
    let is_there = |group: &&SiteGroup| context.is_timing || group.program != UprobeProgram::SiteLeft;
    let groups = covered.groups.iter().map(|of| &of.group).filter(is_there).chain(&stub);
    let files = groups.map(|group| {
        let taken = group.sites.iter().filter(|site| !covered.refused.contains(&site.site));
        let offsets: Vec<FileOffset> = taken.map(|site| site.offset).collect();
        (&*group.file, offsets)
    });
    Ok(in_place::check(&covered.process, memory, files)?)
}
