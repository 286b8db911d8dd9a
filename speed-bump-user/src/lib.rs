//! speed-bump-ebpf as a library: makes one function of a running process slower by an exact amount, and
//! measures what that does to throughput.
//!
//! Delays: a [`Request`] names targets, [`Prepared`] is its plan for processes, and a [`Handle`] controls a
//! running session, whose doses and targets can change. A [`Snapshot`] has the counters, and a
//! [`SessionReport`] the final ones. Experiments: a [`Sweep`] runs to its end and returns an [`Experiment`],
//! which [`report`] prints.
//!
//! ```no_run
//! use speed_bump_user::{
//!     Dose, Nanos, Prepared, Purpose, Request, Selection, Stop, TargetIndex, TargetSource,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let request = Request::new(TargetSource::lines("target", &["native:*/libc.so*:malloc"]));
//! let prepared = Prepared::of_processes(&["4711".parse()?], &request, Purpose::Attach)?;
//! let session = prepared.start(Stop::default())?;
//! let dose = Dose { delay: Nanos(10_000), frequency: 1 };
//! session.set(&[(Selection::Target(TargetIndex(0)), dose)])?;
//! session.stop();
//! println!("{} calls", session.wait()?.report.targets[0].calls);
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! use speed_bump_user::{Sweep, SweepOptions, UnitSource, report::text};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let units = vec![UnitSource::Progress("*/app.py:handle".to_owned())];
//! let sweep = Sweep::new(SweepOptions { units, ..SweepOptions::default() });
//! let experiment = sweep.run(&["4711".parse()?], &mut ())?;
//! print!("{}", text::render(&experiment, text::Style::PLAIN));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "cli")]
mod agent;
#[cfg(feature = "cli")]
#[doc(hidden)] // For the program.
pub mod cli;
#[cfg(feature = "cli")]
mod doctor;
mod experiment;
#[cfg(feature = "cli")]
mod exporter;

pub use experiment::sweep::{
    Benchmark, Observer, OptionError, Options as SweepOptions, Step, Sweep, SweepError, UnitError, UnitSource,
};
pub use speed_bump_experiment::record::{Experiment, Measured};
pub use speed_bump_session::{
    engine::{EngineChoice, EngineKind},
    policy::{BoundError, DelayBound, Dose, Selection},
    prepare::{PrepareError, Prepared, Purpose, Request, notice::Notice},
    probe::plan::SelectedFunction,
    python::entry_source::{EntryChoice, EntrySource},
    session::{
        SessionError,
        controls::Controls,
        ended::Ended,
        handle::{Handle, Outcome},
        quit::Quit,
        snapshot::Snapshot,
        stop::Stop,
    },
    stats::report::{FunctionReport, SessionReport, TargetReport},
    targets::{Target, TargetChange, TargetIndex, TargetKind, TargetsError, source::TargetSource},
};
pub use speed_bump_units::units::{Nanos, NanosError, Pid};

/// Reports of experiments.
pub mod report {
    pub(crate) use speed_bump_experiment::report::table;
    #[cfg(feature = "cli")]
    pub(crate) use speed_bump_experiment::report::{
        compare, condition, profile, session, trace_events, words,
    };
    pub use speed_bump_experiment::report::{csv, html, markdown, text};
}

/// Internals for tests and benches of this workspace.
#[doc(hidden)]
pub mod internals {
    pub use crate::experiment::metric::sockets;
}

#[cfg(feature = "cli")]
use speed_bump_linux::capability;
use speed_bump_linux::{causes, failure, kernel, process, sys};
#[cfg(feature = "cli")]
use speed_bump_names::demangle;
use speed_bump_names::printable;
use speed_bump_session::{
    calibrate, engine, policy, prepare, probe, python, sampling, session, stats, targets,
};
#[cfg(feature = "cli")]
use speed_bump_session::{control, inject, launch};
use speed_bump_units::units;
