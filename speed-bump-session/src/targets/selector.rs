//! Compiles the Python targets of a file for the helper in a process; the crate `speed-bump-selector` reads
//! the result.

mod program;

use std::collections::HashMap;

use speed_bump_selector::layout::{
    CALLERS, HEADER_BYTES, Header, LineRecord, ModuleRecord, PatternRecord, checksum,
};

use self::program::Program;
use super::{
    Pattern, PatternError, Target, TargetKind, Targets, caller::Callers, dotted, main_module::modules,
};

/// Why we cannot compile targets. No accepted targets file is large enough for this error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The selector would have more bytes than its fields can count.
    #[error("the targets compile to more than 4 GiB; split the targets file, or write fewer patterns")]
    TooLarge,
    /// The targets name more different callers than there are bits.
    #[error(
        "the Python targets name {named} different callers (`caller=`), and there is room for {CALLERS}; \
         name several by one pattern, or use several sessions"
    )]
    TooManyCallers {
        /// The number of callers that the targets name.
        named: usize,
    },
    /// The last component of a name pattern is not a valid pattern.
    #[error("the name pattern `{pattern}` of line {line} cannot be compiled: {cause}")]
    LastComponent {
        /// The line of the targets file.
        line: usize,
        /// The name pattern.
        pattern: String,
        /// Why the last component is not valid.
        cause: PatternError,
    },
}

/// Compiles the Python targets and exclusions to the bytes of a selector.
///
/// # Errors
/// The targets exceed the limits of the layout.
pub fn compile(targets: &Targets) -> Result<Vec<u8>, CompileError> {
    let mut tables = Tables::default();
    let all = || targets.iter().map(|(_, target)| target);
    let callers = Callers::of_kind(all(), TargetKind::Python);
    if callers.len() > CALLERS as usize {
        return Err(CompileError::TooManyCallers { named: callers.len() });
    }
    let is_python = |target: &Target| target.kind == TargetKind::Python && !target.is_dropped;
    for (index, target) in targets.iter().filter(|(_, target)| is_python(target)) {
        let caller = callers.number(target.caller.as_ref());
        for module in modules(&target.module, &targets.main_files) {
            tables.add_line(target.line, module, &target.name, (index.0, caller))?;
        }
    }
    let target_lines = count(tables.lines.len())?;
    for exclusion in targets.exclusions().iter().filter(|exclusion| exclusion.kind == TargetKind::Python) {
        for module in modules(&exclusion.module, &targets.main_files) {
            tables.add_line(exclusion.line, module, &exclusion.name, (0, 0))?;
        }
    }
    let before_callers = tables.lines.len();
    let is_named = |number: u32| {
        let mut named = all().filter(|target| is_python(target));
        named.find(|target| callers.number(target.caller.as_ref()) == number)
    };
    for (number, caller) in callers.iter() {
        let Some(target) = is_named(number) else { continue };
        for module in modules(&caller.module, &targets.main_files) {
            tables.add_line(target.line, module, &caller.name, (0, number))?;
        }
    }
    let caller_lines = count(tables.lines.len() - before_callers)?;
    tables.finish(count(targets.len())?, target_lines, caller_lines)
}

/// The parts of the selector so far.
#[derive(Default)]
struct Tables {
    patterns: Vec<PatternRecord>,
    /// The number of each program. Equivalent patterns have the same program.
    pattern_numbers: HashMap<Program, u32>,
    modules: Vec<ModuleRecord>,
    /// The number of each module. The key is the module's pattern, and whether we compare that with dotted
    /// names.
    module_numbers: HashMap<(u32, bool), u32>,
    /// The lines of each module.
    members: Vec<Vec<u32>>,
    lines: Vec<LineRecord>,
    programs: Vec<u8>,
}

impl Tables {
    fn add_line(
        &mut self,
        line: usize,
        module: &Pattern,
        name: &Pattern,
        (target, caller): (u32, u32),
    ) -> Result<(), CompileError> {
        let last_component = name.last_component().map_err(|cause| CompileError::LastComponent {
            line,
            pattern: name.as_str().to_owned(),
            cause,
        })?;
        let number = count(self.lines.len())?;
        let record = LineRecord {
            module: self.module(module, number)?,
            name: self.pattern(name)?,
            last_component: self.pattern(&last_component)?,
            target,
            caller,
        };
        self.lines.push(record);
        Ok(())
    }

    /// The number of the module. Adds `line` to its lines.
    fn module(&mut self, module: &Pattern, line: u32) -> Result<u32, CompileError> {
        let dotted = dotted::applies(module);
        let pattern = self.pattern(module)?;
        let next = count(self.modules.len())?;
        let number = *self.module_numbers.entry((pattern, dotted)).or_insert(next);
        if number == next {
            self.modules.push(ModuleRecord { pattern, dotted: u32::from(dotted), first: 0, count: 0 });
            self.members.push(Vec::new());
        }
        if let Some(members) = self.members.get_mut(number as usize) {
            members.push(line);
        }
        Ok(number)
    }

    fn pattern(&mut self, pattern: &Pattern) -> Result<u32, CompileError> {
        let program = Program::new(pattern.pieces())?;
        if let Some(&number) = self.pattern_numbers.get(&program) {
            return Ok(number);
        }
        let number = count(self.patterns.len())?;
        self.patterns.push(program.record(count(self.programs.len())?)?);
        self.programs.extend_from_slice(program.bytes());
        self.pattern_numbers.insert(program, number);
        Ok(number)
    }

    fn finish(mut self, targets: u32, target_lines: u32, caller_lines: u32) -> Result<Vec<u8>, CompileError> {
        let mut first = 0;
        for (module, members) in self.modules.iter_mut().zip(&self.members) {
            module.first = first;
            module.count = count(members.len())?;
            first += module.count;
        }
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend(self.patterns.iter().flat_map(|record| record.to_bytes()));
        bytes.extend(self.modules.iter().flat_map(|record| record.to_bytes()));
        bytes.extend(self.lines.iter().flat_map(|record| record.to_bytes()));
        bytes.extend(self.members.iter().flatten().flat_map(|line| line.to_le_bytes()));
        bytes.extend(&self.programs);
        let header = Header {
            length: count(bytes.len())?,
            targets,
            patterns: count(self.patterns.len())?,
            modules: count(self.modules.len())?,
            lines: count(self.lines.len())?,
            target_lines,
            members: first,
            programs: count(self.programs.len())?,
            caller_lines,
        };
        write_header(&mut bytes, header, 0);
        let sum = checksum(&bytes);
        write_header(&mut bytes, header, sum);
        Ok(bytes)
    }
}

fn write_header(bytes: &mut [u8], header: Header, checksum: u64) {
    if let Some(place) = bytes.first_chunk_mut() {
        *place = header.to_bytes(checksum);
    }
}

/// Converts a number to the width that the layout has for it.
fn count(number: usize) -> Result<u32, CompileError> {
    u32::try_from(number).map_err(|_| CompileError::TooLarge)
}

#[cfg(test)]
mod tests;
