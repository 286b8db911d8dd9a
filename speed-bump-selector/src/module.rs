//! The lines of a targets file that can select a function of one file.

use core::num::NonZero;

use core::ops::Range;

use crate::{
    Fingerprint, Selector,
    file::File,
    layout::{LineRecord, ModuleRecord},
};

/// The number of marks. If a targets file has no more lines than this, each line has a mark of its own: so it
/// is with 1,000 targets and their exclusions.
const MARKS: usize = 4096;

/// The targets that can select a function of one file, and the exclusions that can take it away.
///
/// Takes half a kilobyte, for any number of lines: a line has a mark of its own, or shares one with its
/// neighbours and is then checked again for each function.
#[derive(Clone, Debug)]
pub struct ModuleSelector<'b, 'f> {
    selector: Selector<'b>,
    file: File<'f>,
    marks: [u64; MARKS / 64],
    /// How many lines share a mark.
    sharing: NonZero<usize>,
    /// No target selects a function here.
    empty: bool,
    /// A function here may be a caller.
    has_callers: bool,
}

/// A target that selects a function, and the calls that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The number of the target, as the loader counts targets.
    pub target: u32,
    /// The number of the caller that it is for, from 1 on; 0: it is for all callers.
    pub caller: u32,
}

impl<'b, 'f> ModuleSelector<'b, 'f> {
    pub(crate) fn new(selector: Selector<'b>, file: File<'f>) -> Self {
        // Not zero, so that dividing by it needs no check that panics.
        let sharing = NonZero::new(selector.lines.len().div_ceil(MARKS)).unwrap_or(NonZero::<usize>::MIN);
        let mut module =
            Self { selector, file, marks: [0; MARKS / 64], sharing, empty: true, has_callers: false };
        let mut excluded = false;
        for record in selector.modules.iter().map(ModuleRecord::read) {
            if !selector.module_matches(&record, &file) {
                continue;
            }
            for line in selector.members(&record) {
                module.mark(line);
                if line < selector.target_lines {
                    module.empty = false;
                } else if line >= selector.callers {
                    module.has_callers = true;
                } else {
                    excluded |=
                        selector.line(line).is_some_and(|line| selector.pattern_is_everything(line.name));
                }
            }
        }
        module.empty |= excluded;
        module
    }

    /// Whether no function of the file can be selected.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// Whether a function of the file may be a caller of targets.
    pub fn has_callers(&self) -> bool {
        self.has_callers
    }

    /// The number of the first target that selects the function with this `co_qualname`, as the loader counts
    /// targets. It may be for some callers alone: see [`ModuleSelector::candidates`].
    pub fn select(&self, qualname: &str) -> Option<u32> {
        self.decide(qualname, |line| line.name)
    }

    /// The targets that select the function, in the order in which they are tried: up to the first that is
    /// for all callers.
    pub fn candidates(&self, qualname: &str) -> impl Iterator<Item = Candidate> {
        let mut rest = if self.select(qualname).is_some() { 0..self.selector.target_lines } else { 0..0 };
        let has = Fingerprint::from_text(qualname);
        let mut before = None;
        core::iter::from_fn(move || {
            loop {
                let matches = |line: &LineRecord| self.selector.pattern_matches(line.name, qualname, &has);
                let (number, line) = self.next(rest.clone(), matches)?;
                rest.start = if line.caller == 0 { rest.end } else { number + 1 };
                // A line for `__main__` is there for each file too.
                if before.replace(line.target) != Some(line.target) {
                    return Some(Candidate { target: line.target, caller: line.caller });
                }
            }
        })
    }

    /// As which callers targets name the function: the bits of their numbers, that of caller 1 first.
    pub fn as_caller(&self, qualname: &str) -> u32 {
        if !self.has_callers {
            return 0;
        }
        let has = Fingerprint::from_text(qualname);
        let mut rest = self.selector.callers..self.selector.lines.len();
        let mut bits = 0;
        let matches = |line: &LineRecord| self.selector.pattern_matches(line.name, qualname, &has);
        while let Some((number, line)) = self.next(rest.clone(), matches) {
            bits |= 1_u32.checked_shl(line.caller.wrapping_sub(1)).unwrap_or(0);
            rest.start = number + 1;
        }
        bits
    }

    /// Whether a function whose `co_name` is `name` may be a caller of targets, for any qualified name.
    pub fn may_call(&self, name: &str) -> bool {
        let calls = |line: &LineRecord| self.selector.pattern_may_end_in(line.name, name);
        self.has_callers && self.first(self.selector.callers..self.selector.lines.len(), calls).is_some()
    }

    /// Whether a function whose `co_name` is `name` may be selected, for any qualified name.
    ///
    /// `false` is certain; `true` says that the qualified name is worth finding. (A qualified name is `name`
    /// alone, or ends in `.` and `name`.)
    pub fn may_select(&self, name: &str) -> bool {
        let selects = |line: &LineRecord| self.selector.pattern_may_end_in(line.name, name);
        !self.empty && self.first(0..self.selector.target_lines, selects).is_some()
    }

    /// The target for a function of which only `co_name` is known: a guess, wrong in either direction, for
    /// functions whose qualified name cannot be found. Equals the loader's `select_by_last_component`, which
    /// documents the guess.
    pub fn select_by_last_component(&self, name: &str) -> Option<u32> {
        self.decide(name, |line| line.last_component)
    }

    /// The target of the first line whose pattern matches, unless an exclusion matches too.
    fn decide(&self, name: &str, pattern: impl Fn(&LineRecord) -> u32) -> Option<u32> {
        if self.empty {
            return None;
        }
        let has = Fingerprint::from_text(name);
        let matches = |line: &LineRecord| self.selector.pattern_matches(pattern(line), name, &has);
        let Selector { target_lines, callers, .. } = self.selector;
        let winner = self.first(0..target_lines, matches)?;
        self.first(target_lines..callers, matches).is_none().then_some(winner.target)
    }

    /// The first line among `lines` that applies to the file and that `accepts` takes.
    fn first(&self, lines: Range<usize>, accepts: impl Fn(&LineRecord) -> bool) -> Option<LineRecord> {
        self.next(lines, accepts).map(|(_, line)| line)
    }

    /// The first line among `lines` that applies to the file and that `accepts` takes, with its number.
    fn next(
        &self,
        lines: Range<usize>,
        accepts: impl Fn(&LineRecord) -> bool,
    ) -> Option<(usize, LineRecord)> {
        let marks = lines.start / self.sharing..(lines.end + self.sharing.get() - 1) / self.sharing;
        self.marked(marks).find_map(|mark| {
            let first = mark * self.sharing.get();
            let shared = first.max(lines.start)..(first + self.sharing.get()).min(lines.end);
            shared
                .filter_map(|number| Some((number, self.selector.line(number)?)))
                .find(|(_, line)| self.is_here(line) && accepts(line))
        })
    }

    /// Whether the line, whose mark is set, matches the file.
    fn is_here(&self, line: &LineRecord) -> bool {
        self.sharing.get() == 1
            || self
                .selector
                .modules
                .get(line.module as usize)
                .is_some_and(|module| self.selector.module_matches(&ModuleRecord::read(module), &self.file))
    }

    fn mark(&mut self, line: usize) {
        let mark = line / self.sharing;
        if let Some(word) = self.marks.get_mut(mark / 64) {
            *word |= 1 << (mark % 64);
        }
    }

    /// The lines of `range` with marks set, in order.
    fn marked(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let words = self.marks.iter().enumerate().take(range.end.div_ceil(64)).skip(range.start / 64);
        words
            .flat_map(|(at, &word)| {
                let mut left = word;
                core::iter::from_fn(move || {
                    let bit = left.trailing_zeros() as usize;
                    // Clear the lowest bit.
                    left &= left.checked_sub(1)?;
                    Some(at * 64 + bit)
                })
            })
            .skip_while(move |mark| *mark < range.start)
            .take_while(move |mark| *mark < range.end)
    }
}
