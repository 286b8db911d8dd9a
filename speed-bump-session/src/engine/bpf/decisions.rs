//! The decisions of the BPF programs, for `-vv`. A separate object logs them (`aya-log`). Without `-vv` we
//! load the other object, which has no code for this.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use aya::{
    Ebpf,
    maps::{MapData, MapError, PerCpuArray},
};
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};
use speed_bump_abi::{NotDelayed, RateLimit, maps};

use super::EngineError;

/// The log target of decisions, for filters.
pub const TARGET: &str = "speed_bump_user::bpf";

/// Whether the user wants to see decisions.
pub(super) fn are_wanted() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
}

/// A decision: why a call was not delayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The index of the function, or another value that identifies it in the process.
    pub function: u32,
    /// The rest of the line.
    pub text: String,
}

impl Decision {
    /// Parses a line that a BPF program has logged.
    fn read(line: &str) -> Option<Self> {
        let (function, text) = line.split_once(' ')?;
        Some(Self { function: function.parse().ok()?, text: text.to_owned() })
    }
}

/// Reads the decisions of the programs.
pub struct Decisions {
    logger: EbpfLogger<Lines>,
    lines: Lines,
    limits: PerCpuArray<MapData, RateLimit>,
}

impl Decisions {
    /// Opens the log of an object; `None` if the object does not log.
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Option<Self>, EngineError> {
        let Some(limits) = ebpf.take_map(maps::LOG_LIMITS) else { return Ok(None) };
        let lines = Lines::default();
        let logger = EbpfLogger::init_with_logger(ebpf, lines.clone())
            .map_err(|_| EngineError::NoMap { name: maps::LOGS })?;
        Ok(Some(Self { logger, lines, limits: limits.try_into()? }))
    }

    /// The decisions since the last call.
    pub fn take(&mut self) -> Vec<Decision> {
        self.logger.flush();
        let mut lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *lines).iter().filter_map(|line| Decision::read(line)).collect()
    }

    /// How many decisions the programs have dropped so far. The programs log a few decisions of each kind per
    /// second.
    ///
    /// # Errors
    /// The error of the map look-up.
    pub fn missed(&self) -> Result<u64, MapError> {
        (0..NotDelayed::COUNT).try_fold(0, |sum: u64, kind| {
            let limits = self.limits.get(&kind, 0)?;
            Ok(limits.iter().fold(sum, |sum, limit| sum.saturating_add(limit.missed)))
        })
    }
}

/// The lines that `aya-log` has read from the programs.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_number_and_a_text() {
        let read = Decision::read("7 in process 12 not delayed: outside the window");
        let text = "in process 12 not delayed: outside the window".to_owned();
        assert_eq!(read, Some(Decision { function: 7, text }));
        for line in ["", "7", "x y", "-1 y", "99999999999 y"] {
            assert_eq!(Decision::read(line), None, "{line}");
        }
    }
}
