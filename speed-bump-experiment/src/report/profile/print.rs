//! A profile as text, like `pstats.Stats.print_stats`.

use super::{Entry, FunctionKey, Limit, Profile, SortKey, sort::sort};
use crate::printable::printable;

/// Which functions are printed, and in which order.
#[derive(Clone, Debug, Default)]
pub struct Printing {
    /// The sort keys, the first one first; without any, the order of the profile.
    pub sort: Vec<SortKey>,
    /// Reverses the order.
    pub reverse: bool,
    /// Restrictions, applied one after the other.
    pub limits: Vec<Limit>,
}

/// The profile as printable text.
pub fn print(profile: &Profile, printing: &Printing) -> String {
    let (calls, primitive) = (profile.sum(|entry| entry.calls), profile.sum(|entry| entry.primitive_calls));
    let primitive =
        if calls == primitive { String::new() } else { format!(" ({primitive} primitive calls)") };
    let seconds = profile.sum(|entry| entry.own_ns) as f64 / 1e9;
    let mut text = format!("         {calls} function calls{primitive} in {seconds:.3} seconds\n\n");
    let (how, functions) = printing.select(profile);
    text += &how;
    if functions.is_empty() {
        return text;
    }
    text += "\n   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n";
    for (key, entry) in &functions {
        text += &row(key, entry);
    }
    text
}

impl Printing {
    /// The header about order and restrictions, and the functions to print.
    pub(super) fn select(&self, profile: &Profile) -> (String, Vec<(FunctionKey, Entry)>) {
        let mut functions = profile.functions.clone();
        sort(&mut functions, &self.sort);
        if self.reverse {
            functions.reverse();
        }
        let order: Vec<&str> = self.sort.iter().map(|key| key.name()).collect();
        let mut text = match order.as_slice() {
            [] => "   Random listing order was used\n".to_owned(),
            order => format!("   Ordered by: {}\n", order.join(", ")),
        };
        for limit in &self.limits {
            let before = functions.len();
            limit.apply(&mut functions);
            let left = functions.len();
            if left != before {
                let limit = printable(limit);
                text += &format!("   List reduced from {before} to {left} due to restriction <{limit}>\n");
            }
        }
        (text, functions)
    }
}

fn row(key: &FunctionKey, entry: &Entry) -> String {
    let calls = entry.calls_in_words();
    let seconds = |ns: u64| format!("{:8.3}", ns as f64 / 1e9);
    let each = |ns: u64, calls: u64| {
        if calls == 0 { " ".repeat(8) } else { format!("{:8.3}", ns as f64 / 1e9 / calls as f64) }
    };
    format!(
        "{calls:>9} {} {} {} {} {}\n",
        seconds(entry.own_ns),
        each(entry.own_ns, entry.calls),
        seconds(entry.cumulative_ns),
        each(entry.cumulative_ns, entry.primitive_calls),
        printable(key.standard_name())
    )
}
