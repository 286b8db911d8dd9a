//! Checks whether a stopped thread may run something else for us.
//!
//! A thread may if it cannot hold a lock that the dynamic loader or the helper takes. This is true in a
//! system call that waits for something outside the process, in the interpreter's own code, and in generated
//! code.

use std::path::Path;

use super::{
    arch,
    calls::{Continuation, continuation},
    threads::Unsuitable,
};
use crate::{
    process::{Region, mapped_file::FileIdentity},
    sys::ptrace::Registers,
    units::VirtualAddress,
};

/// How much stack a thread must have left, in bytes. dlopen takes some KiB, and the signal frame takes up to
/// 12 KiB.
pub(super) const STACK_BYTES: u64 = 48 << 10;

/// If an interrupted call has one of these results, the kernel repeats or continues the call
/// (include/linux/errno.h).
const RESTARTED: std::ops::RangeInclusive<i64> = -516..=-512;

/// The mappings of a process at the time of an attempt.
#[derive(Debug)]
pub(super) struct CodeRegions<'a> {
    pub(super) regions: Vec<Region>,
    /// The files that contain the interpreter's code.
    pub(super) interpreters: &'a [FileIdentity],
}

impl CodeRegions<'_> {
    /// Whether an address is in the interpreter's own code.
    pub(super) fn is_interpreter(&self, address: VirtualAddress) -> bool {
        // Regions are sorted by address.
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

/// The thread's state, which we restore later.
#[derive(Clone, Copy, Debug)]
pub(super) struct SafePoint {
    pub(super) registers: Registers,
}

/// Checks whether a stopped thread is at a safe point. `handles` are the signals that have a handler and that
/// the thread blocks now.
pub(super) fn judge(
    registers: &Registers,
    code: &CodeRegions<'_>,
    handles: u64,
) -> Result<SafePoint, Unsuitable> {
    let (instruction, stack) = arch::position(registers);
    let region =
        code.regions.iter().find(|region| region.contains(instruction)).ok_or(Unsuitable::OtherCode)?;
    if is_loader(region) {
        return Err(Unsuitable::Loader);
    }
    match arch::interrupted_call(registers) {
        Some(call) => {
            let unfit = Unsuitable::OtherCall(call.number);
            let continued = continuation(call.number, call.arguments).ok_or(unfit)?;
            match (continued, call.result) {
                (_, result) if RESTARTED.contains(&result) => {}
                (Continuation::Eintr { .. } | Continuation::Socket, result)
                    if result == i64::from(-libc::EINTR) => {}
                // The call has just returned, and the program has not read its result yet.
                _ => return Err(Unsuitable::OtherCode),
            }
        }
        None if handles != 0 => return Err(Unsuitable::Handler),
        None => {
            let generated = region.inode == 0 && region.executable && !is_kernels(region);
            if !generated && !code.is_of_interpreter(region) {
                return Err(Unsuitable::OtherCode);
            }
        }
    }
    if !has_stack(&code.regions, stack) {
        return Err(Unsuitable::Stack);
    }
    let (registers, _) = undisturbed(registers);
    Ok(SafePoint { registers })
}

/// The registers with which a stopped thread goes on as if we had not stopped it, and whether these differ
/// from the thread's own. They differ if the kernel ends a call without a time limit with `EINTR`: then the
/// thread repeats the call.
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
    // musl's loader is also its C library, which makes the calls that wait. So it does not count as a loader
    // here.
    name.starts_with("ld-linux") || name.starts_with("ld-2.") || name.starts_with("ld64")
}

/// Whether there is enough stack below this address to borrow the thread.
pub(super) fn has_stack(regions: &[Region], stack: VirtualAddress) -> bool {
    let Some(region) = regions.iter().find(|region| region.contains(stack)) else { return false };
    // The main thread's stack grows when needed, up to its limit.
    region.name == "[stack]" || stack.0 - region.start.0 >= STACK_BYTES
}
