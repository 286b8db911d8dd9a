//! Log lines. Names from targets are escaped.

use std::{fmt, io};

use tracing::field::Field;
use tracing_subscriber::{
    Layer as _,
    field::MakeExt as _,
    filter::Targets,
    fmt::format::{Writer, debug_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::printable::Printable;

/// Log lines on standard error: warnings always, more with each `-v`.
pub(super) fn init(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::ERROR,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let filter = Targets::new()
        // The prefix of the names of all crates of this workspace.
        .with_target("speed_bump", level)
        // aya's relocation log only helps to debug aya.
        .with_default(if verbose > 3 { level } else { tracing::Level::ERROR });
    tracing_subscriber::registry()
        .with(
            tracing_subscriber::fmt::layer()
                .fmt_fields(debug_fn(field).delimited(" "))
                .with_writer(io::stderr)
                .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
                .without_time()
                .with_filter(filter),
        )
        .init();
}

/// Writes a field, such as the message, escaped and in one line.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format_args!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", Printable(value)),
        name => write!(writer, "{name}={}", Printable(value)),
    }
}
