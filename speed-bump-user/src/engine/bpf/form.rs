//! In which form the programs are loaded and attached: what differs from kernel to kernel.

use speed_bump_abi::Policy;

use crate::{kernel::KernelFacts, sys::bpf::UprobeAttachType, units::Nanos};

/// The form of the programs for uprobes, and of what they hang on. The later ones are for older kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// One link for all sites of a file (kernel 6.6; bound to a process since 6.10).
    Multi,
    /// A perf event and a link for each site (5.17, for `bpf_loop`).
    Single,
    /// The same; the programs spin no longer than [`Form::longest_spin`] (5.15, for the cookies).
    Bounded,
    /// The same, with a copy of the program for each site, as it cannot ask where it was hit; and no counter
    /// of theirs is for all processors (5.8, for the ring buffer).
    Copied,
}

impl Form {
    /// The best form of those with a perf event for each site. For [`Form::Multi`] the kernel says too
    /// little: it is tried.
    pub fn single(kernel: &KernelFacts) -> Self {
        match (kernel.has_cookies(), kernel.has_bpf_loop()) {
            (true, true) => Self::Single,
            (true, false) => Self::Bounded,
            (false, _) => Self::Copied,
        }
    }

    /// What the kernel wants to know when a program is loaded.
    pub fn attach_type(self) -> UprobeAttachType {
        match self {
            Self::Multi => UprobeAttachType::Multi,
            Self::Single | Self::Bounded | Self::Copied => UprobeAttachType::PerfEvent,
        }
    }

    /// The longest delay that the programs spin; `None`: any.
    pub fn longest_spin(self) -> Option<Nanos> {
        (self >= Self::Bounded).then_some(Nanos(Policy::PROGRAMS_SHARE_NS))
    }

    /// Whether every n-th call can be told: by an addition that also fetches (kernel 5.12).
    pub fn counts_for_frequency(self) -> bool {
        self != Self::Copied
    }

    /// Whether Python functions can be told by other means than the helper's.
    pub fn has_python_programs(self) -> bool {
        self <= Self::Single
    }
}
