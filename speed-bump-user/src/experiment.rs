//! Experiments on live services. [`speed_bump_experiment`] has the design, records and analysis.

pub(crate) mod descriptors;
pub(crate) mod guard;
mod keeper;
mod last_output;
pub(crate) mod live;
mod load_command;
pub(crate) mod machine;
pub(crate) mod metric;
mod shell;
pub(crate) mod sweep;

#[cfg(feature = "cli")]
pub(crate) use speed_bump_experiment::analysis;
pub(crate) use speed_bump_experiment::{bound, groups, plan, record, run, subject};
