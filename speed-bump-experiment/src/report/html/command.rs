//! What makes the experiment again, and what it was made with.

use maud::{Markup, html};

use super::cells::foreign;
use crate::{
    printable::{at_most, printable},
    record::Measured,
};

/// Columns of a command.
const COMMAND: usize = 2_000;

/// The command, with the seed of this one, and the machine.
pub(super) fn again(measured: &Measured) -> Markup {
    let mut words: Vec<String> = measured.command.iter().map(|word| quoted(word)).collect();
    if !measured.command.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        words.push(format!("--seed {}", measured.seed));
    }
    let versions = &measured.versions;
    let commit = if versions.commit.is_empty() { String::new() } else { format!(" ({})", versions.commit) };
    html! {
        footer {
            section aria-labelledby="again" {
                h2 id="again" { "To run it again" }
                pre { code { (at_most(printable(words.join(" ")), COMMAND)) } }
                dl {
                    dt { "Processor" } dd { (foreign(&measured.cpu)) }
                    dt { "Kernel" } dd { (foreign(&measured.kernel)) }
                    dt { "speed-bump-ebpf" } dd { (foreign(&versions.tool)) (foreign(&commit)) }
                    dt { "Seed" } dd { (measured.seed) }
                    dt { "Counted by" } dd { (foreign(&measured.unit.source)) }
                }
            }
            section aria-labelledby="words" {
                h2 id="words" { "What the words mean" }
                dl {
                    dt { "sensitivity" }
                    dd {
                        "The share of added time that shows in the time of a unit. 1: each microsecond "
                        "shows. 0: it stays hidden behind something else."
                    }
                    dt { "worth at most" }
                    dd {
                        "Sensitivity × own time, over the time of a unit: what making the function free "
                        "would gain."
                    }
                    dt { "does not matter" }
                    dd { "Shown to be below the bound, with an error of 5 %. Not merely: nothing was seen." }
                    dt { "undecided" }
                    dd {
                        "Neither is shown, or it shows and may be too little. The interval says what is "
                        "possible."
                    }
                }
            }
        }
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("--pid"), "--pid");
        assert_eq!(quoted("*/app.py:f"), "'*/app.py:f'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
