//! A whole selector: checked once, then read in place.

use crate::{
    Fingerprint, ModuleSelector, SelectorError,
    file::File,
    layout::{
        CALLERS, HEADER_BYTES, Header, LINE_BYTES, LineRecord, MAGIC, MEMBER_BYTES, MODULE_BYTES,
        ModuleRecord, PATTERN_BYTES, PatternRecord, VERSION, checksum, whole,
    },
    matcher::{self, Reading},
    program::{self, Shape},
};

/// The Python targets of a targets file, and its exclusions.
#[derive(Clone, Copy, Debug)]
pub struct Selector<'b> {
    patterns: &'b [[u8; PATTERN_BYTES]],
    pub(crate) modules: &'b [[u8; MODULE_BYTES]],
    pub(crate) lines: &'b [[u8; LINE_BYTES]],
    /// How many of `lines` are targets.
    pub(crate) target_lines: usize,
    /// Where in `lines` the callers begin.
    pub(crate) callers: usize,
    members: &'b [[u8; MEMBER_BYTES]],
    programs: &'b [u8],
    targets: u32,
}

impl<'b> Selector<'b> {
    /// Checks the loader's bytes.
    ///
    /// # Errors
    /// The bytes are not exactly one selector of this version, unchanged.
    pub fn new(bytes: &'b [u8]) -> Result<Self, SelectorError> {
        let (header, body) = bytes.split_first_chunk().ok_or(SelectorError::NotASelector)?;
        let [magic_low, magic_high, version, length, targets, counts @ .., sum_low, sum_high] =
            Header::words(header);
        if whole(magic_low, magic_high) != MAGIC {
            return Err(SelectorError::NotASelector);
        }
        if version != VERSION {
            return Err(SelectorError::Version { found: version });
        }
        let wrong_length = SelectorError::Length { found: bytes.len() };
        if usize::try_from(length) != Ok(bytes.len()) {
            return Err(wrong_length);
        }
        let [patterns, modules, lines, target_lines, members, programs, caller_lines] = counts;
        let (patterns, body) = table(body, patterns).ok_or(wrong_length)?;
        let (modules, body) = table(body, modules).ok_or(wrong_length)?;
        let (lines, body) = table(body, lines).ok_or(wrong_length)?;
        let (members, body) = table(body, members).ok_or(wrong_length)?;
        if usize::try_from(programs) != Ok(body.len()) {
            return Err(wrong_length);
        }
        if checksum(bytes) != whole(sum_low, sum_high) {
            return Err(SelectorError::Checksum);
        }
        let target_lines = target_lines as usize;
        let wrong = SelectorError::TargetLines { found: target_lines as u32 };
        let callers = lines.len().checked_sub(caller_lines as usize).ok_or(wrong)?;
        let selector =
            Self { patterns, modules, lines, target_lines, callers, members, programs: body, targets };
        selector.check()?;
        Ok(selector)
    }

    /// The number of the target that selects the function with this `co_filename` and `co_qualname`, as the
    /// loader counts targets.
    ///
    /// For many functions of one file, use [`Selector::in_module`].
    pub fn select(&self, file: &str, qualname: &str) -> Option<u32> {
        self.in_module(file).select(qualname)
    }

    /// Whether a function in this file whose `co_name` is `name` may be selected, or be a caller of targets:
    /// see [`ModuleSelector::may_select`] and [`ModuleSelector::may_call`].
    pub fn may_concern(&self, file: &str, name: &str) -> bool {
        let module = self.in_module(file);
        module.may_select(name) || module.may_call(name)
    }

    /// Whether no function of the file with this `co_filename` can be selected, or be a caller of targets.
    pub fn concerns_nothing_in(&self, file: &str) -> bool {
        let module = self.in_module(file);
        module.is_empty() && !module.has_callers()
    }

    /// Whether some target is for some callers alone.
    pub fn has_callers(&self) -> bool {
        self.callers < self.lines.len()
    }

    /// The lines that can select a function of the file with this `co_filename`.
    pub fn in_module<'f>(&self, file: &'f str) -> ModuleSelector<'b, 'f> {
        ModuleSelector::new(*self, File::new(file))
    }

    /// The number of targets in the targets file, of all kinds: every answer is below it.
    pub fn targets(&self) -> u32 {
        self.targets
    }

    /// Whether the pattern matches the text; `has` are the text's pairs.
    pub(crate) fn pattern_matches(&self, pattern: u32, text: &str, has: &Fingerprint) -> bool {
        self.pattern(pattern).is_some_and(|pattern| {
            has.contains(&pattern.needs)
                && text.len() >= pattern.least as usize
                && matcher::matches(self.program(&pattern), text, Reading::Plain)
        })
    }

    /// Whether the pattern may match a qualified name whose last component is `component`.
    pub(crate) fn pattern_may_end_in(&self, pattern: u32, component: &str) -> bool {
        self.pattern(pattern).is_some_and(|pattern| {
            let tail = self.program(&pattern).get(pattern.tail as usize..).unwrap_or_default();
            matcher::may_end_in(tail, pattern.tail_chars as usize, pattern.tail != 0, component)
        })
    }

    /// Whether the pattern is `*`.
    pub(crate) fn pattern_is_everything(&self, pattern: u32) -> bool {
        // One step, a `*`: nothing follows it, and a match may be empty.
        self.pattern(pattern).is_some_and(|pattern| pattern.length == 1 && pattern.tail == 1)
    }

    /// Whether the module matches the file, by its path or by a dotted name.
    pub(crate) fn module_matches(&self, module: &ModuleRecord, file: &File<'_>) -> bool {
        self.pattern_matches(module.pattern, file.path, &file.has)
            || module.dotted == 1 && self.pattern_matches_dotted(module.pattern, file)
    }

    fn pattern_matches_dotted(&self, pattern: u32, file: &File<'_>) -> bool {
        self.pattern(pattern).is_some_and(|pattern| {
            let program = self.program(&pattern);
            file.dotted_have.contains(&pattern.needs)
                && file.dotted_names().any(|name| matcher::matches(program, name, Reading::Dotted))
        })
    }

    /// The lines that have the module.
    pub(crate) fn members(&self, module: &ModuleRecord) -> impl Iterator<Item = usize> {
        let first = module.first as usize;
        let end = first.saturating_add(module.count as usize);
        let members = self.members.get(first..end).unwrap_or_default();
        members.iter().map(|line| u32::from_le_bytes(*line) as usize)
    }

    fn pattern(&self, number: u32) -> Option<PatternRecord> {
        self.patterns.get(number as usize).map(PatternRecord::read)
    }

    fn program(&self, pattern: &PatternRecord) -> &'b [u8] {
        self.try_program(pattern).unwrap_or_default()
    }

    fn try_program(&self, pattern: &PatternRecord) -> Option<&'b [u8]> {
        let start = pattern.start as usize;
        self.programs.get(start..start.checked_add(pattern.length as usize)?)
    }

    /// Checks all references.
    fn check(&self) -> Result<(), SelectorError> {
        for (number, pattern) in (0..).zip(self.patterns) {
            let pattern = PatternRecord::read(pattern);
            let shape = self.try_program(&pattern).and_then(program::check);
            let written = Shape {
                least: pattern.least as usize,
                tail: pattern.tail as usize,
                tail_chars: pattern.tail_chars as usize,
            };
            if shape != Some(written) {
                return Err(SelectorError::Pattern(number));
            }
        }
        let is_pattern = |number: u32| self.pattern(number).is_some();
        for (number, module) in (0..).zip(self.modules) {
            let module = ModuleRecord::read(module);
            let end = (module.first as usize).checked_add(module.count as usize);
            let listed = end.is_some_and(|end| end <= self.members.len());
            if !is_pattern(module.pattern) || module.dotted > 1 || !listed {
                return Err(SelectorError::Module(number));
            }
            // A line is in its module's list, and in no other.
            let own = |line: usize| self.line(line).is_some_and(|line| line.module == number);
            if !self.members(&module).all(own) {
                return Err(SelectorError::Module(number));
            }
        }
        if self.target_lines > self.callers || self.members.len() != self.lines.len() {
            return Err(SelectorError::TargetLines { found: self.target_lines as u32 });
        }
        for (number, line) in (0_u32..).zip(self.lines) {
            let line = LineRecord::read(line);
            let target = if (number as usize) < self.target_lines {
                line.target < self.targets && line.caller <= CALLERS
            } else if (number as usize) < self.callers {
                line.target == 0 && line.caller == 0
            } else {
                line.target == 0 && (1..=CALLERS).contains(&line.caller)
            };
            let module = (line.module as usize) < self.modules.len();
            if !module || !is_pattern(line.name) || !is_pattern(line.last_component) || !target {
                return Err(SelectorError::Line(number));
            }
        }
        Ok(())
    }

    pub(crate) fn line(&self, number: usize) -> Option<LineRecord> {
        self.lines.get(number).map(LineRecord::read)
    }
}

/// A table of `count` rows at the start of `bytes`, and what follows it.
fn table<const ROW: usize>(bytes: &[u8], count: u32) -> Option<(&[[u8; ROW]], &[u8])> {
    let (table, rest) = bytes.split_at_checked(usize::try_from(count).ok()?.checked_mul(ROW)?)?;
    Some((table.as_chunks().0, rest))
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(4));
