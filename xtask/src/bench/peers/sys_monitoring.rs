//! A callback in C through `sys.monitoring`, as in profilers that slow Python functions from inside.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, bail, ensure};
use speed_bump_testing::{PythonBuild, Service, places};
use tempfile::TempDir;

use super::{Peer, dose::Dose};
use crate::shell;

/// Later than any time here.
const NEVER_NS: u64 = 1 << 50;

/// The extension, in a folder from which the measured program imports it.
pub(super) struct SysMonitoring {
    folder: TempDir,
    is_on: bool,
}

impl SysMonitoring {
    /// Compiles it with the headers of this Python.
    pub(super) fn compile(python: &PythonBuild) -> Result<Self> {
        let mut ask = python.interpreter();
        ask.args(["-c", "import sysconfig; print(sysconfig.get_path('include'))"]);
        let headers = shell::output(&mut ask)?;
        let headers = Path::new(headers.trim());
        if !headers.join("Python.h").is_file() {
            bail!("there are no headers in {}", headers.display());
        }
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let source = places::root().join("xtask/src/bench/peers/sys_monitoring_peer.c");
        let library = folder.path().join("sys_monitoring_peer.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-shared", "-fPIC", "-I"]).arg(headers).arg(source).arg("-o").arg(library);
        shell::run(&mut gcc)?;
        Ok(Self { folder, is_on: false })
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Peer for SysMonitoring {
    fn name(&self) -> String {
        "sys.monitoring in C".to_owned()
    }

    fn begin(&mut self, _: &mut Service) -> Result<()> {
        Ok(())
    }

    fn set(&mut self, service: &mut Service, dose: Dose) -> Result<bool> {
        if self.is_on {
            self.end(service)?;
        }
        let (delay_ns, frequency) = dose.delay_and_frequency();
        let opens_after_ns = if dose == Dose::Closed { NEVER_NS } else { 0 };
        service.ask(&format!("peer on {delay_ns} {frequency} {opens_after_ns}"))?;
        self.is_on = true;
        Ok(true)
    }

    fn end(&mut self, service: &mut Service) -> Result<()> {
        self.is_on = false;
        let calls = service.ask("peer off")?.iter().find_map(|event| event["calls"].as_u64());
        ensure!(calls.context("the program counted nothing")? > 0, "no call matched");
        Ok(())
    }
}
