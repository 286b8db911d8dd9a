//! Contents of cells: names from a process, and numbers that programs can read.

use maud::{Markup, html};

use crate::{
    analysis::factor::Factor,
    printable::{NAME_COLUMNS, at_most, printable, printable_name},
    report::table::place,
    report::words,
};

/// Makes text from outside printable, and cuts it.
pub(super) fn foreign(text: &str) -> String {
    printable_name(text)
}

/// Makes a sentence that may contain names from outside printable, and cuts it.
pub(super) fn sentence(text: &str) -> String {
    at_most(printable(text), 3 * NAME_COLUMNS)
}

/// A function's name and place.
pub(super) fn function(factor: &Factor) -> Markup {
    html! {
        code { (words::name(factor)) }
        @if let Some(file) = &factor.file {
            " "
            small { (foreign(&place(file, factor.line))) }
        }
    }
}

/// A number as text, with all digits for programs.
pub(super) fn number(value: Option<f64>, shown: &str) -> Markup {
    html! {
        @match value {
            Some(value) => data value=(value) { (shown) },
            None => (shown),
        }
    }
}
