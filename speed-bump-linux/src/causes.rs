//! How errors state their causes: once.
//!
//! Our own error types write everything in `Display`, the cause included, and `source()` returns nothing. So
//! an error reads the same in a message, in a log line and at the end of a chain. Hence `#[error("…: {0}")]`
//! goes without `#[from]`, which would make the field a source. A field named `source` is written `r#source`,
//! since thiserror takes any field of that name for the source. tests/cli/error_messages.rs checks this.
//! Errors of other crates often leave the cause to `source()`: [`with_causes`] joins the two.

use std::error::Error;

/// Writes an error of another crate with all its causes on one line, each once.
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
