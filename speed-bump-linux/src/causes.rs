//! How error messages name causes: each cause once.
//!
//! Our own error types write everything in `Display`, including the cause, and `source()` returns nothing. So
//! an error has the same text in a message, in a log line, and at the end of a chain. This is why
//! `#[error("…: {0}")]` comes without `#[from]`, which would make the field a source. A field named `source`
//! is written `r#source`, since thiserror takes any field of that name as the source.
//! tests/cli/error_messages.rs checks this. Errors of other crates often leave the cause to `source()`:
//! [`with_causes`] joins the two.

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
