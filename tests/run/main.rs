//! The command `run`: programs that the tool starts itself.

mod command;
mod run_command;
mod run_late;
mod run_python;
mod run_terminal;
mod run_workers;
mod turn;
