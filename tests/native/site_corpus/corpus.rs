//! Building and running the programs of the corpus.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use speed_bump_testing::{Lines, wait::wait_for_exit};

/// One program of the corpus, one way to compile it.
pub(crate) struct Build {
    pub(crate) name: String,
    compiler: String,
    arguments: Vec<String>,
    source: &'static str,
    environment: Option<(&'static str, &'static str)>,
}

/// C by gcc, or by what `CC` names.
pub(crate) fn c_builds() -> Vec<Build> {
    gnu_builds(&env::var("CC").unwrap_or_else(|_| "gcc".into()), "corpus.c", &["-pthread"])
}

/// C++ by g++, or by what `CXX` names.
pub(crate) fn cxx_builds() -> Vec<Build> {
    gnu_builds(&env::var("CXX").unwrap_or_else(|_| "g++".into()), "corpus.cc", &[])
}

fn gnu_builds(compiler: &str, source: &'static str, more: &[&str]) -> Vec<Build> {
    let mut builds = Vec::new();
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        for protection in ["none", "full"] {
            let mut arguments = vec![level.to_owned(), format!("-fcf-protection={protection}")];
            // Both kinds of executable, both ways to find the frame, over the levels.
            arguments.extend(
                match (level, protection) {
                    ("-O1" | "-O3", "none") => ["-no-pie", "-fno-omit-frame-pointer"],
                    ("-O2", _) => ["-fPIE", "-fstack-clash-protection"],
                    _ => ["-fPIE", "-pie"],
                }
                .map(str::to_owned),
            );
            arguments.extend(more.iter().map(|&argument| argument.to_owned()));
            builds.push(Build {
                name: format!("{compiler} {}", arguments.join(" ")),
                compiler: compiler.to_owned(),
                arguments,
                source,
                environment: None,
            });
        }
    }
    builds
}

/// Rust by rustc. Control-flow protection is not stable there yet: the variable lets the stable compiler take
/// it.
pub(crate) fn rust_builds() -> Vec<Build> {
    let mut builds = Vec::new();
    for level in 0..=3 {
        for protection in ["none", "full"] {
            let arguments: Vec<_> = [
                "--edition=2024",
                "-C",
                &format!("opt-level={level}"),
                "-Z",
                &format!("cf-protection={protection}"),
            ]
            .map(str::to_owned)
            .into();
            builds.push(Build {
                name: format!("rustc {}", arguments.join(" ")),
                compiler: env::var("RUSTC").unwrap_or_else(|_| "rustc".into()),
                arguments,
                source: "corpus.rs",
                environment: Some(("RUSTC_BOOTSTRAP", "1")),
            });
        }
    }
    builds
}

impl Build {
    /// Compiles; the error says why there is no such compiler.
    pub(crate) fn compile(&self) -> Result<PathBuf, String> {
        let name: String =
            self.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}_{}", self.source));
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("native/site_corpus/programs").join(self.source);
        let mut command = Command::new(&self.compiler);
        command.args(&self.arguments).args([source.as_os_str(), OsStr::new("-o"), program.as_os_str()]);
        command.envs(self.environment);
        let output = command.output().map_err(|error| format!("{}: {error}", self.compiler))?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}\n{said}", self.name, output.status);
        Ok(program)
    }
}

/// What one run of everything gave.
pub(crate) struct Run {
    /// Calls of each function: at least, and at most.
    pub(crate) calls: BTreeMap<String, (u64, u64)>,
    /// Over everything that the functions returned.
    pub(crate) sum: String,
}

/// A program of the corpus that waits for its next run.
pub(crate) struct Running {
    child: Child,
    input: ChildStdin,
    lines: Lines,
}

impl Running {
    pub(crate) fn start(program: &Path) -> Self {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("to start");
        let input = child.stdin.take().expect("a pipe");
        let lines = Lines::read(child.stdout.take().expect("a pipe"));
        Self { child, input, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has it call everything once.
    pub(crate) fn run(&mut self) -> Run {
        self.input.write_all(b"run\n").expect("the program to live");
        let mut run = Run { calls: BTreeMap::new(), sum: String::new() };
        loop {
            let line =
                self.lines.line().unwrap_or_else(|error| panic!("{error}: {:?}", self.child.try_wait()));
            match *line.split_whitespace().collect::<Vec<_>>() {
                ["sum", sum] => run.sum = sum.to_owned(),
                [name, least, most] => {
                    let number = |text: &str| text.parse().expect("a number");
                    run.calls.insert(name.to_owned(), (number(least), number(most)));
                }
                _ if line.is_empty() => return run,
                _ => panic!("the program wrote {line:?}"),
            }
        }
    }

    /// Lets it end, and checks that it does so in peace.
    pub(crate) fn stop(self) {
        let Self { mut child, input, lines } = self;
        drop((input, lines));
        assert!(wait_for_exit(&mut child).expect("a child").success());
    }
}
