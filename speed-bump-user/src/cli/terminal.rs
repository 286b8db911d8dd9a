//! Telling people, and programs, what came out.
//!
//! `println!` panics when its reader is gone (`list | head`, a closed ssh session). What nobody reads is not
//! worth ending for, least of all while something is attached.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

/// Writes a line of the result to standard output.
pub fn print(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Writes a line for people to standard error.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
