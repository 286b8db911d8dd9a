//! Whether we can time the calls of a native function, and where they end.

use super::Resolver;
use crate::{
    elf::ElfFile,
    probe::{
        plan::{PlannedExit, Timing},
        site::{self, FunctionCode, Site},
    },
};

/// The places where calls of a function end, if we should time them. `site` is the function's probe site.
pub(super) fn plan(resolver: &Resolver, elf: &ElfFile, code: &FunctionCode<'_>, site: &Site) -> Timing {
    if !resolver.times_calls() {
        return Timing::NotAsked;
    }
    let exits = match site::exits(code, site) {
        Ok(exits) => exits,
        Err(why) => return Timing::Impossible(why.to_string()),
    };
    let planned = exits.iter().map(|exit| {
        let offset = elf.segments().code_offset_of(exit.address)?;
        Some(PlannedExit { offset, kind: exit.kind, condition: exit.condition })
    });
    let planned: Option<Vec<_>> = planned.collect();
    planned.map_or_else(|| Timing::Impossible("its code is not in the file".to_owned()), Timing::Exits)
}
