//! Frida's Interceptor, with a function in C (CModule) that spins.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use speed_bump_testing::{
    PythonBuild, Service, places,
    pythons::{self, Origin},
};

use super::{Peer, dose::Dose};
use crate::packages;

/// A Python with Frida in it attaches to the program.
pub(super) struct Frida {
    python: &'static PythonBuild,
    packages: PathBuf,
    running: Option<Service>,
    version: String,
}

impl Frida {
    /// Fetches it from PyPI, unless it is there.
    pub(super) fn fetched() -> Result<Self> {
        let Some(python) = pythons::find()?.iter().find(|python| python.origin == Origin::System) else {
            bail!("there is no /usr/bin/python3 to run Frida in");
        };
        let packages = packages::ensure_one("frida", python.minor())?;
        Ok(Self { python, packages, running: None, version: String::new() })
    }

    fn running(&mut self) -> Result<&mut Service> {
        self.running.as_mut().context("Frida does not run")
    }
}

impl Peer for Frida {
    fn name(&self) -> String {
        format!("Frida {}, CModule", self.version)
    }

    fn begin(&mut self, service: &mut Service) -> Result<()> {
        let address = service.ready()["called"].as_str().context("the program did not say where it is")?;
        let script = places::root().join("xtask/src/bench/peers/frida_peer.py");
        let mut command = self.python.command(&script);
        command.args([&service.pid().to_string(), address]).env("PYTHONPATH", &self.packages);
        let running = Service::start(&mut command).context("cannot attach Frida")?;
        self.version = running.ready()["frida"].as_str().unwrap_or_default().to_owned();
        self.running = Some(running);
        Ok(())
    }

    fn set(&mut self, _: &mut Service, dose: Dose) -> Result<bool> {
        let (delay_ns, frequency) = dose.delay_and_frequency();
        let closed = u8::from(dose == Dose::Closed);
        self.running()?.ask(&format!("set {delay_ns} {frequency} {closed}"))?;
        Ok(true)
    }

    fn end(&mut self, _: &mut Service) -> Result<()> {
        let answer = self.running()?.ask("off")?;
        self.running = None;
        let calls = answer.iter().find_map(|event| event["calls"].as_u64());
        ensure!(calls.context("Frida's module counted nothing")? > 0, "no call came to Frida's module");
        Ok(())
    }
}
