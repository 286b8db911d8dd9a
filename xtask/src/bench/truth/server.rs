//! Servers whose function is really slower, or delayed: in C, and in Python with threads and with asyncio.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use speed_bump_testing::{
    Fixture, Service, places,
    pythons::{self, Form},
};
use tempfile::TempDir;

use super::{Cell, Options, Pair, Session, load::Client, words::Words};

const CLIENTS: [usize; 3] = [1, 2, 8];
const DELAYS_US: [u64; 4] = [20, 100, 500, 1000];
/// The duration of a request without slowing, in us.
const OWN_US: u64 = 20;
/// The versions of Python that we measure, the first one that is on this machine: new ones, in which the
/// helper needs no trap, and which most machines have.
const PYTHON: [(u8, u8); 3] = [(3, 12), (3, 13), (3, 11)];
/// Time from a change to the slice in which we measure it.
const SETTLE: Duration = Duration::from_millis(20);

/// A program, not yet started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    C,
    ThreadPool,
    Asyncio,
}

impl Kind {
    const ALL: [Self; 3] = [Self::C, Self::ThreadPool, Self::Asyncio];

    fn name(self) -> &'static str {
        match self {
            Self::C => "C server",
            Self::ThreadPool => "Python thread pool",
            Self::Asyncio => "Python asyncio",
        }
    }

    fn engines(self) -> &'static [&'static str] {
        match self {
            Self::C => &["bpf", "signal"],
            Self::ThreadPool | Self::Asyncio => &["helper", "bpf", "signal"],
        }
    }

    /// Selects the function that the tool slows, and nothing else.
    fn target(self) -> &'static str {
        match self {
            Self::C => "native:*/program:probed",
            Self::ThreadPool | Self::Asyncio => "py:*/servers.py:probed",
        }
    }
}

/// Measures all of them.
pub(super) fn run(tool: &Path, options: &Options) -> Result<()> {
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| kind.name().contains(&options.only)).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    let client = Client::compile(&sources())?;
    for kind in kinds {
        for engine in options.engines(kind.engines()) {
            Server::start(kind)?.measure(tool, engine, options, &client)?;
        }
    }
    Ok(())
}

/// Where the programs' sources lie.
pub(super) fn sources() -> PathBuf {
    places::root().join("xtask/src/bench/truth")
}

/// A running server. Dropping it ends it.
struct Server {
    kind: Kind,
    service: Service,
    words: Words,
    folder: TempDir,
    /// The files that were compiled for it.
    _fixture: Fixture,
}

impl Server {
    fn start(kind: Kind) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("speed-bump-").tempdir()?;
        let file = folder.path().join("words");
        let words = Words::create(&file)?;
        let fixture = match kind {
            Kind::C => Fixture::compile(&sources().join("server.c"), &["-O2", "-pthread"])?,
            Kind::ThreadPool | Kind::Asyncio => {
                Fixture::compile(&sources().join("slow.c"), &["-O2", "-shared", "-fPIC"])?
            }
        };
        let socket = folder.path().join("socket");
        let mut command = match kind {
            Kind::C => Command::new(fixture.program()),
            Kind::ThreadPool | Kind::Asyncio => {
                let mut command = python()?.command(&sources().join("servers.py"));
                command.arg(if kind == Kind::Asyncio { "asyncio" } else { "pool" });
                command
            }
        };
        command.arg(&socket).arg(&file);
        if kind != Kind::C {
            command.arg(fixture.program());
        }
        let service = Service::start(&mut command)?;
        Ok(Self { kind, service, words, folder, _fixture: fixture })
    }

    fn measure(self, tool: &Path, engine: &str, options: &Options, client: &Client) -> Result<()> {
        let socket = self.folder.path().join("socket");
        self.words.set_own_turns(client.turns(OWN_US)?)?;
        let mut session = Session::start(tool, self.service.pid(), self.kind.target(), engine)?;
        for clients in options.clients(&CLIENTS) {
            for delay_us in options.delays_us(&DELAYS_US) {
                self.words.set_turns(0)?;
                self.words.set_real(true)?;
                let turns = client.turns(delay_us)?;
                session.set(delay_us)?;
                let mut load = client.start(&socket, clients)?;
                thread::sleep(SETTLE);
                let as_it_is = load.slice(options.slice_ms)?;
                self.words.set_turns(turns)?;
                let mut slice = |is_real| {
                    self.words.set_real(is_real)?;
                    thread::sleep(SETTLE);
                    load.slice(options.slice_ms)
                };
                let pairs = (0..options.rounds.max(1)).map(|round| -> Result<Pair> {
                    // They take turns to go first, so that a drift affects both.
                    if round % 2 == 0 {
                        Ok(Pair { real: slice(true)?, injected: slice(false)? })
                    } else {
                        let injected = slice(false)?;
                        Ok(Pair { real: slice(true)?, injected })
                    }
                });
                let pairs = pairs.collect::<Result<Vec<_>>>()?;
                Cell { program: self.kind.name(), engine, clients, delay_us }.print(as_it_is, &pairs);
            }
        }
        session.stop().map(drop)
    }
}

/// The Python that the servers run on.
fn python() -> Result<&'static pythons::PythonBuild> {
    let all = pythons::find()?;
    let of = |minor| all.iter().find(|python| python.minor() == minor && python.form == Form::Direct);
    PYTHON.into_iter().find_map(of).context("no Python 3.11 to 3.13 on this machine")
}
