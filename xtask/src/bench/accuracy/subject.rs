//! The running programs whose functions are slowed: real ones, of each kind that the tool attaches to.

use std::{process::Command, thread, time::Duration};

use anyhow::{Context as _, Result};
use speed_bump_testing::{
    Fixture, PythonBuild, Service, places,
    pythons::{self, Form, Origin},
};

/// A function that its caller measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    /// Its name in the program's report.
    pub(super) name: &'static str,
    /// The line of the targets file that selects it, and nothing else in the program.
    pub(super) target: &'static str,
}

/// A running program.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) service: Service,
    pub(super) functions: &'static [Function],
    /// The tool's flags for it: how Python calls become visible.
    pub(super) flags: &'static [&'static str],
    /// The program's file, if we compiled it.
    _fixture: Option<Fixture>,
}

impl Subject {
    /// The text of a targets file that selects its functions.
    pub(super) fn targets(&self) -> String {
        self.functions.iter().map(|function| format!("{}\n", function.target)).collect()
    }

    /// The time of a call of each function, in ns, as its caller measures it: medians over a span that begins
    /// now.
    pub(super) fn medians(&mut self, span: Duration) -> Result<Vec<f64>> {
        self.service.ask("reset")?;
        thread::sleep(span);
        let report = self.service.ask("report")?;
        let median = |function: &Function| {
            let event =
                report.iter().find(|event| event["event"] == "function" && event["name"] == function.name)?;
            event["calls"].as_u64().filter(|calls| *calls > 0)?;
            event["median_ns"].as_f64()
        };
        self.functions
            .iter()
            .map(|function| {
                median(function).with_context(|| format!("{}: {} was not called", self.name, function.name))
            })
            .collect()
    }
}

/// Functions with sites of several kinds; the sites of `leaf` and `labs` are single-stepped.
const C: &[Function] = &[
    Function { name: "hot", target: "native:*/service:hot" },
    Function { name: "outer", target: "native:*/service:outer" },
    Function { name: "probed", target: "usdt:*/service:service:tick" },
    Function { name: "work_hot", target: "native:*/libwork.so:work_hot" },
    Function { name: "work_leaf", target: "native:*/libwork.so:work_leaf" },
];

const LIBC: &[Function] = &[
    Function { name: "strtol", target: "native:*/libc.so*:strtol" },
    Function { name: "getenv", target: "native:*/libc.so*:getenv" },
    Function { name: "labs", target: "native:*/libc.so*:labs" },
];

const PYTHON: &[Function] = &[
    Function { name: "hot", target: "py:*/service.py:hot" },
    Function { name: "Worker.method", target: "py:*/service.py:Worker.method" },
];

/// The subjects, not yet started.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    C,
    Libc(&'static PythonBuild),
    /// Unchanged, with the helper.
    Stock(&'static PythonBuild),
    Trampolines(&'static PythonBuild),
    Usdt(&'static PythonBuild),
}

impl Kind {
    /// What this machine can run, and what it lacks, in words.
    pub(super) fn all() -> Result<(Vec<Self>, Vec<String>)> {
        let pythons = pythons::find()?;
        let find = |is: &dyn Fn(&PythonBuild) -> bool| pythons.iter().find(|python| is(python));
        let mut missing = Vec::new();
        let mut kinds = vec![Self::C];
        let mut add = |found: Option<Self>, what: &str| match found {
            Some(kind) => kinds.push(kind),
            None => missing.push(what.to_owned()),
        };
        let system = find(&|python| python.origin == Origin::System);
        add(system.map(Self::Libc), "the system's python3 calling libc: no /usr/bin/python3");
        for minor in [(3, 8), (3, 11), (3, 12), (3, 13)] {
            let python = find(&|python| python.minor() == minor && python.form != Form::Container);
            let what = format!("Python {}.{} with the helper: not on this machine", minor.0, minor.1);
            add(python.map(Self::Stock), &what);
        }
        for minor in [(3, 12), (3, 13)] {
            let python = find(&|python| {
                python.minor() == minor && python.trampolines && python.form != Form::Container
            });
            let what = format!("Python {}.{} with -X perf: not on this machine", minor.0, minor.1);
            add(python.map(Self::Trampolines), &what);
        }
        let newest =
            find(&|python| python.minor() >= (3, 15) && python.usdt_fires() && python.form == Form::Loader);
        let what = "Python 3.15 with USDT: not on this machine (`cargo xtask pythons` fetches Debian's)";
        add(newest.map(Self::Usdt), what);
        Ok((kinds, missing))
    }

    /// Starts it.
    pub(super) fn start(self) -> Result<Subject> {
        let script = places::fixtures().join("service.py");
        let (name, command, functions, flags, fixture): (_, _, _, &[&str], _) = match self {
            Self::C => {
                let fixture = Fixture::service()?;
                let mut command = Command::new(fixture.program());
                command.arg("1");
                ("C service".to_owned(), command, C, &[], Some(fixture))
            }
            Self::Libc(python) => {
                let script = places::root().join("xtask/src/bench/libc_caller.py");
                (format!("{python}, libc"), python.command(&script), LIBC, &[], None)
            }
            Self::Stock(python) => {
                let mut command = python.command(&script);
                command.args(["1", "200"]);
                (format!("{python}, helper"), command, PYTHON, &["--entry", "helper"], None)
            }
            Self::Trampolines(python) => {
                let mut command = python.command_with(&["-X", "perf"], &script);
                command.args(["1", "200"]);
                (format!("{python}, -X perf"), command, PYTHON, &["--entry", "perf-map"], None)
            }
            Self::Usdt(python) => {
                let mut command = python.command(&script);
                command.args(["1", "200"]);
                (format!("{python}, USDT"), command, PYTHON, &["--entry", "usdt"], None)
            }
        };
        let mut command = command;
        let service = Service::start(&mut command).with_context(|| format!("cannot start the {name}"))?;
        Ok(Subject { name, service, functions, flags, _fixture: fixture })
    }
}
