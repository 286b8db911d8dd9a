//! The form in which we load and attach the programs. The kernel decides which form we use.

use speed_bump_abi::Policy;

use serde::{Deserialize, Serialize};

use crate::{engine::Dose, kernel::KernelFacts, sys::bpf::UprobeAttachType, units::Nanos};

/// The form of the uprobe programs and of their links. Later variants are for older kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// One link for all sites of a file (kernel 6.6; bound to a process since 6.10).
    Multi,
    /// A perf event and a link for each site (5.17, for `bpf_loop`).
    Single,
    /// Like `Single`, but the programs spin at most [`Form::longest_spin`] (5.15, for the cookies).
    Bounded,
    /// Like `Bounded`, but with a copy of the program for each site, because a program cannot ask at which
    /// site it was hit. All counters are per processor (5.8, for the ring buffer).
    Copied,
}

impl Form {
    /// The best form with a perf event for each site. We can only find out whether [`Form::Multi`] works by
    /// trying it.
    pub fn single(kernel: &KernelFacts) -> Self {
        match (kernel.has_cookies(), kernel.has_bpf_loop()) {
            (true, true) => Self::Single,
            (true, false) => Self::Bounded,
            (false, _) => Self::Copied,
        }
    }

    /// The best form of all, if the kernel does what its version promises.
    pub fn best(kernel: &KernelFacts) -> Self {
        if kernel.has_uprobe_multi_pid() { Self::Multi } else { Self::single(kernel) }
    }

    /// The attach type for loading a program.
    pub fn attach_type(self) -> UprobeAttachType {
        match self {
            Self::Multi => UprobeAttachType::Multi,
            Self::Single | Self::Bounded | Self::Copied => UprobeAttachType::PerfEvent,
        }
    }

    /// The longest delay that the programs spin; `None` if they spin any delay.
    pub fn longest_spin(self) -> Option<Nanos> {
        (self >= Self::Bounded).then_some(Nanos(Policy::PROGRAMS_SHARE_NS))
    }

    /// Whether the programs can add to a shared counter and get the old value in one operation (kernel 5.12).
    /// The programs need that to delay every n-th call.
    pub fn tells_what_comes_next(self) -> bool {
        self != Self::Copied
    }

    /// Whether the programs can time native calls: only the forms without a longest delay can.
    pub fn times_calls(self) -> bool {
        self.longest_spin().is_none()
    }

    /// Whether the kernel may accept programs that sleep (6.0; with all of their maps: 6.1). We only know
    /// after loading the programs.
    pub fn may_sleep(self) -> bool {
        self == Self::Multi
    }

    /// Whether we can cover Python functions without the helper.
    pub fn has_python_programs(self) -> bool {
        self <= Self::Single
    }

    /// Why the kernel is too old for this dose; `None` if it is not. `is_signalled` says whether the helper
    /// spins the delay.
    pub fn lack(self, Dose { delay, frequency }: Dose, is_signalled: bool) -> Option<String> {
        if frequency > 1 && !self.tells_what_comes_next() {
            return Some(
                "this kernel does not allow frequency=: use frequency=1, or Linux 5.15 or later".to_owned(),
            );
        }
        let longest = self.longest_spin()?;
        (delay > longest && !is_signalled).then(|| {
            format!(
                "a delay of {delay} cannot be spun in this kernel, which allows at most {longest}: use \
                 `--engine signal`, which spins it in the process, or Linux 5.17 or later"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Dose = dose(25_000, 1);
    const LONG: Dose = dose(25_001, 1);

    const fn dose(ns: u64, frequency: u64) -> Dose {
        Dose { delay: Nanos(ns), frequency }
    }

    #[test]
    fn a_kernel_with_everything_does_everything() {
        for form in [Form::Multi, Form::Single] {
            assert_eq!(form.lack(dose(Nanos::MAX_DELAY.0, 1000), false), None);
        }
    }

    #[test]
    fn without_bpf_loop_long_delays_need_the_helper() {
        for form in [Form::Bounded, Form::Copied] {
            assert_eq!(form.lack(SHORT, false), None);
            assert_eq!(form.lack(LONG, true), None);
            let why = form.lack(LONG, false).unwrap_or_default();
            assert!(
                why.contains("25.001us") && why.contains("--engine signal") && why.contains("5.17"),
                "{why}"
            );
        }
    }

    #[test]
    fn before_cookies_every_call_counts() {
        assert_eq!(Form::Bounded.lack(dose(25_000, 2), false), None);
        assert_eq!(Form::Copied.lack(SHORT, false), None);
        assert!(Form::Copied.lack(dose(25_000, 2), false).is_some_and(|why| why.contains("5.15")));
    }
}
