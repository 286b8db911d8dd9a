//! Whether a stopped thread may be made to run something else.
//!
//! It may where it can hold no lock that the dynamic loader or the helper takes: in a system call that waits
//! for the outside, in the interpreter's own code, or in generated code.

use std::path::Path;

use super::{
    arch,
    calls::{Continuation, continuation},
    threads::Unfit,
};
use crate::{
    process::{Region, mapped_file::FileIdentity},
    sys::ptrace::Registers,
    units::VirtualAddress,
};

/// How much stack a thread must have left: dlopen takes some KiB, the signal frame up to 12.
pub(super) const STACK_BYTES: u64 = 48 << 10;

/// Results of an interrupted call that the kernel makes again or continues (include/linux/errno.h).
const RESTARTED: std::ops::RangeInclusive<i64> = -516..=-512;

/// The mappings of a process at the time of a try.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    pub(super) regions: Vec<Region>,
    /// The files with the interpreter's code.
    pub(super) interpreters: &'a [FileIdentity],
}

impl Ground<'_> {
    /// Whether the interpreter's own code lies there.
    pub(super) fn is_interpreter(&self, address: VirtualAddress) -> bool {
        // Regions are in the order of their addresses.
        let after = self.regions.partition_point(|region| region.start <= address);
        let region = after.checked_sub(1).and_then(|index| self.regions.get(index));
        region.is_some_and(|region| {
            region.contains(address) && region.executable && self.is_of_interpreter(region)
        })
    }

    fn is_of_interpreter(&self, region: &Region) -> bool {
        let is_it = |file: &FileIdentity| file.inode == region.inode && file.device == region.device;
        self.interpreters.iter().any(is_it)
    }
}

/// What the thread is to be put back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct SafePoint {
    pub(super) registers: Registers,
}

/// Judges a stopped thread. `handles`: signals with a handler that the thread blocks now.
pub(super) fn judge(registers: &Registers, ground: &Ground<'_>, handles: u64) -> Result<SafePoint, Unfit> {
    let (instruction, stack) = arch::position(registers);
    let region = ground.regions.iter().find(|region| region.contains(instruction)).ok_or(Unfit::OtherCode)?;
    if is_loader(region) {
        return Err(Unfit::Loader);
    }
    match arch::interrupted_call(registers) {
        Some(call) => {
            let unfit = Unfit::OtherCall(call.number);
            let continued = continuation(call.number, call.arguments).ok_or(unfit)?;
            match (continued, call.result) {
                (_, result) if RESTARTED.contains(&result) => {}
                (Continuation::Eintr { .. } | Continuation::Socket, result)
                    if result == i64::from(-libc::EINTR) => {}
                // It came to its end just now, and its result waits to be looked at.
                _ => return Err(Unfit::OtherCode),
            }
        }
        None if handles != 0 => return Err(Unfit::Handler),
        None => {
            let generated = region.inode == 0 && region.executable && !is_kernels(region);
            if !generated && !ground.is_of_interpreter(region) {
                return Err(Unfit::OtherCode);
            }
        }
    }
    if !has_stack(&ground.regions, stack) {
        return Err(Unfit::Stack);
    }
    let (registers, _) = undisturbed(registers);
    Ok(SafePoint { registers })
}

/// The registers with which a stopped thread goes on as if it had not been stopped, and whether they differ:
/// a call that the kernel ends with `EINTR`, and that has no limit, is made again.
pub(super) fn undisturbed(registers: &Registers) -> (Registers, bool) {
    let mut registers = *registers;
    let mut changed = false;
    if let Some(call) = arch::interrupted_call(&registers)
        && call.result == i64::from(-libc::EINTR)
        && let Some(Continuation::Eintr { limit }) = continuation(call.number, call.arguments)
        && limit.is_none_or(|limit| limit.is_absent(call.arguments))
    {
        arch::call_again(&mut registers);
        changed = true;
    }
    (registers, changed)
}

fn is_kernels(region: &Region) -> bool {
    ["[vdso]", "[vsyscall]", "[uprobes]"].iter().any(|name| region.name == *name)
}

fn is_loader(region: &Region) -> bool {
    let name = Path::new(&region.name).file_name().unwrap_or_default().to_string_lossy();
    // musl's loader is its C library as well: waiting calls are made there.
    name.starts_with("ld-linux") || name.starts_with("ld-2.") || name.starts_with("ld64")
}

/// Whether so much stack is left below this address as borrowing takes.
pub(super) fn has_stack(regions: &[Region], stack: VirtualAddress) -> bool {
    let Some(region) = regions.iter().find(|region| region.contains(stack)) else { return false };
    // The main thread's grows on demand, up to its limit.
    region.name == "[stack]" || stack.0 - region.start.0 >= STACK_BYTES
}
