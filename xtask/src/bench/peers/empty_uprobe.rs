//! A probe at the same site as the tool's, with a BPF program that does nothing: no tool that works by a
//! probe can cost less.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};
use speed_bump_testing::{Fixture, Service, places};

use super::{Peer, dose::Dose};

/// A small program attaches the probe. The probe is gone when the program ends.
pub(super) struct EmptyUprobe {
    attacher: Fixture,
    file: PathBuf,
    /// In the file, in hexadecimal digits.
    offset: String,
    running: Option<Service>,
}

impl EmptyUprobe {
    /// At a place as the tool writes it, `FILE+0xOFFSET`.
    pub(super) fn at(place: &str) -> Result<Self> {
        let (file, offset) = place.rsplit_once("+0x").with_context(|| format!("no place: {place}"))?;
        let source = places::root().join("xtask/src/bench/peers/empty_uprobe.c");
        let attacher = Fixture::compile(&source, &["-O1"])?;
        Ok(Self { attacher, file: file.into(), offset: offset.to_owned(), running: None })
    }
}

impl Peer for EmptyUprobe {
    fn name(&self) -> String {
        "empty uprobe".to_owned()
    }

    fn begin(&mut self, service: &mut Service) -> Result<()> {
        let mut command = Command::new(self.attacher.program());
        command.arg(&self.file).args([&self.offset, &service.pid().to_string()]);
        self.running = Some(Service::start(&mut command)?);
        Ok(())
    }

    fn set(&mut self, _: &mut Service, dose: Dose) -> Result<bool> {
        Ok(dose == Dose::Each(0))
    }

    fn end(&mut self, _: &mut Service) -> Result<()> {
        self.running = None;
        Ok(())
    }
}
