//! Reads the bytes of a targets file: its lines, its limits, and the names of targets in reports.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{
    Exclusion, Target,
    error::{LineError, LineErrors, LineProblem, MAX_FILE_BYTES, MAX_LINE_BYTES, NoTarget, TargetsError},
    line::{self, Line},
    parsed::{Parsed, ParsedTargets},
};

impl ParsedTargets {
    /// Reads a targets file; `-` is standard input. With `allow_empty` a file without targets is not an
    /// error: [`Targets::no_target`](super::Targets::no_target) has the warning.
    ///
    /// # Errors
    /// We cannot read the file, it has no target, or it has invalid lines. The error has all invalid lines.
    pub fn load(path: &Path, allow_empty: bool) -> Result<Self, TargetsError> {
        let (name, bytes) = contents(path)?;
        Self::parse(&name, &bytes, allow_empty)
    }

    /// Reads the bytes of a targets file; `source` is its name in errors.
    ///
    /// # Errors
    /// See [`load`](Self::load), except for errors of the file system.
    pub fn parse(source: &str, bytes: &[u8], allow_empty: bool) -> Result<Self, TargetsError> {
        let mut collected = Collected::default();
        let mut errors = Vec::new();
        let mut lines = 0;
        for (offset, bytes) in physical_lines(bytes) {
            lines += 1;
            if let Err(problem) = collected.add(lines, offset, bytes) {
                let text = String::from_utf8_lossy(bytes).trim().to_owned();
                errors.push(LineError { file: source.to_owned(), line: lines, text, problem });
            }
            if errors.len() == LineErrors::MAX {
                return Err(TargetsError::Lines(LineErrors { errors, truncated: true }));
            }
        }
        if !errors.is_empty() {
            return Err(TargetsError::Lines(LineErrors { errors, truncated: false }));
        }
        let targets = collected.finish().map_err(|(line, text, problem)| {
            let errors = vec![LineError { file: source.to_owned(), line, text, problem }];
            TargetsError::Lines(LineErrors { errors, truncated: false })
        })?;
        if !targets.targets.is_empty() {
            return Ok(targets);
        }
        let no_target = NoTarget { file: source.to_owned(), lines, exclusions: targets.exclusions.len() };
        if allow_empty {
            Ok(Self { no_target: Some(no_target), ..targets })
        } else {
            Err(TargetsError::NoTarget(no_target))
        }
    }
}

/// The bytes of a targets file, and its name in messages. `-` is standard input.
///
/// # Errors
/// We cannot read the file, or it is too large.
pub(super) fn contents(path: &Path) -> Result<(String, Vec<u8>), TargetsError> {
    if path == Path::new("-") {
        return read("standard input".to_owned(), Ok(io::stdin().lock()));
    }
    read(path.display().to_string(), File::open(path))
}

fn read(file: String, open: io::Result<impl io::Read>) -> Result<(String, Vec<u8>), TargetsError> {
    let mut bytes = Vec::new();
    // We never read much more than the limit: a device or a pipe does not give its size.
    let read = open.and_then(|open| open.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(read) if read as u64 > MAX_FILE_BYTES => Err(TargetsError::TooLarge { file }),
        Ok(_) => Ok((file, bytes)),
        Err(cause) => Err(match cause.kind() {
            io::ErrorKind::NotFound => TargetsError::Missing { file },
            io::ErrorKind::IsADirectory => TargetsError::Directory { file },
            _ => TargetsError::Unreadable { file, cause },
        }),
    }
}

/// The lines of a file, each with the byte offset at which it starts. `\n`, `\r\n` and `\r` end a line, as in
/// Python's text files. This skips a byte order mark.
fn physical_lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    let mut at = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let (line, end) = rest.split_at(length);
        at += length + if end.starts_with(b"\r\n") { 2 } else { 1 };
        Some((start, line))
    })
}

/// The contents of the lines that we have read so far.
#[derive(Default)]
struct Collected {
    targets: Vec<Parsed<Target>>,
    exclusions: Vec<Parsed<Exclusion>>,
    /// The line that gives each explicit id.
    ids: HashMap<String, usize>,
    /// The indices of targets without an explicit id.
    unnamed: Vec<usize>,
}

impl Collected {
    fn add(&mut self, number: usize, offset: usize, bytes: &[u8]) -> Result<(), LineProblem> {
        if bytes.len() > MAX_LINE_BYTES {
            return Err(LineProblem::TooLong { bytes: bytes.len() });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| LineProblem::NotUtf8 {
            offset: offset + error.valid_up_to(),
            byte: bytes.get(error.valid_up_to()).copied().unwrap_or_default(),
        })?;
        let Some(line) = line::read(text)? else { return Ok(()) };
        let Line { excludes, patterns, options } = line;
        let text = text.trim().to_owned();
        if excludes {
            self.exclusions.push(Parsed::new(patterns.kind, |kind, kind_reason| Exclusion {
                line: number,
                text,
                kind,
                kind_reason,
                module: patterns.module,
                provider: patterns.provider,
                name: patterns.name,
            }));
            return Ok(());
        }
        let id = match options.id {
            Some(id) => {
                if let Some(&first) = self.ids.get(&id) {
                    return Err(LineProblem::DuplicateId { id, first });
                }
                self.ids.insert(id.clone(), number);
                id
            }
            None => {
                self.unnamed.push(self.targets.len());
                String::new()
            }
        };
        self.targets.push(Parsed::new(patterns.kind, |kind, kind_reason| Target {
            line: number,
            text,
            kind,
            kind_reason,
            pattern: patterns.written,
            module: patterns.module,
            provider: patterns.provider,
            name: patterns.name,
            delay: options.delay,
            frequency: options.frequency,
            caller: options.caller,
            id,
            is_dropped: false,
        }));
        Ok(())
    }

    /// Names the targets that have no explicit id by their pattern and caller. If another target has that
    /// name, adds ` (line N)`. An error has the line, its text and the fault.
    fn finish(mut self) -> Result<ParsedTargets, (usize, String, LineProblem)> {
        for &at in &self.unnamed {
            let Some(Parsed { line: target, .. }) = self.targets.get_mut(at) else { continue };
            let mut id = target.pattern_and_caller();
            if self.ids.contains_key(&id) {
                id = format!("{id} (line {})", target.line);
            }
            // This id is taken only if some pattern itself ends in ` (line N)`.
            if let Some(first) = self.ids.insert(id.clone(), target.line) {
                return Err((target.line, target.text.clone(), LineProblem::DuplicateId { id, first }));
            }
            target.id = id;
        }
        let Self { targets, exclusions, .. } = self;
        Ok(ParsedTargets { targets, exclusions, no_target: None })
    }
}

#[cfg(test)]
mod tests;
