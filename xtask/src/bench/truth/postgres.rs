//! PostgreSQL's `ExecutorRun`, slowed by its own hook or by the tool, under `pgbench -S`.
//!
//! A cluster of its own under target/, on a Unix socket. There is no pair of functions there, so the tool's
//! probe is attached only in its own slices.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use speed_bump_testing::{Fixture, places};

use super::{Cell, Options, Pair, Session, Slice, load::Client, server, words::Words};
use crate::{
    shell,
    system::{self, Need},
};

const NAME: &str = "PostgreSQL";
const CLIENTS: [usize; 2] = [1, 4];
const DELAYS_US: [u64; 2] = [100, 500];
const ENGINES: &[&str] = &["bpf", "signal"];
const TARGET: &str = "native:*/postgres:standard_ExecutorRun";

/// Debian 12's PostgreSQL.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const HEADERS: &str = "/usr/include/postgresql/15/server";
const NEEDS: [Need; 3] = [
    Need {
        program: "/usr/lib/postgresql/15/bin/postgres",
        package: "postgresql-15",
        purpose: "the server that is slowed",
    },
    Need { program: "/usr/lib/postgresql/15/bin/pgbench", package: "postgresql-15", purpose: "its load" },
    Need {
        program: "/usr/include/postgresql/15/server/postgres.h",
        package: "postgresql-server-dev-15",
        purpose: "to compile the hook that really slows it",
    },
];

/// PostgreSQL refuses to run as root; the package has this user for it.
const USER: &str = "postgres";
/// How long the server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time from a change to the slice in which we measure it: probes come and go.
const SETTLE: Duration = Duration::from_millis(60);
/// How much longer than its slices pgbench runs: it connects first, and neighbours slow everything.
const SPARE_S: u64 = 5;
/// The most that attaching and detaching may take for a slice.
const CHANGE: Duration = Duration::from_millis(250);

/// Measures it.
pub(super) fn run(tool: &Path, options: &Options) -> Result<()> {
    if !NAME.contains(&options.only) {
        return Ok(());
    }
    system::ensure(&NEEDS)?;
    let client = Client::compile(&server::sources())?;
    let cluster = Cluster::start()?;
    for engine in options.engines(ENGINES) {
        let mut session = Session::start(tool, cluster.pid(), TARGET, engine)?;
        session.drop_target()?;
        for clients in options.clients(&CLIENTS) {
            for delay_us in options.delays_us(&DELAYS_US) {
                let cell = Cell { program: NAME, engine, clients, delay_us };
                cluster.measure(&cell, &mut session, options, &client)?;
            }
        }
        session.stop()?;
    }
    Ok(())
}

/// A running cluster. Dropping it ends it.
struct Cluster {
    server: Child,
    folder: PathBuf,
    words: Words,
    _hook: Fixture,
}

impl Cluster {
    fn start() -> Result<Self> {
        let hook = Fixture::compile(
            &server::sources().join("hook.c"),
            &["-O2", "-shared", "-fPIC", "-isystem", HEADERS],
        )?;
        // PostgreSQL's user must be able to load it.
        fs::set_permissions(hook.folder(), fs::Permissions::from_mode(0o755))?;
        let folder = places::target().join("truth-postgres");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)?;
        shell::run(Command::new("chown").arg(USER).arg(&folder))?;
        shell::output(as_user("initdb").args(["--auth=trust", "--no-sync", "--pgdata"]).arg(&folder))?;
        let words = Words::create(&folder.join("words"))?;
        let mut command = as_user("postgres");
        command.arg("-D").arg(&folder).arg("-k").arg(&folder);
        for setting in ["listen_addresses=", "fsync=off", "autovacuum=off", "logging_collector=off"] {
            command.args(["-c", setting]);
        }
        command.arg("-c").arg(format!("shared_preload_libraries={}", hook.program().display()));
        let log = fs::File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let server = command.spawn().context("cannot start PostgreSQL")?;
        let cluster = Self { server, folder, words, _hook: hook };
        cluster.wait()?;
        shell::output(cluster.pgbench().args(["--initialize", "--quiet", "--scale=5"]))?;
        Ok(cluster)
    }

    fn pid(&self) -> i32 {
        self.server.id().cast_signed()
    }

    fn wait(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut command = Command::new(format!("{PROGRAMS}/pg_isready"));
        command.arg("--quiet").arg("--host").arg(&self.folder);
        while !command.status()?.success() {
            let log = self.folder.join("log");
            ensure!(Instant::now() < until, "PostgreSQL does not start: see {}", log.display());
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn pgbench(&self) -> Command {
        let mut command = as_user("pgbench");
        command.arg("--host").arg(&self.folder).current_dir(&self.folder).arg("postgres");
        command
    }

    fn measure(
        &self,
        cell: &Cell<'_>,
        session: &mut Session,
        options: &Options,
        client: &Client,
    ) -> Result<()> {
        self.words.set_real(true)?;
        self.words.set_turns(0)?;
        let turns = client.turns(cell.delay_us)?;
        let slice = Duration::from_millis(options.slice_ms);
        let slices = 1 + 2 * u32::try_from(options.rounds.max(1))?;
        let seconds = (slices * (slice + SETTLE + CHANGE)).as_secs() + SPARE_S;
        let clients = cell.clients.to_string();
        let mut command = self.pgbench();
        command.args(["--select-only", "--no-vacuum", "--log", "--client", &clients, "--time"]);
        command.arg(seconds.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut load = command.spawn().context("cannot start pgbench")?;
        // Meanwhile it connects, and its backends fill their caches.
        thread::sleep(Duration::from_secs(1));
        let take = || {
            thread::sleep(SETTLE);
            let from = now_us()?;
            thread::sleep(slice);
            Ok::<_, anyhow::Error>((from, now_us()?))
        };
        let as_it_is = take()?;
        let mut spans = Vec::new();
        for round in 0..options.rounds.max(1) {
            let mut injected = || {
                self.words.set_turns(0)?;
                session.add_target()?;
                session.set(cell.delay_us)?;
                let span = take()?;
                session.drop_target()?;
                Ok::<_, anyhow::Error>(span)
            };
            let real = || {
                self.words.set_turns(turns)?;
                take()
            };
            spans.push(if round % 2 == 0 {
                (real()?, injected()?)
            } else {
                let injected = injected()?;
                (real()?, injected)
            });
        }
        let prefix = format!("pgbench_log.{}", load.id());
        let status = load.wait()?;
        ensure!(status.success(), "pgbench failed: {status}");
        let done = Transactions::read(&self.folder.join(prefix))?;
        let pairs: Vec<_> = spans
            .into_iter()
            .map(|(real, injected)| Pair { real: done.slice(real), injected: done.slice(injected) })
            .collect();
        cell.print(done.slice(as_it_is), &pairs);
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGQUIT ends PostgreSQL and its backends at once. These calls fail only if it has ended already.
        let _ = Command::new("kill").args(["-QUIT", &self.pid().to_string()]).status();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program of PostgreSQL's, run as its own user.
fn as_user(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={USER}"), format!("--regid={USER}"), "--init-groups".into()]);
    command.arg(format!("{PROGRAMS}/{program}"));
    command
}

/// The clock of pgbench's log.
fn now_us() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?)
}

/// What pgbench logged: when each transaction ended and how long it took, in us.
#[derive(Debug, PartialEq, Eq)]
struct Transactions(Vec<(u64, u64)>);

impl Transactions {
    fn read(log: &Path) -> Result<Self> {
        let text = fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
        let _ = fs::remove_file(log);
        Self::parse(&text)
    }

    /// Lines of `client transaction time script epoch_s epoch_us`.
    fn parse(text: &str) -> Result<Self> {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let took = words.nth(2)?.parse().ok()?;
            let seconds: u64 = words.nth(1)?.parse().ok()?;
            Some((seconds * 1_000_000 + words.next()?.parse::<u64>().ok()?, took))
        };
        let all: Option<Vec<_>> = text.lines().map(line).collect();
        all.map(Self).context("pgbench's log is not as expected")
    }

    /// The transactions that began and ended in this span.
    fn slice(&self, (from, until): (u64, u64)) -> Slice {
        let inside = |&&(ended, took): &&(u64, u64)| ended < until && ended.saturating_sub(took) >= from;
        let mut took: Vec<u64> = self.0.iter().filter(inside).map(|&(_, took)| took).collect();
        took.sort_unstable();
        let at = |percent| took.get(took.len() * percent / 100).map_or(f64::NAN, |us| *us as f64 * 1000.0);
        let per_second = took.len() as f64 * 1e6 / until.saturating_sub(from) as f64;
        Slice { per_second, p50_ns: at(50), p99_ns: at(99) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn transactions_count_in_the_slice_that_holds_them() {
        let text = "0 1 150 0 10 000200\n0 2 300 0 10 000600\n1 3 100 0 10 001100\n";
        let all = Transactions::parse(text).unwrap();
        assert_eq!(all, Transactions(vec![(10_000_200, 150), (10_000_600, 300), (10_001_100, 100)]));
        let slice = all.slice((10_000_100, 10_001_100));
        assert_eq!((slice.per_second, slice.p50_ns), (1000.0, 300_000.0));
        assert!(Transactions::parse("0 1 x 0 10 1").is_err());
    }
}
