//! Writes lines that select one function.

use std::{borrow::Cow, path::Path};

use super::{
    MAX_LINE_BYTES, TargetKind, line as target_line,
    options::{self, Options},
};
use crate::printable::printable;

/// The most bytes of a name in a line. If a name is longer, we write its beginning, and then `*`.
const NAME_LIMIT: usize = MAX_LINE_BYTES / 2;

/// A line of a targets file that selects the function with this name in this file. A line cannot contain
/// white space, `:` or `#`. We replace these characters by patterns that match any character. So the line can
/// also select files and names that differ only in these characters.
pub fn line(kind: TargetKind, file: &Path, name: &str) -> String {
    let mut pattern = escaped(name);
    // As the first word of the name, `delay=1` would count as an option.
    if options::split(&pattern).0.is_empty() {
        pattern = pattern.replace('=', "?");
    }
    format!("{}:{}:{pattern}", kind.prefix(), escaped(&file.to_string_lossy()))
}

/// Like [`line()`], for a name without its outer classes and functions: this name is the last part of the
/// full name.
pub fn inner_line(kind: TargetKind, file: &Path, name: &str) -> String {
    format!("{}:{}:*.{}", kind.prefix(), escaped(&file.to_string_lossy()), escaped(name))
}

/// Like [`line()`]. Returns `None` if no line selects the function: its name or its file is empty, or too
/// long for a line.
pub fn selecting_line(kind: TargetKind, file: &Path, name: &str) -> Option<String> {
    read_back(line(kind, file, name), kind, file, name)
}

/// Like [`inner_line()`]. Returns `None` if no line selects the function, as in [`selecting_line()`].
pub fn selecting_inner_line(kind: TargetKind, file: &Path, name: &str) -> Option<String> {
    read_back(inner_line(kind, file, name), kind, file, &format!(".{name}"))
}

/// Returns the line if it selects this name.
fn read_back(line: String, kind: TargetKind, file: &Path, name: &str) -> Option<String> {
    let read = Some(&line).filter(|line| line.len() <= MAX_LINE_BYTES && !name.is_empty())?;
    let read = target_line::read(read).ok()??;
    let patterns = &read.patterns;
    let is_alone = !read.excludes && patterns.kind.is_without_elf(kind) && read.options == Options::default();
    let is_it = patterns.module.matches(&file.to_string_lossy()) && patterns.name.matches(name);
    (is_alone && is_it).then_some(line)
}

/// Like [`line()`], but with patterns only where plain text would have another meaning. For a USDT probe,
/// `name` is `provider:name`.
pub fn plain_line(kind: TargetKind, file: &str, name: &str) -> String {
    if kind == TargetKind::Python {
        let plain = format!("{file}:{name}");
        let is_read_back = target_line::read(&plain).is_ok_and(|line| {
            line.is_some_and(|line| {
                let is_bare = !line.excludes && line.patterns.kind.is_without_elf(kind);
                is_bare
                    && line.patterns.module.exact() == Some(file)
                    && line.patterns.name.exact() == Some(name)
            })
        });
        if is_read_back && is_visible(&plain) {
            return plain;
        }
    }
    let file = if has_pattern(file) || file.contains(':') { Cow::Owned(escaped(file)) } else { file.into() };
    format!("{}:{file}:{}", kind.prefix(), plain_name(kind, name))
}

/// A function's name for a line. If a line can contain the name, this returns it unchanged, and otherwise a
/// pattern that matches the name. For a USDT probe, `name` is `provider:name`.
pub fn plain_name(kind: TargetKind, name: &str) -> Cow<'_, str> {
    match name.split_once(':') {
        Some((provider, name)) if kind == TargetKind::Usdt => {
            format!("{}:{}", plain_part(kind, provider), plain_part(kind, name)).into()
        }
        _ => plain_part(kind, name),
    }
}

fn plain_part(kind: TargetKind, name: &str) -> Cow<'_, str> {
    // If a native function has exactly this name, we do not read the line as a pattern.
    let is_itself = kind == TargetKind::Native || !has_pattern(name);
    let is_read_back = || {
        // In a line of this kind, only the name could have another meaning.
        let line = match kind {
            TargetKind::Usdt => format!("usdt:*:*:{name}"),
            TargetKind::Native | TargetKind::Python => format!("{}:*:{name}", kind.prefix()),
        };
        let line = target_line::read(&line).ok().flatten();
        line.is_some_and(|line| line.patterns.name.as_str() == name && line.options == Options::default())
    };
    if name.len() <= NAME_LIMIT && is_itself && is_visible(name) && is_read_back() {
        return name.into();
    }
    let cut = name.char_indices().map(|(at, _)| at).find(|at| *at > NAME_LIMIT / 4);
    match cut.filter(|_| name.len() > NAME_LIMIT).and_then(|at| name.get(..at)) {
        Some(beginning) => format!("{}*", escaped(beginning)).into(),
        // As the first word of the name, `delay=1` would count as an option.
        None => escaped(name).replace('=', "?").into(),
    }
}

fn has_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether `printable` would leave the text unchanged.
fn is_visible(text: &str) -> bool {
    printable(text) == text
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
            character if character.is_whitespace() || !is_visible(character.encode_utf8(&mut [0; 4])) => {
                pattern.push('?');
            }
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
    use crate::targets::{Targets, source::TargetSource};

    fn targets(line: &str) -> Targets {
        TargetSource::lines("test", &[line]).read(false).unwrap().decide(|_| false)
    }

    proptest! {
        /// A line selects the function for which we made it.
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
    fn functions_that_no_line_selects_have_none() {
        let python = |file: &str, name: &str| selecting_line(TargetKind::Python, Path::new(file), name);
        let long = |length: usize| "n".repeat(length);
        for (file, name) in [
            ("", "f"),
            ("/a.py", ""),
            ("", ""),
            ("/a.py", &*long(MAX_LINE_BYTES)),
            (&*long(MAX_LINE_BYTES), "f"),
            (&*long(MAX_LINE_BYTES / 2), &*long(MAX_LINE_BYTES / 2)),
            // Each `*` becomes three characters of a pattern.
            ("/a.py", &*"*".repeat(MAX_LINE_BYTES / 2)),
        ] {
            assert_eq!(python(file, name), None, "{} and {}", file.len(), name.len());
            let inner = selecting_inner_line(TargetKind::Python, Path::new(file), name);
            assert!(inner.is_none() || name.is_empty(), "{inner:?}");
        }
        for name in [
            "f",
            " ",
            "\n",
            "a\nb",
            "\0",
            "\u{fffd}",
            "\u{202e}f",
            "\u{1b}[2J",
            "*",
            "[",
            "[!",
            "?",
            "a:b",
            ":",
            "!f",
            "!",
            "#",
            "#f",
            " f ",
            "f delay=1ms",
            "delay=1ms",
            "=",
            "native:f",
            "<locals>",
            ".",
            "\u{1f600}",
            &*long(MAX_LINE_BYTES / 2),
        ] {
            let line = python("/a.py", name).unwrap_or_else(|| unreachable!("{name:?}"));
            assert!(targets(&line).iter().next().unwrap().1.name.matches(name), "{line}");
            let of_file = python(name, "f").unwrap_or_else(|| unreachable!("{name:?}"));
            assert!(targets(&of_file).iter().next().unwrap().1.module.matches(name), "{of_file}");
            let inner = selecting_inner_line(TargetKind::Python, Path::new("/a.py"), name);
            assert!(inner.is_some(), "{name:?}");
        }
    }

    #[test]
    fn methods_are_selected_by_their_last_part() {
        let targets = targets(&inner_line(TargetKind::Python, Path::new("/a.py"), "run"));
        let (_, target) = targets.iter().next().unwrap();
        assert!(target.name.matches("Worker.run") && !target.name.matches("overrun"));
    }
}
