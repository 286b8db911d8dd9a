//! Reports: what an experiment found, for people and for other programs.
//!
//! Everything in them is of the experiment's JSON, so that each can be made again from it.

pub mod compare;
pub mod condition;
pub mod csv;
mod further;
pub mod html;
pub mod markdown;
mod notes;
pub mod profile;
mod scale;
pub mod session;
mod sharing;
pub mod table;
pub mod text;
pub mod trace_events;
pub mod words;
