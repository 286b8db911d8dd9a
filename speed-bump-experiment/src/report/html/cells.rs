//! What cells hold: names that a process chose, and numbers that programs can read.

use maud::{Markup, html};

use crate::{
    analysis::factor::Factor,
    printable::{NAME_COLUMNS, at_most, printable, printable_name},
    report::table::place,
    report::words,
};

/// Text from outside, which may be anything of any length.
pub(super) fn foreign(text: &str) -> String {
    printable_name(text)
}

/// The same of a sentence, in which there may be names.
pub(super) fn sentence(text: &str) -> String {
    at_most(printable(text), 3 * NAME_COLUMNS)
}

/// A function's name, and where it is.
pub(super) fn function(factor: &Factor) -> Markup {
    html! {
        code { (words::name(factor)) }
        @if let Some(file) = &factor.file {
            " "
            small { (foreign(&place(file, factor.line))) }
        }
    }
}

/// A number as people read it, with the one that the JSON has.
pub(super) fn number(value: Option<f64>, shown: &str) -> Markup {
    html! {
        @match value {
            Some(value) => data value=(value) { (shown) },
            None => (shown),
        }
    }
}
