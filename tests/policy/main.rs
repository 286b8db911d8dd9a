//! Which calls are delayed by how much, and how that is changed while a session goes on.

mod agent;
mod session_bound;
mod session_control;
mod session_doses;
mod session_policy;
mod session_protocol;
mod session_targets;
mod session_timing;
