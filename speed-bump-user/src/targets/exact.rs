//! Lines that select one function.

use std::path::Path;

use super::TargetKind;

/// A line of a targets file that selects the function of this name in this file, and of another file or name
/// only one that differs in nothing but characters that no line can have: white space, `:` and `#`, which
/// match any character.
pub fn line(kind: TargetKind, file: &Path, name: &str) -> String {
    format!("{}:{}:{}", kind.prefix(), escaped(&file.to_string_lossy()), escaped(name))
}

/// The same for a name without the classes and functions that it is in; it is the last part of a longer one.
pub fn inner_line(kind: TargetKind, file: &Path, name: &str) -> String {
    format!("{}:{}:*.{}", kind.prefix(), escaped(&file.to_string_lossy()), escaped(name))
}

/// A pattern that matches this text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '[' => pattern.push_str("[[]"),
            '*' => pattern.push_str("[*]"),
            '?' => pattern.push_str("[?]"),
            ':' | '#' | char::REPLACEMENT_CHARACTER => pattern.push('?'),
            character if character.is_whitespace() || character.is_control() => pattern.push('?'),
            character => pattern.push(character),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::targets::{Reading, Targets, source::TargetSource};

    fn targets(line: &str) -> Targets {
        TargetSource::lines("test", &[line]).read(Reading { is_elf: &|_| false, allow_empty: false }).unwrap()
    }

    proptest! {
        /// A line selects the function that it was made for.
        #[test]
        fn lines_select_their_function(
            file in "/[a-c\\[\\]*?!:# .é]{0,12}[a-c\\[*?]\\.py",
            name in "[a-c\\[\\]*?!<>.= é]{0,12}[a-c>]",
        ) {
            let line = line(TargetKind::Python, Path::new(&file), &name);
            let targets = targets(&line);
            let (_, target) = targets.iter().next().unwrap();
            prop_assert_eq!(target.kind, TargetKind::Python);
            prop_assert!(target.module.matches(&file), "{line}");
            prop_assert!(target.name.matches(&name), "{line}");
            prop_assert!(!target.name.matches(&format!("{name}x")), "{line}");
        }
    }

    #[test]
    fn methods_are_selected_by_their_last_part() {
        let targets = targets(&inner_line(TargetKind::Python, Path::new("/a.py"), "run"));
        let (_, target) = targets.iter().next().unwrap();
        assert!(target.name.matches("Worker.run") && !target.name.matches("overrun"));
    }
}
