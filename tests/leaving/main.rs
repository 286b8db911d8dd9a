//! How sessions end, and what they leave: nothing.

mod moments;
mod neighbours;
mod files_left;
mod session_cycles;
mod session_expiry;
mod session_leaving;
