//! Probe sites of USDT probes.

use std::sync::Arc;

use speed_bump_abi::ArgumentSpec;

use crate::{
    elf::{UsdtLocation, UsdtProbe},
    engine::bpf::UprobeProgram,
    probe::{
        file::ProbeFile,
        plan::{PlannedSite, Timing},
        site::{self, CodeMap, FunctionCode, SiteKind},
    },
};

/// A site for each location of a probe, and why others have none. Includes the first three arguments, if they
/// are readable.
pub(super) fn usdt_sites(
    file: &Arc<ProbeFile>,
    code: &CodeMap<'_>,
    probe: &UsdtProbe,
    program: UprobeProgram,
) -> (Vec<PlannedSite>, Vec<String>) {
    let (mut sites, mut refused) = (Vec::new(), Vec::new());
    for location in &probe.locations {
        match instruction_at(code, location) {
            Ok((kind, instruction)) => {
                let mut arguments = [ArgumentSpec::default(); 3];
                for (to, from) in arguments.iter_mut().zip(&location.arguments) {
                    *to = from.spec.clone().unwrap_or_default();
                }
                sites.push(PlannedSite {
                    file: Arc::clone(file),
                    offset: location.offset,
                    semaphore: location.semaphore,
                    function: None,
                    program,
                    caller: None,
                    kind,
                    instruction,
                    stack_delta: 0,
                    arguments,
                    remark: None,
                    timing: Timing::NotAsked,
                });
            }
            Err(why) => refused.push(why),
        }
    }
    (sites, refused)
}

/// The instruction at a location, usually a nop; or why no probe may go there.
fn instruction_at(code: &CodeMap<'_>, location: &UsdtLocation) -> Result<(SiteKind, String), String> {
    let here = FunctionCode { map: code, entry: location.address, size: None, shadow_stack: false };
    let analysis = site::analyse(&here).map_err(|refusal| refusal.to_string())?;
    let candidate = analysis.candidates.first().ok_or("there is no code")?;
    if let Some(exclusion) = &candidate.excluded {
        return Err(exclusion.to_string());
    }
    // From 6.18 on the kernel rewrites it to a call, which overwrites the 8 bytes below the stack pointer: a
    // leaf function may keep variables there, and a location tells nothing about the function around it.
    if candidate.kind == SiteKind::Nop5 {
        return Err("it is a 5-byte nop, which kernels from 6.18 on rewrite to a call, and that may \
                    overwrite what the function stored below its stack pointer"
            .to_owned());
    }
    Ok((candidate.kind, candidate.instruction.clone()))
}
