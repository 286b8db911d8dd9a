//! What is needed beyond the spin in the kernel: to signal the helper, to meet programs at a given
//! instruction, and what this kernel makes of the cheapest probe sites.

use super::{Check, machine::Machine};
use crate::kernel::{KernelFacts, KernelVersion, Support};

/// All of them.
pub(super) fn checks(machine: &Machine) -> [Check; 3] {
    [signal(machine), breakpoints(machine), five_byte_nops(&machine.kernel)]
}

fn signal(machine: &Machine) -> Check {
    const NAME: &str = "engine signal";
    const WAY_OUT: &str =
        "use --engine bpf, which delays everything; during long delays nothing else runs on the processor";
    if let Support::Unknown(reason) = &machine.kernel.send_signal {
        return Check::skip(NAME, format!("cannot be tried: {reason}"));
    }
    let lack = if machine.kernel.send_signal == Support::No {
        Some("the kernel has no bpf_send_signal_thread (Linux 5.5)".to_owned())
    } else if machine.kernel.initial_pid_namespace == Some(false) {
        Some("in this PID namespace the tool would take one process for another".to_owned())
    } else {
        machine.task_offsets.as_ref().err().map(ToString::to_string)
    };
    match lack {
        None => Check::pass(NAME, "long delays can be spun in the process, by the helper"),
        Some(lack) => Check::warn(NAME, lack, WAY_OUT),
    }
}

fn breakpoints(machine: &Machine) -> Check {
    const NAME: &str = "processor breakpoints";
    match &machine.breakpoints {
        Ok(()) => Check::pass(
            NAME,
            "`run` stops programs at their first instruction, and threads can be stopped when they return \
             from native code",
        ),
        Err(why) => Check::warn(
            NAME,
            format!(
                "none can be set ({why}): `run` covers programs a little late, and threads in long native \
                 calls can be stopped less often"
            ),
            "end debuggers that use them; in a virtual machine, enable debug registers",
        ),
    }
}

/// From here on the kernel rewrites probed 5-byte nops.
const REWRITES_NOPS: KernelVersion = KernelVersion::new(6, 18);

fn five_byte_nops(kernel: &KernelFacts) -> Check {
    let detail = if kernel.version < REWRITES_NOPS {
        "a probe on one costs a trap, as on most instructions"
    } else {
        "the kernel may turn a probed one into a call, which is cheaper than a trap; they are not used if \
         forked children die of that, which is tried at each start (`calibrate` shows it)"
    };
    Check::pass("5-byte nops", detail)
}
