//! The command that repeats the experiment, the machine, and explanations.

use maud::{Markup, html};

use super::cells::foreign;
use crate::{
    printable::{at_most, printable},
    record::Measured,
};

/// The longest command, in columns.
const COMMAND: usize = 2_000;

/// The command with the seed, the machine, and the meaning of terms.
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
                        "The share of added time that shows up in the time per unit. 1: each microsecond "
                        "shows. 0: it stays hidden behind something else."
                    }
                    dt { "worth at most" }
                    dd {
                        "Sensitivity × own time, divided by the time per unit: what making the function free "
                        "would gain."
                    }
                    dt { "does not matter" }
                    dd {
                        "Shown to be below the bound, with an error of 5 %. The absence of an effect is not "
                        "enough."
                    }
                    dt { "undecided" }
                    dd {
                        "Neither is shown, or an effect is shown that may be too small. The interval says "
                        "what is possible."
                    }
                }
            }
        }
    }
}

/// Quotes a word for a shell.
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
