//! Which thread has each processor, and where in its program it is, by the kernel's clock of processors
//! (`PERF_COUNT_SW_CPU_CLOCK`, include/uapi/linux/perf_event.h).

use std::{fmt, io};

use perf_event::{Builder, SampleFlag, Sampler, events::Software};

use crate::units::{Pid, VirtualAddress};

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// The number of the register that says where a thread is (arch/*/include/uapi/asm/perf_regs.h).
#[cfg(target_arch = "x86_64")]
const PLACE: u32 = 8;
#[cfg(target_arch = "aarch64")]
const PLACE: u32 = 32;
/// Bytes of a processor's buffer: three seconds of samples.
const BUFFER: usize = 32 << 10;

/// A thread that had a processor when the clock of that ticked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// PID of its process (`PERF_SAMPLE_TID`).
    pub process: Pid,
    /// Its TID (`PERF_SAMPLE_TID`).
    pub thread: Pid,
    /// Where it was in its program, or where that had called the kernel.
    pub place: VirtualAddress,
}

/// The clocks of all processors. They tick for threads, not where a processor is idle.
pub struct ProcessorClocks {
    samplers: Vec<Sampler>,
}

impl fmt::Debug for ProcessorClocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorClocks").field("processors", &self.samplers.len()).finish()
    }
}

impl ProcessorClocks {
    /// Starts them, so many ticks a second.
    ///
    /// # Errors
    /// What `perf_event_open` returns: `EACCES` without `CAP_PERFMON`, others where there is no such event.
    pub fn start(rate: u64) -> io::Result<Self> {
        let mut samplers = Vec::new();
        let configured = configured_processors();
        for processor in 0..configured {
            match Self::one(processor, rate) {
                Ok(sampler) => samplers.push(sampler),
                // It is offline.
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

    /// What there was since it was last asked. Threads of the kernel are not in it.
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

/// Processors that may come online.
fn configured_processors() -> usize {
    // SAFETY: it takes a number and returns one.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1)
}

/// Process, thread, `PERF_SAMPLE_REGS_ABI_*`, and the one register where that is not 0.
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
