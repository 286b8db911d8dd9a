//! Tries the first steps of an attach: loading the programs, attaching to functions of the tool, and
//! following children.

use super::{Check, machine::Machine};
use crate::{
    engine::bpf::Form,
    kernel::{Lack, Support},
    session::bpf::LOOK_FOR_PROCESSES,
    units::Nanos,
};

/// All checks of this file.
pub(super) fn checks(machine: &Machine) -> [Check; 4] {
    [attach(machine), bpf(machine), uprobe_multi(machine), children(machine)]
}

fn attach(machine: &Machine) -> Check {
    const NAME: &str = "attach";
    match &machine.attach {
        Ok(_) => Check::pass(NAME, "tried on functions of the tool, works"),
        Err(error) => Check::fail(NAME, "nothing can be attached", error.to_string()),
    }
}

fn bpf(machine: &Machine) -> Check {
    const NAME: &str = "BPF";
    let kernel = &machine.kernel;
    if let Some(check) = machine.lack(NAME, &[Lack::Bpf, Lack::BpfEvents]) {
        return check;
    }
    let ((Support::Unknown(reason), _) | (_, Support::Unknown(reason))) =
        (&kernel.bpf, &kernel.probe_programs)
    else {
        return Check::pass(NAME, "programs load");
    };
    match &machine.privileges {
        Ok(held) if held.require(kernel.attach_by()).is_ok() => {
            let detail = format!("the kernel refuses, although the tool holds the capabilities: {reason}");
            Check::fail(NAME, detail, held.forbidder().way_out())
        }
        _ => Check::skip(NAME, format!("cannot be tried without the capabilities below: {reason}")),
    }
}

fn uprobe_multi(machine: &Machine) -> Check {
    const NAME: &str = "uprobe_multi";
    const WAY_OUT: &str = "use Linux 6.12 or later when attaching to thousands of sites";
    let kernel = &machine.kernel;
    let is_used = match &machine.attach {
        Ok(costs) => costs.form() == Form::Multi,
        Err(_) => kernel.has_uprobe_multi_pid(),
    };
    match (kernel.has_uprobe_multi(), is_used) {
        (true, true) => Check::pass(NAME, "one link for many probe sites, by process"),
        (true, false) => Check::warn(
            NAME,
            "present, but it takes a PID for a thread id (before Linux 6.10): one link per probe site is \
             used, which attaches and detaches more slowly",
            WAY_OUT,
        ),
        (false, _) => Check::warn(
            NAME,
            "absent: one link per probe site is used, which attaches and detaches more slowly",
            WAY_OUT,
        ),
    }
}

fn children(machine: &Machine) -> Check {
    const NAME: &str = "children";
    match &machine.task_offsets {
        Ok(_) => Check::pass(NAME, "covered from their start: the kernel announces them"),
        Err(error) => Check::warn(
            NAME,
            format!(
                "covered late: the tool polls for them every {}, and misses the calls that they make before",
                Nanos::from(LOOK_FOR_PROCESSES)
            ),
            error.to_string(),
        ),
    }
}
