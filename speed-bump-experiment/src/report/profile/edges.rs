//! Callers and callees of a profile as text, like `pstats.Stats.print_callers` and `print_callees`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use super::{Entry, FunctionKey, Profile, print::Printing};
use crate::printable::printable;

/// Which direction to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Who calls each function.
    Callers,
    /// What each function calls.
    Callees,
}

/// Prints at most `most` callers or callees of each function, those with the most time. The text is
/// printable. If no functions are left it only has the header.
pub fn print_edges(profile: &Profile, edges: Edges, printing: &Printing, most: usize) -> String {
    let (mut text, functions) = printing.select(profile);
    if functions.is_empty() {
        return text;
    }
    let name = |key: &FunctionKey| printable(key.standard_name());
    let length = |key: &FunctionKey| name(key).chars().count();
    // The column is as wide as the longest printed name.
    let width = functions.iter().map(|(key, _)| length(key)).max().unwrap_or(0) + 2;
    let (title, arrow) = match edges {
        Edges::Callers => ("was called by...", "<-"),
        Edges::Callees => ("called...", "->"),
    };
    text += &format!("\n{:<width$}{title}\n", "Function ");
    if !profile.callers.is_empty() {
        text += &format!("{:width$}    ncalls  tottime  cumtime\n", "");
    }
    let callees = if edges == Edges::Callees { callees(profile) } else { HashMap::new() };
    for (key, _) in &functions {
        let others = match edges {
            Edges::Callers => profile.callers.get(key),
            Edges::Callees => callees.get(key),
        };
        text += &format!("{:<width$}{arrow} ", name(key));
        let mut others: Vec<_> = others.into_iter().flatten().collect();
        let more = others.len().saturating_sub(most);
        if more > 0 {
            others.sort_by_key(|(_, entry)| Reverse(entry.cumulative_ns));
            others.truncate(most);
        }
        let mut indent = 0;
        for (other, entry) in others {
            let calls = entry.calls_in_words();
            let [own, cumulative] =
                [entry.own_ns, entry.cumulative_ns].map(|ns| format!("{:8.3}", ns as f64 / 1e9));
            let space = if indent == 0 { 0 } else { width + 1 };
            let calls_width = 7 + 2 * indent;
            text += &format!("{:space$}{calls:>calls_width$} {own} {cumulative}  {}\n", "", name(other));
            indent = 1;
        }
        if indent == 0 {
            text.push('\n');
        }
        if more > 0 {
            text += &format!("{:width$}    … {more} more\n", "");
        }
    }
    text
}

/// Inverts callers to callees.
fn callees(profile: &Profile) -> HashMap<&FunctionKey, BTreeMap<FunctionKey, Entry>> {
    let mut callees: HashMap<&FunctionKey, BTreeMap<FunctionKey, Entry>> = HashMap::new();
    for (callee, callers) in &profile.callers {
        for (caller, entry) in callers {
            callees.entry(caller).or_default().insert(callee.clone(), *entry);
        }
    }
    callees
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SESSION: &str = r#"{"duration_ns": 5, "targets": [{"kind": "py", "functions": [
        {"name": "leaf", "file": "/x.py", "line": 3, "calls": 7, "own_ns": 3000000, "cumulative_ns": 3000000,
         "primitive_calls": 7, "resumed": 0, "primitive_resumed": 0, "callers": [
            {"name": "top", "file": "/x.py", "line": 30, "calls": 5, "primitive_calls": 5,
             "own_ns": 2000000, "cumulative_ns": 2000000},
            {"name": "mid", "file": "/x.py", "line": 10, "calls": 2, "primitive_calls": 1,
             "own_ns": 1000000, "cumulative_ns": 1000000}]},
        {"name": "top", "file": "/x.py", "line": 30, "calls": 1, "own_ns": 1000000, "cumulative_ns": 4000000,
         "primitive_calls": 1, "resumed": 0, "primitive_resumed": 0}]}]}"#;

    fn printed(edges: Edges) -> String {
        let profile = Profile::from_session(&serde_json::from_str(SESSION).unwrap()).unwrap();
        print_edges(&profile, edges, &Printing::default(), usize::MAX)
    }

    #[test]
    fn callers_are_printed_below_each_other() {
        let expected = "   Random listing order was used

Function       was called by...
                   ncalls  tottime  cumtime
/x.py:3(leaf)  <-     2/1    0.001    0.001  /x.py:10(mid)
                        5    0.002    0.002  /x.py:30(top)
/x.py:30(top)  <- 
";
        assert_eq!(printed(Edges::Callers), expected);
    }

    #[test]
    fn only_the_callers_with_the_most_time_are_printed() {
        let profile = Profile::from_session(&serde_json::from_str(SESSION).unwrap()).unwrap();
        let text = print_edges(&profile, Edges::Callers, &Printing::default(), 1);
        assert!(text.contains("/x.py:30(top)\n") && text.contains("… 1 more\n"), "{text}");
        assert!(!text.contains("(mid)"), "{text}");
    }

    #[test]
    fn callees_are_inverted_callers() {
        let text = printed(Edges::Callees);
        assert!(text.contains("/x.py:3(leaf)  -> \n"), "{text}");
        assert!(text.contains("/x.py:30(top)  ->       5    0.002    0.002  /x.py:3(leaf)\n"), "{text}");
    }
}
