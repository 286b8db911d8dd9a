//! The programs whose functions are slowed, and their peers.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};
use speed_bump_testing::{Fixture, PythonBuild, Service, places};

use super::{Peer, empty_uprobe::EmptyUprobe, frida::Frida, ours::Ours, sys_monitoring::SysMonitoring};
use crate::bench::accuracy::site;

const PYTHON: &str = "py:*/caller.py:called";
const NATIVE: &str = "native:*/program:called";

/// `sys.monitoring` is there from this version on.
const MONITORING: (u8, u8) = (3, 12);

/// A running program.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) service: Service,
    pub(super) peers: Vec<Box<dyn Peer>>,
    /// The program's file, if we compiled it.
    _fixture: Option<Fixture>,
}

impl Subject {
    /// A function of this Python. Adds what cannot be measured to `missing`.
    pub(super) fn python(tool: &Path, python: &PythonBuild, missing: &mut Vec<String>) -> Result<Self> {
        let mut peers: Vec<Box<dyn Peer>> = vec![
            Box::new(Ours::new(tool, "helper", "helper", PYTHON)),
            Box::new(Ours::new(tool, "bpf, through the stub", "bpf", PYTHON)),
        ];
        let mut command = python.command(&places::root().join("xtask/src/bench/peers/caller.py"));
        if python.minor() >= MONITORING {
            match SysMonitoring::compile(python) {
                Ok(extension) => {
                    command.arg(extension.folder());
                    peers.push(Box::new(extension));
                }
                Err(error) => missing.push(format!("{python}: sys.monitoring in C: {error:#}")),
            }
        }
        let service = Service::start(&mut command).with_context(|| format!("cannot start {python}"))?;
        Ok(Self { name: python.to_string(), service, peers, _fixture: None })
    }

    /// A native function.
    pub(super) fn native(tool: &Path, missing: &mut Vec<String>) -> Result<Self> {
        let source = places::root().join("xtask/src/bench/peers/caller.c");
        // Not position-independent, so that addresses in the file and in the process are the same.
        let fixture = Fixture::compile(&source, &["-O1", "-fno-omit-frame-pointer", "-no-pie"])?;
        let service = Service::start(&mut Command::new(fixture.program()))?;
        let site = site::list(tool, service.pid(), &format!("{NATIVE}\n"), &[], 1)?;
        let site = site.first().context("the function has no site")?;
        let mut peers: Vec<Box<dyn Peer>> =
            vec![Box::new(Ours::new(tool, "bpf", "bpf", NATIVE)), Box::new(EmptyUprobe::at(&site.place)?)];
        match Frida::fetched() {
            Ok(frida) => peers.push(Box::new(frida)),
            Err(error) => missing.push(format!("Frida: {error:#}")),
        }
        let name = format!("native function, site {}", site.kind);
        Ok(Self { name, service, peers, _fixture: Some(fixture) })
    }
}
