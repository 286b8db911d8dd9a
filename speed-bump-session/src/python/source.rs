//! Qualified names from source text, for entry sources that only give file, `co_name` and line.
//!
//! An index has every code object that CPython would compile from a file, in the order of their lines.
//! Parsing is lenient (tree-sitter): a syntax error only affects the names around it. What a function does,
//! or whether it is reachable, does not matter.
//!
//! The line from `function__entry` is `co_firstlineno` at the first entry (for a decorated function, the
//! first decorator's line), and the current line at every resumption of a generator or coroutine. In 3.15 it
//! is -1 at the first entry of a function with cells or free variables, whose first instruction has no line.
//! (Python/ceval.c, `dtrace_function_entry`; observed on 3.9.2 and 3.15.2.)

mod scope;
mod walk;

use std::{
    collections::HashMap,
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tree_sitter::{ParseOptions, Parser};

use super::{root::ProcessRoot, version::PythonVersion};

/// The largest source file that we read, in bytes; the largest of the standard library has 700 KB. A
/// malicious text can have a syntax tree of 350 times its size.
pub(crate) const SOURCE_LIMIT: u64 = 1 << 20;
/// The longest time for parsing one file: a malicious text can keep any lenient parser busy.
const PARSE_LIMIT: Duration = Duration::from_secs(2);
/// The most bytes of the qualified names of one file. With nested functions, they can be much longer than the
/// file.
const NAMES_LIMIT: usize = 32 << 20;

/// Why a file has no index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// `<string>`, `<frozen importlib._bootstrap>`.
    #[error("{0} names no file")]
    NotAFile(String),
    /// It cannot be read.
    #[error("cannot read {} in the process's root: {source}", path.display())]
    Unreadable {
        /// The file as the process names it.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
    /// Parsing takes too long.
    #[error("parsing was given up after {} s", PARSE_LIMIT.as_secs())]
    TooSlow,
    /// Its functions are nested more deeply than in any real program.
    #[error("the names of its functions take more than {} MiB", NAMES_LIMIT >> 20)]
    TooManyNames,
    /// The grammar and the parser were built for different versions of tree-sitter: a fault of ours.
    #[error("the Python grammar does not fit the parser: {0}")]
    Grammar(tree_sitter::LanguageError),
}

impl From<tree_sitter::LanguageError> for SourceError {
    fn from(error: tree_sitter::LanguageError) -> Self {
        Self::Grammar(error)
    }
}

impl SourceError {
    /// Whether the file is too large or complex, rather than missing or unreadable.
    pub(crate) fn is_of_size(&self) -> bool {
        match self {
            Self::TooSlow | Self::TooManyNames => true,
            Self::Unreadable { source, .. } => source.kind() == io::ErrorKind::FileTooLarge,
            Self::NotAFile(_) | Self::Grammar(_) => false,
        }
    }
}

/// A code object of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeObject {
    /// `co_name`.
    pub name: String,
    /// `co_qualname`, or what it would be before 3.11.
    pub qualname: String,
    /// `co_firstlineno`; lines count from 1.
    pub first_line: u32,
    /// The last line of its text.
    pub last_line: u32,
}

/// How a name was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchedBy {
    /// A code object of this name starts at the line.
    FirstLine,
    /// The line lies inside one: a generator resumed, or the file was edited since.
    Inside,
    /// By the name alone: there was no line, or no code object with the name is near it.
    Name,
}

/// The possible meanings of a name and a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates<'index> {
    /// Distinct qualified names; several if the text is ambiguous (two lambdas on one line).
    pub qualnames: Vec<&'index str>,
    /// How they were found.
    pub matched_by: MatchedBy,
}

/// The code objects of one file.
#[derive(Clone, Debug)]
pub(crate) struct SourceIndex {
    /// In the order of their first lines.
    objects: Vec<CodeObject>,
    /// Places in `objects`, ascending.
    by_name: HashMap<String, Vec<usize>>,
    has_errors: bool,
}

impl SourceIndex {
    /// Reads and indexes a file by the process's name for it; a relative path starts at its working folder.
    ///
    /// # Errors
    /// `co_filename` names no file, or one that cannot be read, is over [`SOURCE_LIMIT`] or cannot be parsed.
    pub(crate) fn read(
        root: &ProcessRoot,
        co_filename: &str,
        version: PythonVersion,
    ) -> Result<Self, SourceError> {
        if co_filename.is_empty() || co_filename.starts_with('<') {
            return Err(SourceError::NotAFile(co_filename.to_owned()));
        }
        let path = Path::new(co_filename);
        let text = root
            .read(path, SOURCE_LIMIT)
            .map_err(|source| SourceError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, version)
    }

    /// Indexes a file's text for the given release.
    ///
    /// # Errors
    /// Parsing takes too long, or the names take too much room.
    pub(crate) fn parse(text: &[u8], version: PythonVersion) -> Result<Self, SourceError> {
        let text = decode(text);
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_python::LANGUAGE.into())?;
        let started = Instant::now();
        let mut progress = |_: &_| {
            if started.elapsed() < PARSE_LIMIT { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let tree = parser
            .parse_with_options(
                &mut |offset, _| text.as_bytes().get(offset..).unwrap_or_default(),
                None,
                Some(ParseOptions::new().progress_callback(&mut progress)),
            )
            .ok_or(SourceError::TooSlow)?;

        let objects = walk::code_objects(&tree, text.as_bytes(), version, NAMES_LIMIT);
        let mut objects = objects.ok_or(SourceError::TooManyNames)?;
        objects.sort_by_key(|object| object.first_line);
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, object) in objects.iter().enumerate() {
            by_name.entry(object.name.clone()).or_default().push(place);
        }
        Ok(Self { objects, by_name, has_errors: tree.root_node().has_error() })
    }

    /// The possible meanings of a `co_name` and the line of a `function__entry`; `None` if the text has no
    /// such name.
    pub(crate) fn find(&self, co_name: &str, line: i32) -> Option<Candidates<'_>> {
        let places = self.by_name.get(co_name)?;
        let named: Vec<_> = places.iter().filter_map(|place| self.objects.get(*place)).collect();
        // 0 and -1 are not lines: the current instruction has none.
        let line = u32::try_from(line).unwrap_or(0);
        let span = |object: &CodeObject| object.last_line - object.first_line;
        let holds = |object: &CodeObject| (object.first_line..=object.last_line).contains(&line);
        let innermost = named.iter().filter(|object| holds(object)).map(|object| span(object)).min();

        let (matched_by, found): (_, Vec<_>) = if named.iter().any(|object| object.first_line == line) {
            (MatchedBy::FirstLine, named.into_iter().filter(|object| object.first_line == line).collect())
        } else if innermost.is_some() {
            let is_innermost = |object: &&CodeObject| holds(object) && Some(span(object)) == innermost;
            (MatchedBy::Inside, named.into_iter().filter(is_innermost).collect())
        } else {
            (MatchedBy::Name, named)
        };
        let mut qualnames: Vec<_> = found.into_iter().map(|object| object.qualname.as_str()).collect();
        qualnames.sort_unstable();
        qualnames.dedup();
        Some(Candidates { qualnames, matched_by })
    }

    /// Whether the grammar did not understand all of the text: names may then lack outer parts.
    pub(crate) fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// How much memory it takes, in bytes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        // Names are stored twice, and a position in two lists.
        let names = |object: &CodeObject| 2 * object.name.len() + object.qualname.len();
        self.objects.iter().map(|object| names(object) + 2 * size_of::<CodeObject>()).sum()
    }

    /// All code objects, in the order of their first lines, including the file's own, `<module>`.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn code_objects(&self) -> &[CodeObject] {
        &self.objects
    }
}

/// The text with CPython's line ends, and without a byte order mark. Text that is not UTF-8 counts as
/// Latin-1: other encodings (PEP 263) are rare, and names outside ASCII in them rarer still.
fn decode(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    };
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

#[cfg(test)]
mod tests;
