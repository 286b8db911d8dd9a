//! How errors say their causes: once.
//!
//! Our own error types say everything in `Display`, the cause included, and `source()` returns nothing: so an
//! error reads the same in a message, in a log line and at the end of a chain. Hence `#[error("…: {0}")]`
//! goes without `#[from]`, which would make the field a source, and a field named `source` is written
//! `r#source`, which thiserror takes for any field. tests/cli/error_messages.rs looks for offenders. Errors
//! of other crates often leave the cause to `source()`: [`with_causes`] puts the two together.

use std::error::Error;

/// An error of another crate with all its causes on one line, each once.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
