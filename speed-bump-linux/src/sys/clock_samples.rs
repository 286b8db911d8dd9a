//! Samples which thread runs on each processor, and at which instruction. The kernel's clock of each
//! processor triggers the samples (`PERF_COUNT_SW_CPU_CLOCK`, include/uapi/linux/perf_event.h).

use std::{fmt, io};

use perf_event::{Builder, SampleFlag, Sampler, events::Software};

use crate::units::{Pid, VirtualAddress};

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// The number of the register that points to the current instruction (arch/*/include/uapi/asm/perf_regs.h).
#[cfg(target_arch = "x86_64")]
const PLACE: u32 = 8;
#[cfg(target_arch = "aarch64")]
const PLACE: u32 = 32;
/// Bytes of one processor's buffer, enough for three seconds of samples.
const BUFFER: usize = 32 << 10;

/// The thread that a processor ran at a tick of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// PID of the thread's process (`PERF_SAMPLE_TID`).
    pub process: Pid,
    /// TID of the thread (`PERF_SAMPLE_TID`).
    pub thread: Pid,
    /// The thread's instruction in the program. If the thread is in a system call, this is the instruction
    /// that made the call.
    pub place: VirtualAddress,
}

/// The clocks of all processors. A processor's clock ticks while a thread runs there, and not while the
/// processor is idle.
pub struct ProcessorClocks {
    samplers: Vec<Sampler>,
}

impl fmt::Debug for ProcessorClocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorClocks").field("processors", &self.samplers.len()).finish()
    }
}

impl ProcessorClocks {
    /// Starts the clocks, at `rate` ticks per second.
    ///
    /// # Errors
    /// The error of `perf_event_open`: `EACCES` without `CAP_PERFMON`, and another error if the kernel has no
    /// such event.
    pub fn start(rate: u64) -> io::Result<Self> {
        let mut samplers = Vec::new();
        let configured = configured_processors();
        for processor in 0..configured {
            match Self::one(processor, rate) {
                Ok(sampler) => samplers.push(sampler),
                // The processor is offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { samplers })
    }

    fn one(processor: usize, rate: u64) -> io::Result<Sampler> {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder.any_pid().one_cpu(processor).sample_frequency(rate).exclude_idle(true);
        builder.include_kernel().sample(SampleFlag::TID | SampleFlag::REGS_USER).enabled(true);
        builder.sample_regs_user(1 << PLACE);
        builder.build()?.sampled(BUFFER)
    }

    /// Passes on all samples since the last call, except samples of kernel threads.
    pub fn read(&mut self, mut take: impl FnMut(ClockSample)) {
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                if record.ty() == SAMPLE
                    && let Some(sample) = sample(&record.to_contiguous())
                {
                    take(sample);
                }
            }
        }
    }
}

/// The number of processors that may come online.
fn configured_processors() -> usize {
    // SAFETY: the call takes a number and returns a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1)
}

/// Reads the process, the thread, `PERF_SAMPLE_REGS_ABI_*`, and one register if `PERF_SAMPLE_REGS_ABI_*` is
/// not 0.
fn sample(data: &[u8]) -> Option<ClockSample> {
    let word = |at: usize| data.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let number = |at: usize| Pid::new(data.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes)?);
    (word(8)? != 0).then_some(())?;
    Some(ClockSample { process: number(0)?, thread: number(4)?, place: VirtualAddress(word(16)?) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn samples_without_a_program_are_none() {
        let mut data = [0; 24];
        data[0] = 5;
        data[4] = 6;
        assert_eq!(sample(&data), None);
        data[8] = 2;
        data[16] = 9;
        let (process, thread) = (Pid::new(5).unwrap(), Pid::new(6).unwrap());
        assert_eq!(sample(&data), Some(ClockSample { process, thread, place: VirtualAddress(9) }));
        for length in 0..24 {
            assert_eq!(sample(&data[..length]), None);
        }
    }
}
