//! What the command writes, where it writes it, and what it refuses.

mod cli_output;
mod cli_refusals;
mod doctor;
mod error_messages;
mod full_output;
mod json_places;
