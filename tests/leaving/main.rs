//! How sessions end, and what they leave: nothing.

mod files_left;
mod moments;
mod neighbours;
mod session_cycles;
mod session_expiry;
mod session_leaving;
