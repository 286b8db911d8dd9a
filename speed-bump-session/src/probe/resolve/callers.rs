//! Where the callers lie that native targets name with `caller=`: the code of functions that their patterns
//! select, in the files that a process maps.

use std::{borrow::Cow, sync::Arc};

use speed_bump_abi::{CallerRange, native_callers::RANGES_OF_PROCESS};

use super::{FileError, Resolver, elf_of, probe_file, unread};
use crate::{
    elf::{Candidates, Functions, Named, Segments, SymbolName},
    probe::{
        caller_ranges::{self, Code},
        plan::{CallerCode, Plan, Remark},
        site::function_of_fragment,
    },
    process::{MappedFile, MappedRange, Mappings, Process},
    targets::native_callers::{NativeCallers, bits},
    units::VirtualAddress,
};

/// The callers in one file; the same in every process that maps it.
#[derive(Debug, Default)]
pub(super) struct CallersInFile {
    /// Their code, by offsets in the file.
    ranges: Vec<CallerRange>,
    found: u32,
}

impl Resolver {
    /// Adds to a plan where the callers lie that its sites ask for. If that cannot be known, the functions
    /// are left out: their calls would count for the wrong targets.
    pub(super) fn plan_callers(&self, process: &Process, mappings: &Mappings, plan: &mut Plan) {
        if plan.sites.iter().all(|site| site.caller.is_none()) {
            return;
        }
        match self.caller_code(process, mappings, plan) {
            Ok(callers) => plan.callers = Some(callers),
            Err(why) => {
                let remarks = plan.drop_callers().into_iter();
                let remarks = remarks.map(|target| Remark { target: Some(target), text: why.clone() });
                let remarks: Vec<Remark> = remarks.collect();
                plan.out_of_reach.extend(remarks.iter().cloned());
                plan.remarks.extend(remarks);
            }
        }
    }

    fn caller_code(
        &self,
        process: &Process,
        mappings: &Mappings,
        plan: &mut Plan,
    ) -> Result<CallerCode, String> {
        let mut codes = Vec::new();
        let mut found = 0;
        for mapped in &mappings.files {
            let path = mapped.path_in_process.to_string_lossy();
            if self.callers.native_in(&path).is_empty() {
                continue;
            }
            let in_file = match self.callers_in(process, mapped) {
                Ok(in_file) => in_file,
                Err(error) if error.is_out_of_reach() => {
                    return Err(format!("who calls from {path} (`caller=`) is not known: {error}"));
                }
                Err(error) => {
                    self.remark_on_callers(
                        plan,
                        &format!("no caller can be found in {path}: {error}"),
                        &path,
                    );
                    continue;
                }
            };
            found |= in_file.found;
            let runs = mapped.executable_ranges().flat_map(|range| in_memory(&in_file.ranges, range));
            // A process can map a file any number of times.
            codes.extend(runs.take((RANGES_OF_PROCESS as usize + 1).saturating_sub(codes.len())));
            if codes.len() > RANGES_OF_PROCESS as usize {
                return Err(format!(
                    "`caller=` selects functions in more than {RANGES_OF_PROCESS} separate places of process \
                     {}: narrow the pattern, or name its module (`caller=MODULE:NAME`)",
                    process.pid()
                ));
            }
        }
        Ok(CallerCode { ranges: caller_ranges::in_process(&codes).into(), found })
    }

    /// The callers in a file, remembered from the first call.
    fn callers_in(&self, process: &Process, mapped: &MappedFile) -> Result<Arc<CallersInFile>, FileError> {
        let file = probe_file(process, mapped)?;
        let key = (file.id(), file.identity());
        if let Some(known) = self.caller_files.borrow().get(&key) {
            return Ok(Arc::clone(known));
        }
        let read = || {
            let elf = elf_of(&file)?;
            let functions = self.known.functions(&elf, file.file(), file.path(), process, self.effort())?;
            let path = file.path().to_string_lossy();
            Ok::<_, FileError>(in_file(&self.callers, &path, &functions, elf.segments()))
        };
        let in_file = Arc::new(self.effort().read(read).map_err(|why| unread(&file, why))??);
        let mut files = self.caller_files.borrow_mut();
        if files.len() == super::FILES_KNOWN {
            files.clear();
        }
        files.insert(key, Arc::clone(&in_file));
        Ok(in_file)
    }

    /// A remark on the targets whose callers may be in this file, except those that name no module.
    fn remark_on_callers(&self, plan: &mut Plan, text: &str, path: &str) {
        for (index, target) in self.targets().iter() {
            let module = target.caller.as_ref().map(|caller| &caller.module);
            if self.callers.number(index) > 0
                && module.is_some_and(|module| module.as_str() != "*" && module.matches(path))
            {
                plan.remarks.push(Remark { target: Some(index), text: text.to_owned() });
            }
        }
    }
}

/// The callers among the functions of a file.
fn in_file(callers: &NativeCallers, path: &str, functions: &Functions, segments: &Segments) -> CallersInFile {
    let matcher = callers.native_in(path);
    let forms = matcher.forms();
    let named = functions.named_where(|name| forms.may_matter(name));
    // A moved piece is code of its function.
    let named = named.map(|(symbol, names)| (symbol, names_of_whole(symbol).unwrap_or(names)));
    let mut codes: Vec<Code> = Vec::new();
    let mut found = 0;
    let code = |start: VirtualAddress, length, callers| Code { start: start.0, length, callers };
    for (symbol, selection) in matcher.select_all(named) {
        let callers = bits(&selection);
        match symbol {
            Named::Function(function) => {
                let length = if function.size == 0 {
                    unsized_length(functions, function.address)
                } else {
                    function.size
                };
                codes.push(code(function.address, length, callers));
                found |= callers;
            }
            Named::Refused(refused) => {
                codes.extend(refused.part.map(|(start, length)| code(start, length, callers)));
            }
            Named::Indirect(_) => {}
        }
    }
    if found == 0 {
        return CallersInFile::default();
    }
    // Other functions, which may lie between the callers.
    let all = functions.functions().iter();
    codes.extend(all.map(|function| code(function.address, function.size.max(1), 0)));
    let parts = functions.refused().iter().filter_map(|refused| refused.part);
    codes.extend(parts.map(|(start, length)| code(start, length, 0)));
    let executable = segments.iter().filter(|segment| segment.executable);
    let ranges = caller_ranges::in_file(&codes);
    let in_file = executable.flat_map(|segment| {
        let (from, to) = (segment.address.0, segment.address.0.saturating_add(segment.file_size));
        ranges.iter().filter_map(move |range| {
            let (start, end) = (range.start.max(from), range.end.min(to));
            let offset = |address: u64| segment.offset.0.checked_add(address - from);
            (start < end).then(|| Some(CallerRange { start: offset(start)?, end: offset(end)?, ..*range }))?
        })
    });
    CallersInFile { ranges: in_file.collect(), found }
}

/// The names of the function that a symbol is a moved piece of, if it is one.
fn names_of_whole(symbol: Named<'_>) -> Option<Candidates<'_>> {
    let name = match symbol {
        Named::Function(function) => function.names.canonical(),
        Named::Refused(refused) if refused.part.is_some() => &refused.name,
        Named::Refused(_) | Named::Indirect(_) => return None,
    };
    let whole = function_of_fragment(name.as_str())?;
    let whole = SymbolName::new(whole.as_bytes(), None, name.binding(), name.table());
    let names: Vec<String> = whole.candidates().map(Cow::into_owned).collect();
    Some(Box::new(names.into_iter().map(Cow::Owned)))
}

/// A function whose size no table gives reaches up to the next one.
fn unsized_length(functions: &Functions, address: VirtualAddress) -> u64 {
    let functions = functions.functions();
    let next = functions.partition_point(|function| function.address <= address);
    functions.get(next).map_or(1, |next| next.address.0 - address.0)
}

/// Where ranges of a file lie in a part of memory that is mapped from it.
fn in_memory(ranges: &[CallerRange], mapped: &MappedRange) -> impl Iterator<Item = Code> {
    let (from, length) = (mapped.offset.0, mapped.end.0.saturating_sub(mapped.start.0));
    let (to, memory) = (from.saturating_add(length), mapped.start.0);
    ranges.iter().filter_map(move |range| {
        let (start, end) = (range.start.max(from), range.end.min(to));
        let start_in_memory = memory.checked_add(start.checked_sub(from)?)?;
        (start < end).then(|| Code { start: start_in_memory, length: end - start, callers: range.callers })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::FileOffset;

    #[test]
    fn ranges_lie_where_the_file_is_mapped() {
        let range = |start, end| CallerRange { start, end, callers: 5, reserved: 0 };
        let ranges = [range(0x10, 0x20), range(0xff0, 0x1010), range(0x1ff0, u64::MAX)];
        let found = |start: u64, end: u64, offset: u64| -> Vec<(u64, u64)> {
            let (start, end) = (VirtualAddress(start), VirtualAddress(end));
            let mapped = MappedRange { start, end, offset: FileOffset(offset), executable: true };
            in_memory(&ranges, &mapped).map(|code| (code.start, code.length)).collect()
        };
        assert_eq!(found(0x7000, 0x8000, 0), [(0x7010, 0x10), (0x7ff0, 0x10)]);
        assert_eq!(found(0x7000, 0x8000, 0x1000), [(0x7000, 0x10), (0x7ff0, 0x10)]);
        assert_eq!(found(0x7000, 0x9000, 0x1000), [(0x7000, 0x10), (0x7ff0, 0x1010)]);
        assert_eq!(found(0x7000, 0x7000, 0), [], "empty");
        assert_eq!(found(0x8000, 0x7000, 0), [], "turned around");
        assert_eq!(found(u64::MAX - 0x1f, u64::MAX, 0), [(u64::MAX - 0xf, 0xf)], "no further than addresses");
        assert_eq!(found(0x7000, 0x8000, u64::MAX - 1), [(0x7000, 1)], "no further than offsets");
    }
}
