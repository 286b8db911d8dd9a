//! Which processes a session covers: which can be read, which are refused, and which are followed.

mod kind_of_lines;
mod moved_code;
mod process_mappings;
mod process_refusals;
mod programs;
mod session_children;
mod session_container;
mod session_families;
mod session_isolation;
mod uwsgi;
