//! Finds qualified names in source text, for entry sources that only give file, `co_name` and line.
//!
//! An index has every code object that CPython would compile from a file, sorted by first line. Parsing is
//! lenient (tree-sitter): a syntax error only affects the names around it. What a function does, or whether
//! it is reachable, does not matter.
//!
//! The line from `function__entry` is `co_firstlineno` at the first entry (for a decorated function, the line
//! of its first decorator). Each time that a generator or coroutine resumes, `function__entry` gives the
//! current line. In 3.15 the line is -1 at the first entry of a function with cells or free variables, whose
//! first instruction has no line. (Python/ceval.c, `dtrace_function_entry`; observed on 3.9.2 and 3.15.2.)

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

/// The largest source file that we read, in bytes. The largest file of the standard library has 700 KB. The
/// syntax tree of a malicious text can take 350 times the size of the text.
pub(crate) const SOURCE_LIMIT: u64 = 1 << 20;
/// The longest time for parsing one file. A malicious text can keep any lenient parser busy.
const PARSE_LIMIT: Duration = Duration::from_secs(2);
/// The most bytes of the qualified names of one file. If functions are nested, their names can be much longer
/// than the file.
const NAMES_LIMIT: usize = 32 << 20;

/// Why a file has no index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// Not the name of a file, such as `<string>` or `<frozen importlib._bootstrap>`.
    #[error("{0} names no file")]
    NotAFile(String),
    /// The file cannot be read.
    #[error("cannot read {} in the process's root: {source}", path.display())]
    Unreadable {
        /// The path of the file, as the process names it.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
    /// Parsing the file takes too long.
    #[error("parsing was given up after {} s", PARSE_LIMIT.as_secs())]
    TooSlow,
    /// The functions in the file are nested more deeply than in any real program.
    #[error("the names of its functions take more than {} MiB", NAMES_LIMIT >> 20)]
    TooManyNames,
    /// The grammar and the parser were built for different versions of tree-sitter. This is a mistake of
    /// ours.
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

/// A code object that CPython would compile from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeObject {
    /// `co_name`.
    pub name: String,
    /// `co_qualname`, or the name that 3.11 would give to the code object.
    pub qualname: String,
    /// `co_firstlineno`; lines count from 1.
    pub first_line: u32,
    /// The last line of the code object's source text.
    pub last_line: u32,
}

/// How we found a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchedBy {
    /// A code object of this name starts at the line.
    FirstLine,
    /// The line lies inside a code object of this name: a generator resumed, or someone has edited the file
    /// since.
    Inside,
    /// Only the name matches: the line is unknown, or is far from every code object with this name.
    Name,
}

/// The code objects that a name and a line may stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates<'index> {
    /// Distinct qualified names; several if the text is ambiguous (two lambdas on one line).
    pub qualnames: Vec<&'index str>,
    /// How we found the code objects.
    pub matched_by: MatchedBy,
}

/// The code objects of one file.
#[derive(Clone, Debug)]
pub(crate) struct SourceIndex {
    /// Sorted by first line.
    objects: Vec<CodeObject>,
    /// Positions in `objects` for each `co_name`, ascending.
    by_name: HashMap<String, Vec<usize>>,
    has_errors: bool,
}

impl SourceIndex {
    /// Reads and indexes a file. The path is as the process names it. A relative path starts at the process's
    /// working folder.
    ///
    /// # Errors
    /// `co_filename` names no file, or the file is larger than [`SOURCE_LIMIT`], or we cannot read or parse
    /// it.
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

    /// Indexes the text of a file for this release of CPython.
    ///
    /// # Errors
    /// Parsing takes too long, or the names together are too long.
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

    /// The code objects that a `co_name` and the line of a `function__entry` may stand for; `None` if the
    /// text has no such name.
    pub(crate) fn find(&self, co_name: &str, line: i32) -> Option<Candidates<'_>> {
        let places = self.by_name.get(co_name)?;
        let named: Vec<_> = places.iter().filter_map(|place| self.objects.get(*place)).collect();
        // 0 and -1 mean that the current instruction has no line.
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

    /// Whether the grammar did not understand all of the text. If so, names may lack outer parts.
    pub(crate) fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// An estimate of the memory that the index takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // We store names twice, and a position in two lists.
        let names = |object: &CodeObject| 2 * object.name.len() + object.qualname.len();
        self.objects.iter().map(|object| names(object) + 2 * size_of::<CodeObject>()).sum()
    }

    /// All code objects, sorted by first line, with the file's own (`<module>`).
    #[cfg(any(test, fuzzing))]
    pub(crate) fn code_objects(&self) -> &[CodeObject] {
        &self.objects
    }
}

/// Decodes the text: with CPython's line ends, and without a byte order mark. Text that is not UTF-8 counts
/// as Latin-1: other encodings (PEP 263) are rare, and non-ASCII names in such files are rarer still.
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
