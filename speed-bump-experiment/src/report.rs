//! Reports of experiments, for the user and for other programs.
//!
//! They only use the experiment's JSON, so that each report can be made again from it.

pub mod compare;
pub mod condition;
pub mod csv;
mod further;
pub mod html;
pub mod markdown;
mod notes;
pub mod profile;
mod scale;
mod sections;
pub mod session;
mod sharing;
pub mod table;
pub mod text;
mod threads;
pub mod trace_events;
mod waits;
pub mod words;
