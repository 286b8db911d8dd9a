//! One session's targets in the module.

use std::fs;

use super::{
    FileState, KmodError, Listed, Listing, Module, Record, Records, Refusal, TARGETS, TargetName,
    records::Lock,
    release::{Released, recover_locked, release},
    upstream::check_listing,
};
use crate::units::{Nanos, Pid};

/// The module's counts for a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of the process and its descendants.
    pub hits: u64,
    /// The time that the module has spun.
    pub injected: Nanos,
    /// The number of delays that ended early.
    pub interrupted: u64,
}

/// The final state of a session's targets.
#[derive(Debug, Default)]
pub struct Left {
    /// The module's counts, by position of the target; `None` if another user has removed the target.
    pub counts: Vec<Option<Counts>>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// A session's targets in the module. Dropping this removes them.
#[derive(Debug)]
pub struct KmodEngine {
    module: Module,
    records: Records,
    process: Pid,
    /// The record that we last wrote.
    record: Record,
    /// The added targets, in the order of their positions.
    names: Vec<TargetName>,
    has_left: bool,
}

impl KmodEngine {
    /// Adds targets for a process and its descendants, with a delay of 0, and enables the module. Before
    /// that, removes targets that killed tools have left, and reports these to `tell`.
    ///
    /// # Errors
    /// The session cannot begin. Nothing of the session is left in the module.
    pub fn start(
        module: Module,
        records: Records,
        process: Pid,
        wanted: &[TargetName],
        tell: &mut dyn FnMut(String),
    ) -> Result<Self, KmodError> {
        let lock = records.lock()?;
        recover_locked(&module, &records, &lock)?.into_iter().for_each(&mut *tell);
        let enabled_before = module.is_enabled()?;
        let listing = module.listing()?;
        if let Some(other) = listing.targets.first().filter(|_| !enabled_before) {
            return Err(KmodError::OthersWait {
                others: listing.targets.len(),
                first: other.name.clone(),
                file: module.file("enabled"),
            });
        }
        let record = Record::own(process, enabled_before)
            .map_err(|error| KmodError::Record { file: super::RECORDS.into(), error })?;
        records.write(&record)?;
        let mut engine = Self { module, records, process, record, names: Vec::new(), has_left: false };
        let set = engine
            .add_locked(wanted, &listing, &lock)
            .and_then(|()| if enabled_before { Ok(()) } else { engine.module.enable(true) });
        if let Err(error) = set {
            if let Err(another) = engine.leave_locked(&lock) {
                tell(format!("the kernel module may keep some of our targets until the next run: {another}"));
            }
            return Err(error);
        }
        Ok(engine)
    }

    /// Adds more targets, with a delay of 0.
    ///
    /// # Errors
    /// The module refused a target. The targets before that one are in the module.
    pub fn add(&mut self, wanted: &[TargetName]) -> Result<(), KmodError> {
        let lock = self.records.lock()?;
        let listing = self.module.listing()?;
        self.add_locked(wanted, &listing, &lock)
    }

    fn add_locked(
        &mut self,
        wanted: &[TargetName],
        listing: &Listing,
        _lock: &Lock,
    ) -> Result<(), KmodError> {
        for name in wanted {
            if let Some(other) = listing.find(name.as_str()) {
                return Err(self.taken(name, other));
            }
        }
        if self.module.is_upstream() {
            let names: Vec<_> = wanted.iter().collect();
            check_listing(listing, &self.names, &names)?;
        }
        let others = listing.targets.len();
        if others + wanted.len() > TARGETS {
            let own = self.names.len();
            return Err(KmodError::TooMany {
                wanted: wanted.len() + own,
                others: others.saturating_sub(own),
            });
        }
        // We write the record first, because someone may kill the tool at any moment.
        self.read_record();
        self.record.targets.extend(wanted.iter().cloned());
        self.records.write(&self.record)?;
        for name in wanted {
            self.module.add(name, Nanos(0), Some(self.process)).map_err(|error| match error {
                KmodError::Refused { why: Refusal::NoProcess, .. } => KmodError::Gone { pid: self.process },
                error => error,
            })?;
            self.names.push(name.clone());
        }
        Ok(())
    }

    /// Reads the record again. Another tool may have ended, and may have left it to us to disable the module.
    fn read_record(&mut self) {
        if let Some(record) = self.records.for_tool(self.record.tool) {
            self.record.enabled_before = record.enabled_before;
        }
    }

    fn taken(&self, name: &TargetName, other: &Listed) -> KmodError {
        let process =
            other.process.map_or_else(|| "all processes".to_owned(), |pid| format!("process {pid}"));
        KmodError::Taken {
            name: name.to_string(),
            terms: format!("{} for {process}", other.delay),
            file: self.module.file("targets"),
        }
    }

    /// Changes the delay of the target at a position. Ignores a position without a target.
    ///
    /// # Errors
    /// The target or the module is gone.
    pub fn set_delay(&self, position: usize, delay: Nanos) -> Result<(), KmodError> {
        self.names.get(position).map_or(Ok(()), |name| self.module.set_delay(name, delay))
    }

    /// The counts so far, by position; `None` if the target is gone.
    ///
    /// # Errors
    /// The module is gone.
    pub fn counts(&self) -> Result<Vec<Option<Counts>>, KmodError> {
        Ok(self.counts_in(&self.module.listing()?))
    }

    /// Whether the module is upstream's, which does not measure how long it spins.
    pub fn is_upstream(&self) -> bool {
        self.module.is_upstream()
    }

    /// Whether the module counts and delays.
    ///
    /// # Errors
    /// The module is gone.
    pub fn is_enabled(&self) -> Result<bool, KmodError> {
        self.module.is_enabled()
    }

    /// Removes our targets, and restores `enabled`.
    ///
    /// # Errors
    /// The module does not execute a command.
    pub fn leave(&mut self) -> Result<Left, KmodError> {
        if std::mem::replace(&mut self.has_left, true) {
            return Ok(Left::default());
        }
        match self.records.lock() {
            Ok(lock) => self.leave_locked(&lock),
            Err(error) => {
                // If this fails, `enabled` and the record stay as they are for the next run. No process stays
                // slowed down.
                for name in &self.names {
                    if let Err(error) = self.module.remove(name) {
                        tracing::debug!("{error}");
                    }
                }
                Err(error)
            }
        }
    }

    fn leave_locked(&mut self, lock: &Lock) -> Result<Left, KmodError> {
        self.has_left = true;
        self.read_record();
        let Released { last, mut warnings, .. } = release(&self.module, &self.records, &self.record, lock)?;
        let counts = self.counts_in(&last);
        for (name, counts) in self.names.iter().zip(&counts) {
            let file = last.find(name.as_str()).and_then(|listed| listed.file);
            if counts.is_none() {
                warnings.push(format!(
                    "{}: somebody else has removed it from the kernel module; its calls are not in the \
                     report",
                    self.in_words(name)
                ));
            } else if matches!(file, Some(FileState::Replaced | FileState::Modified)) {
                let path = name.path().display();
                warnings.push(format!(
                    "{path} was replaced or written to during the session: calls in what \
                                       is there now were not delayed"
                ));
            }
        }
        Ok(Left { counts, warnings })
    }

    /// The name of a target for messages. Targets of upstream's module have the numbers of our descriptors,
    /// which the user does not know.
    fn in_words(&self, name: &TargetName) -> String {
        let file = self.module.is_upstream().then(|| fs::read_link(name.path()).ok()).flatten();
        match (file, name.as_str().rsplit_once(':')) {
            (Some(file), Some((_, symbol))) => format!("{}:{symbol}", file.display()),
            _ => name.to_string(),
        }
    }

    fn counts_in(&self, listing: &Listing) -> Vec<Option<Counts>> {
        let of = |name: &TargetName| {
            let listed = listing.find(name.as_str())?;
            (listed.process == Some(self.process.get())).then_some(Counts {
                hits: listed.hits,
                injected: listed.injected,
                interrupted: listed.interrupted,
            })
        };
        self.names.iter().map(of).collect()
    }
}

impl Drop for KmodEngine {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            tracing::warn!("the kernel module may keep some of our targets until the next run: {error}");
        }
    }
}
