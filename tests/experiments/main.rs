//! Experiments on running services: what `sweep` says of them, and that it leaves them as they were.

mod callers;
mod commands;
mod hanging;
mod load;
mod load_command;
mod metrics;
mod odd_names;
mod one_session;
mod own_code;
mod pages;
mod planted;
mod quantiles;
mod share;
mod sweep;
// Tests run in the order of their names.
mod whole_machine;
