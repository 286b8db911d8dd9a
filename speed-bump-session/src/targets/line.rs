//! One line of a targets file: its kind, its patterns and its options. This module does not know how lines
//! affect each other.

use super::{
    KindReason, TargetKind,
    error::LineProblem,
    options::{self, Options},
    pattern::Pattern,
};

/// A line that is neither blank nor a comment.
#[derive(Debug)]
pub(super) struct Line {
    /// Whether the line starts with `!`.
    pub(super) excludes: bool,
    pub(super) patterns: Patterns,
    pub(super) options: Options,
}

/// The patterns of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patterns {
    pub(super) kind: LineKind,
    /// `[kind:]module[:provider]:name` as written, without white space around the colons.
    pub(super) written: String,
    pub(super) module: Pattern,
    pub(super) provider: Option<Pattern>,
    pub(super) name: Pattern,
}

/// The kind of a line, if the line alone decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// The line decides it.
    Known(TargetKind, KindReason),
    /// The module part is an absolute path. The line is native if the path names an ELF file, otherwise
    /// Python.
    ByFile,
}

impl LineKind {
    /// Whether the line has this kind if its module part names no ELF file.
    pub(super) fn is_without_elf(self, kind: TargetKind) -> bool {
        match self {
            Self::Known(known, _) => known == kind,
            Self::ByFile => kind == TargetKind::Python,
        }
    }
}

/// Reads a line; `None` if the line is blank or a comment.
pub(super) fn read(text: &str) -> Result<Option<Line>, LineProblem> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let (excludes, text) = match text.strip_prefix('!') {
        Some(text) => (true, text.trim_start()),
        None => (false, text),
    };
    let (patterns, words) = patterns(text)?;
    let options = match words.first() {
        // An option that starts with `#` is a comment, which has a message of its own.
        Some(word) if excludes && !word.starts_with('#') => {
            return Err(LineProblem::OptionOnExclusion { word: (*word).to_owned() });
        }
        _ => Options::read(&words)?,
    };
    Ok(Some(Line { excludes, patterns, options }))
}

fn patterns(text: &str) -> Result<(Patterns, Vec<&str>), LineProblem> {
    let (kind, rest) = written_kind(text)?;
    let (module, rest) = rest.split_once(':').ok_or(LineProblem::MissingColon { kind })?;
    let module = module.trim();
    if module.is_empty() {
        return Err(LineProblem::EmptyModule { kind });
    }
    let (provider, rest) = match kind {
        Some(TargetKind::Usdt) => {
            let (provider, rest) = rest.split_once(':').ok_or(LineProblem::MissingColon { kind })?;
            (Some(provider.trim()).filter(|provider| !provider.is_empty()), rest)
        }
        _ => (None, rest),
    };
    if kind == Some(TargetKind::Usdt) && provider.is_none() {
        return Err(LineProblem::EmptyProvider);
    }
    let (name, words) = options::split(rest);
    if name.is_empty() {
        return Err(LineProblem::EmptyName { kind });
    }

    let prefix = kind.map(TargetKind::prefix);
    let written: Vec<&str> = prefix.into_iter().chain([module]).chain(provider).chain([name]).collect();
    let patterns = Patterns {
        kind: kind.map_or_else(|| unwritten_kind(module), |kind| LineKind::Known(kind, KindReason::Written)),
        written: written.join(":"),
        module: Pattern::new(module)?,
        provider: provider.map(Pattern::new).transpose()?,
        name: Pattern::new(name)?,
    };
    Ok((patterns, words))
}

/// The kind that a line names, and the text after it.
///
/// If the word before the first `:` is a known kind, it always counts as the kind. So `native:malloc` is a
/// line that lacks a `:`, and not a Python module called `native`. For a module of that name, the user writes
/// `py:native:malloc`. Any other plain word counts as a misspelt kind if a single `:` follows later: names of
/// Python functions contain no `:`, and C++ writes `::`.
fn written_kind(text: &str) -> Result<(Option<TargetKind>, &str), LineProblem> {
    let Some((word, rest)) = text.split_once(':') else { return Ok((None, text)) };
    let word = word.trim();
    if let Some(kind) = TargetKind::ALL.into_iter().find(|kind| kind.prefix() == word) {
        return Ok((Some(kind), rest));
    }
    let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    // The value of an option may contain a `:`.
    if plain && options::split(rest).0.replace("::", "").contains(':') {
        return Err(LineProblem::UnknownKind { written: word.to_owned() });
    }
    Ok((None, text))
}

/// The kind of a line that names none.
fn unwritten_kind(module: &str) -> LineKind {
    let file = module.rsplit('/').next().unwrap_or(module);
    // The same names as the globs `*.so` and `*.so.*` match.
    if file.ends_with(".so") || file.contains(".so.") {
        return LineKind::Known(TargetKind::Native, KindReason::SharedObjectName);
    }
    if module.starts_with('/') {
        return LineKind::ByFile;
    }
    LineKind::Known(TargetKind::Python, KindReason::Default)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn line(text: &str) -> Line {
        read(text).unwrap().unwrap()
    }

    #[test]
    fn blank_lines_and_comments_are_nothing() {
        for text in ["", "  \t ", "# *:*", "   #"] {
            assert!(read(text).unwrap().is_none());
        }
    }

    #[test]
    fn a_colon_in_an_option_makes_no_kind() {
        let line = line("__main__:f caller=m.py:g id=a:b");
        assert_eq!(line.patterns.kind, LineKind::Known(TargetKind::Python, KindReason::Default));
        assert_eq!(line.patterns.written, "__main__:f");
    }

    #[test]
    fn kinds_are_written_or_follow_from_the_module() {
        use KindReason::{Default, SharedObjectName, Written};
        use TargetKind::{Native, Python, Usdt};
        for (text, kind, reason) in [
            ("*:*", Python, Default),
            ("*/a.py:f", Python, Default),
            ("py:*.so:f", Python, Written),
            ("py:py:f", Python, Written),
            ("native:*:f", Native, Written),
            (" native : * : f ", Native, Written),
            ("usdt:*:python:gc__start", Usdt, Written),
            ("/usr/lib/libcuda.so:cudaLaunchKernel", Native, SharedObjectName),
            ("*/libc.so.*:malloc", Native, SharedObjectName),
            ("libc.so.6:malloc", Native, SharedObjectName),
            ("libm.so:ns::f", Native, SharedObjectName),
            ("a.sock:f", Python, Default),
            ("module:ns::f", Python, Default),
        ] {
            let patterns = line(text).patterns;
            assert_eq!(patterns.kind, LineKind::Known(kind, reason), "{text}");
            let excluding = line(&format!("!{text}"));
            assert!(excluding.excludes);
            assert_eq!(excluding.patterns, patterns, "!{text}");
        }
    }

    #[test]
    fn the_kind_of_an_absolute_path_is_open() {
        for text in ["/usr/bin/app:main", "/usr/bin/app*:main", "/usr/bin/other:main", "/x.so/a:f"] {
            assert_eq!(line(text).patterns.kind, LineKind::ByFile, "{text}");
            assert_eq!(line(&format!("!{text}")).patterns.kind, LineKind::ByFile, "!{text}");
        }
    }

    #[test]
    fn the_split_is_at_the_first_colon_after_the_kind() {
        for (text, written, module, provider, name) in [
            ("module : name", "module:name", "module", None, "name"),
            ("lib.so:ns::f(int, long)", "lib.so:ns::f(int, long)", "lib.so", None, "ns::f(int, long)"),
            ("native:lib.so:a:b", "native:lib.so:a:b", "lib.so", None, "a:b"),
            ("py:[a:b]", "py:[a:b]", "[a", None, "b]"),
            ("usdt: * : python : gc__* ", "usdt:*:python:gc__*", "*", Some("python"), "gc__*"),
            ("usdt:*:a:b:c", "usdt:*:a:b:c", "*", Some("a"), "b:c"),
            ("/a b/c.py:f", "/a b/c.py:f", "/a b/c.py", None, "f"),
            ("*:f delay=1us", "*:f", "*", None, "f"),
        ] {
            let patterns = line(text).patterns;
            assert_eq!(patterns.written, written);
            assert_eq!(patterns.module.as_str(), module, "{text}");
            assert_eq!(patterns.provider.as_ref().map(Pattern::as_str), provider, "{text}");
            assert_eq!(patterns.name.as_str(), name, "{text}");
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        use TargetKind::{Native, Python, Usdt};
        for (text, problem) in [
            ("f", LineProblem::MissingColon { kind: None }),
            ("!f", LineProblem::MissingColon { kind: None }),
            ("!", LineProblem::MissingColon { kind: None }),
            ("native:malloc", LineProblem::MissingColon { kind: Some(Native) }),
            ("py:f", LineProblem::MissingColon { kind: Some(Python) }),
            ("usdt:*:gc__start", LineProblem::MissingColon { kind: Some(Usdt) }),
            (":f", LineProblem::EmptyModule { kind: None }),
            ("py::f", LineProblem::EmptyModule { kind: Some(Python) }),
            ("*:", LineProblem::EmptyName { kind: None }),
            ("*: delay=1us", LineProblem::EmptyName { kind: None }),
            ("native:*: ", LineProblem::EmptyName { kind: Some(Native) }),
            ("usdt:*::f", LineProblem::EmptyProvider),
            ("usdt:*:p:", LineProblem::EmptyName { kind: Some(Usdt) }),
            ("pyhton:*:f", LineProblem::UnknownKind { written: "pyhton".into() }),
            ("PY:*:f", LineProblem::UnknownKind { written: "PY".into() }),
            ("kprobe:*:f", LineProblem::UnknownKind { written: "kprobe".into() }),
            ("!kprobe:*:f", LineProblem::UnknownKind { written: "kprobe".into() }),
            ("!*:f delay=1us", LineProblem::OptionOnExclusion { word: "delay=1us".into() }),
            ("!*:f 10", LineProblem::OptionOnExclusion { word: "10".into() }),
            ("!*:f # why", LineProblem::InlineComment),
        ] {
            assert_eq!(read(text).unwrap_err(), problem, "{text}");
        }
    }
}
