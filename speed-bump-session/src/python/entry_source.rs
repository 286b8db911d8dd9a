//! Decides which entry source shows the calls of a process's Python functions, or why none does.
//!
//! The decision is a pure function of facts that other modules collect. The decision does not depend on
//! probes.

use std::{fmt, str::FromStr};

use serde::Serialize;

use super::version::PythonVersion;

/// How a call of a Python function becomes visible at a probe site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntrySource {
    /// The helper in the process executes a stub at each call of a selected function.
    Helper,
    /// Perf trampolines (CPython 3.12+): the evaluator's return address lies in the function's own
    /// trampoline.
    PerfMap,
    /// The USDT probe `python:function__entry`: file, name and line are its arguments.
    Usdt,
}

impl EntrySource {
    /// Whether we know the functions of a process before the attach. With the helper we know the functions
    /// only when the helper is loaded.
    pub fn lists_functions(self) -> bool {
        match self {
            Self::PerfMap => true,
            Self::Helper | Self::Usdt => false,
        }
    }
}

impl FromStr for EntrySource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "helper" => Ok(Self::Helper),
            "perf-map" => Ok(Self::PerfMap),
            "usdt" => Ok(Self::Usdt),
            _ => Err(format!("`{text}` is no entry source: expected helper, perf-map, usdt or auto")),
        }
    }
}

/// Which entry source the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryChoice {
    /// The best source that the process supports.
    #[default]
    Auto,
    /// Only this source.
    Only(EntrySource),
}

impl FromStr for EntryChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Only) }
    }
}

/// Whether we may inject the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection<'a> {
    /// We may inject. Only an injection shows whether it works.
    Allowed,
    /// The user forbids the injection.
    Forbidden,
    /// We tried to inject, and failed for this reason.
    Refused(&'a str),
}

impl fmt::Display for EntrySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Helper => "helper",
            Self::PerfMap => "perf-map",
            Self::Usdt => "usdt",
        })
    }
}

/// The facts for the decision, about one interpreter of one process at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Whether we may inject the helper.
    pub injection: Injection<'a>,
    /// The interpreter's version.
    pub version: PythonVersion,
    /// Whether the process has perf trampolines now: its perf map names memory that the process can execute.
    pub has_trampolines: bool,
    /// Whether the interpreter has the probe `python:function__entry`.
    pub has_function_entry: bool,
    /// Whether the interpreter can compile at run time
    /// ([`Interpreter::has_jit`](super::interpreter::Interpreter)). Perf trampolines and the JIT exclude each
    /// other.
    pub has_jit: bool,
    /// Whether the kernel can run the programs that identify Python functions without the helper
    /// ([`Form::has_python_programs`](crate::engine::bpf::Form::has_python_programs)).
    pub kernel_tells: bool,
}

/// Why a source shows no calls, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEntries {
    /// The user forbids the helper.
    #[error(
        "--no-inject forbids the helper, which would show the calls of any CPython from 3.8 on without a \
         restart"
    )]
    InjectionForbidden,
    /// We could not inject the helper, or the helper does not work in this process.
    #[error("the helper does not work in this process: {why}")]
    HelperRefused {
        /// The reason, and the way out.
        why: String,
    },
    /// This release is too old for the helper.
    #[error("the helper needs CPython 3.8 or later, and this is {version}")]
    BeforeHelper {
        /// The interpreter's version.
        version: PythonVersion,
    },
    /// Neither the helper nor any other source works.
    #[error("{helper}. Without it: {other}")]
    NorHelper {
        /// Why the helper does not work.
        helper: Box<Self>,
        /// Why no other source works.
        other: Box<Self>,
    },
    /// A process of 3.12 or later without trampolines. The process may still switch trampolines on while we
    /// are attached.
    #[error(
        "CPython {version} shows its function calls only through perf trampolines, and this process has \
         none: start it with `-X perf` (or PYTHONPERFSUPPORT=1), or call \
         sys.activate_stack_trampoline(\"perf\") in it{}; with `--entry perf-map` it can be attached to \
         before that call, which then takes effect; native and USDT targets work as it is",
        if *.has_jit { " (refused while the JIT is on: PYTHON_JIT=0)" } else { "" }
    )]
    NoTrampolines {
        /// The interpreter's version.
        version: PythonVersion,
        /// Whether the process must switch off the JIT to get trampolines.
        has_jit: bool,
    },
    /// There are no trampolines before 3.12.
    #[error("CPython {version} has no perf trampolines: they came with 3.12")]
    BeforeTrampolines {
        /// The interpreter's version.
        version: PythonVersion,
    },
    /// In 3.11 the evaluator handles calls from Python to Python itself, and the probe does not fire.
    #[error(
        "this process exposes no Python entries: the probe function__entry of CPython {version} fires for \
         generators but not for ordinary calls, and perf trampolines came with 3.12; \
         native and USDT targets work"
    )]
    GeneratorsOnly {
        /// The interpreter's version.
        version: PythonVersion,
    },
    /// This build has neither trampolines nor the probe.
    #[error(
        "this process exposes no Python entries: its CPython {version} was built without the probe \
         function__entry (--with-dtrace), and perf trampolines came with 3.12; native and USDT targets work"
    )]
    NotInThisBuild {
        /// The interpreter's version.
        version: PythonVersion,
    },
    /// The kernel cannot run the programs of the other sources.
    #[error("on kernels before Linux 5.17 Python functions are told apart by the helper alone")]
    OldKernel,
    /// The user wants the probe. This build lacks the probe, or the probe does not fire in this release.
    #[error(
        "CPython {version} has no probe function__entry here: it needs --with-dtrace and a release up to \
         3.10 or from 3.15"
    )]
    NoProbe {
        /// The interpreter's version.
        version: PythonVersion,
    },
}

/// The source that shows most of a process's calls in its present state.
///
/// # Errors
/// If no source shows any calls, the message says what the user can do.
pub fn choose(facts: &Facts<'_>) -> Result<EntrySource, NoEntries> {
    // The helper costs unmatched calls nothing, or almost nothing. Among the other sources, trampolines give
    // the qualified name, and the probe only gives `co_name`.
    let Err(helper) = check(EntrySource::Helper, facts) else { return Ok(EntrySource::Helper) };
    let Err(perf_map) = check(EntrySource::PerfMap, facts) else { return Ok(EntrySource::PerfMap) };
    let Err(usdt) = check(EntrySource::Usdt, facts) else { return Ok(EntrySource::Usdt) };
    let version = facts.version;
    let other = match (&perf_map, &usdt) {
        (NoEntries::NoTrampolines { .. }, _) => perf_map,
        (_, NoEntries::GeneratorsOnly { .. } | NoEntries::OldKernel) => usdt,
        _ => NoEntries::NotInThisBuild { version },
    };
    Err(NoEntries::NorHelper { helper: Box::new(helper), other: Box::new(other) })
}

impl NoEntries {
    /// Whether it would help if the process switched on trampolines.
    pub fn may_get_trampolines(&self) -> bool {
        match self {
            Self::NoTrampolines { .. } => true,
            Self::NorHelper { other, .. } => other.may_get_trampolines(),
            _ => false,
        }
    }
}

/// Checks that one source shows a process's calls in its present state.
///
/// # Errors
/// The source shows no calls. [`NoEntries::NoTrampolines`] may change while the process runs; the other
/// reasons do not change.
pub fn check(source: EntrySource, facts: &Facts<'_>) -> Result<(), NoEntries> {
    let version = facts.version;
    match source {
        EntrySource::Helper if !version.is_at_least(3, 8) => Err(NoEntries::BeforeHelper { version }),
        EntrySource::Helper => match facts.injection {
            Injection::Allowed => Ok(()),
            Injection::Forbidden => Err(NoEntries::InjectionForbidden),
            Injection::Refused(why) => Err(NoEntries::HelperRefused { why: why.to_owned() }),
        },
        EntrySource::PerfMap | EntrySource::Usdt if !facts.kernel_tells => Err(NoEntries::OldKernel),
        EntrySource::PerfMap if !version.is_at_least(3, 12) => Err(NoEntries::BeforeTrampolines { version }),
        EntrySource::PerfMap if !facts.has_trampolines => {
            Err(NoEntries::NoTrampolines { version, has_jit: facts.has_jit })
        }
        EntrySource::Usdt if !facts.has_function_entry => Err(NoEntries::NoProbe { version }),
        EntrySource::Usdt if version.major == 3 && version.minor == 11 => {
            Err(NoEntries::GeneratorsOnly { version })
        }
        EntrySource::PerfMap | EntrySource::Usdt => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(minor: u8, has_trampolines: bool, has_function_entry: bool) -> Facts<'static> {
        let injection = Injection::Forbidden;
        let version = PythonVersion::new(3, minor);
        Facts { injection, version, has_trampolines, has_function_entry, has_jit: false, kernel_tells: true }
    }

    #[test]
    fn the_helper_comes_first_where_it_may_and_can() {
        let with = |injection, minor| choose(&Facts { injection, ..facts(minor, true, true) }).ok();
        assert_eq!(with(Injection::Allowed, 13), Some(EntrySource::Helper));
        assert_eq!(with(Injection::Allowed, 8), Some(EntrySource::Helper));
        assert_eq!(with(Injection::Allowed, 7), Some(EntrySource::Usdt));
        assert_eq!(with(Injection::Forbidden, 13), Some(EntrySource::PerfMap));
        assert_eq!(with(Injection::Refused("why"), 9), Some(EntrySource::Usdt));
    }

    #[test]
    fn a_refusal_says_why_each_way_is_closed() {
        let why = |injection| {
            let facts = Facts { injection, ..facts(13, false, false) };
            choose(&facts).err().map(|why| (why.may_get_trampolines(), why.to_string()))
        };
        let (may, text) = why(Injection::Refused("a debugger holds it")).unwrap_or_default();
        assert!(may && text.contains("a debugger holds it") && text.contains("-X perf"), "{text}");
        let (_, text) = why(Injection::Forbidden).unwrap_or_default();
        assert!(text.contains("--no-inject") && text.contains("-X perf"), "{text}");
    }

    #[test]
    fn on_an_old_kernel_the_helper_is_all_there_is() {
        let with = |injection| choose(&Facts { injection, kernel_tells: false, ..facts(13, true, true) });
        assert_eq!(with(Injection::Allowed), Ok(EntrySource::Helper));
        let why = with(Injection::Forbidden).err().map(|why| why.to_string()).unwrap_or_default();
        assert!(why.contains("--no-inject") && why.contains("5.17"), "{why}");
    }

    #[test]
    fn choices_are_read_as_written() {
        assert_eq!("auto".parse(), Ok(EntryChoice::Auto));
        for source in [EntrySource::Helper, EntrySource::PerfMap, EntrySource::Usdt] {
            assert_eq!(source.to_string().parse(), Ok(EntryChoice::Only(source)));
        }
        assert!("magic".parse::<EntryChoice>().is_err());
    }

    #[test]
    fn every_release_gets_what_it_can_show() {
        use EntrySource::{PerfMap, Usdt};
        for (minor, trampolines, probe, expected) in [
            (8, false, true, Some(Usdt)),
            (10, false, true, Some(Usdt)),
            (10, false, false, None),
            (11, false, true, None),
            (11, false, false, None),
            (12, false, false, None),
            (12, true, false, Some(PerfMap)),
            (14, true, false, Some(PerfMap)),
            (15, false, false, None),
            (15, false, true, Some(Usdt)),
            (15, true, true, Some(PerfMap)),
        ] {
            let chosen = choose(&facts(minor, trampolines, probe)).ok();
            assert_eq!(chosen, expected, "3.{minor} {trampolines} {probe}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let message =
            |facts: &Facts| choose(facts).err().map(|refusal| refusal.to_string()).unwrap_or_default();
        let of_313 = message(&facts(13, false, false));
        for part in ["3.13", "-X perf", "PYTHONPERFSUPPORT=1", "sys.activate_stack_trampoline(\"perf\")"] {
            assert!(of_313.contains(part), "{of_313}");
        }
        assert!(!of_313.contains("JIT"), "{of_313}");
        assert!(message(&Facts { has_jit: true, ..facts(13, false, false) }).contains("PYTHON_JIT=0"));
        assert!(message(&facts(11, false, true)).contains("generators"));
        for minor in [8, 11] {
            let message = message(&facts(minor, false, false));
            assert!(
                message.contains("exposes no Python entries") && message.contains("--with-dtrace"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_source_that_was_asked_for_is_judged_alone() {
        assert_eq!(check(EntrySource::Usdt, &facts(15, true, true)), Ok(()));
        let version = PythonVersion::new(3, 13);
        assert_eq!(check(EntrySource::Usdt, &facts(13, true, false)), Err(NoEntries::NoProbe { version }));
        let version = PythonVersion::new(3, 9);
        assert_eq!(
            check(EntrySource::PerfMap, &facts(9, false, true)),
            Err(NoEntries::BeforeTrampolines { version })
        );
    }

    #[test]
    fn sources_are_written_in_kebab_case() {
        for source in [EntrySource::Helper, EntrySource::PerfMap, EntrySource::Usdt] {
            let json = serde_json::to_string(&source).unwrap_or_default();
            assert_eq!(json, format!("\"{source}\""));
        }
        assert_eq!(EntrySource::PerfMap.to_string(), "perf-map");
    }
}
