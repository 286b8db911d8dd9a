//! Reports: that they say what the JSON says, whatever a process put into it, and how they look.

#![allow(clippy::unwrap_used)]

mod browser;
mod compare;
mod figures;
mod forms;
mod profile;
mod prometheus;
mod records;
mod trace_events;
