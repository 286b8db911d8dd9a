//! Experiments on live services. Schedules, records and what follows from them are
//! [`speed_bump_experiment`]'s.

pub mod guard;
mod keeper;
pub mod live;
pub mod machine;
pub mod metric;
mod said;
mod shell;
pub mod sweep;

pub use speed_bump_experiment::{
    analysis, bound, groups, plan, record, run, schedule, screen, simulated, subject,
};
