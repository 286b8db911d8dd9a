//! Checks of signals to the helper, of processor breakpoints, and of how this kernel handles the cheapest
//! probe sites.

use super::{Check, machine::Machine};
use crate::{
    kernel::KernelVersion,
    probe::{cost::CostTable, site::SiteKind},
};

/// All checks of this file.
pub(super) fn checks(machine: &Machine) -> [Check; 3] {
    [signal(machine), breakpoints(machine), five_byte_nops(machine)]
}

fn signal(machine: &Machine) -> Check {
    const NAME: &str = "engine signal";
    const WAY_OUT: &str = "use --engine bpf, which delays everything; but nothing else runs on the \
                           processor during long delays";
    match &machine.signals {
        None => Check::skip(NAME, "not tried, since nothing can be attached"),
        Some(Ok(())) => Check::pass(NAME, "tried: long delays can be spun in the process, by the helper"),
        Some(Err(error)) => Check::warn(NAME, error.to_string(), WAY_OUT),
    }
}

fn breakpoints(machine: &Machine) -> Check {
    const NAME: &str = "processor breakpoints";
    match &machine.breakpoints {
        Ok(()) => Check::pass(
            NAME,
            "`run` stops programs at their first instruction, and the tool can stop threads when they return \
             from native code",
        ),
        Err(why) => Check::warn(
            NAME,
            "none can be set: `run` covers programs a little late, and the tool can stop threads in long \
             native calls less often",
            why.to_string(),
        ),
    }
}

/// From here on the kernel rewrites probed 5-byte nops.
const REWRITES_NOPS: KernelVersion = KernelVersion::new(6, 18);

fn five_byte_nops(machine: &Machine) -> Check {
    let survives = |costs: &CostTable| costs.survives_forks(SiteKind::Nop5);
    let detail = match machine.attach.as_ref().map(survives) {
        _ if machine.kernel.version < REWRITES_NOPS => "a probe on one costs a trap, as on most instructions",
        Ok(true) => "tried: forked children survive probes on them, which may be cheaper than a trap",
        Ok(false) => "tried: forked children die of probes on them, so the tool puts none there",
        Err(_) => "not tried, since nothing can be attached",
    };
    Check::pass("5-byte nops", detail)
}
