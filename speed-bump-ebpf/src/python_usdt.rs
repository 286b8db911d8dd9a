//! CPython's `function__entry` probe: file, name and line name the function.
//!
//! A code location that is met for the first time gets an index and is announced to the loader, which
//! answers with a verdict. Until then its calls are counted as pending, so that no call goes uncounted.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::{
    EbpfContext as _,
    bindings::BPF_NOEXIST,
    helpers::{
        bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_probe_read_user, generated::bpf_probe_read_user_str,
    },
    macros::uprobe,
    programs::ProbeContext,
};
use speed_bump_abi::{
    ArgumentSpec, Event, EventKind, PythonCodeEvent, PythonKey, SiteArguments, Verdict,
    maps::{Fault, PYTHON_CAPACITY},
};

use crate::{
    count,
    maps::{EVENTS, PYTHON_KEYS, PYTHON_PENDING, PYTHON_VERDICTS, SITES, fault},
    own_stack,
    spin::Looping,
    visit::visit,
};

/// `function__entry(filename, name, line)`.
#[uprobe]
pub fn python_usdt(context: ProbeContext) -> u32 {
    own_stack::insist(&context);
    // SAFETY: the helper has no preconditions.
    let entered_ns = unsafe { bpf_ktime_get_ns() };
    let cookie = crate::cookie(&context);
    let Some(site) = SITES.get(cookie.site) else { return 0 };

    let index = index(&context, site, cookie.process);
    let Some(verdict) = PYTHON_VERDICTS.get(index) else { return 0 };
    match Verdict::from_bits(*verdict) {
        Verdict::Function(function) => visit_beside_index(function, site.overhead_ns, entered_ns),
        Verdict::Ignored => {}
        Verdict::Pending => {
            if let Some(pending) = PYTHON_PENDING.get_ptr_mut(index) {
                count::add(pending, 1);
            }
        }
    }
    0
}

/// A function of its own in BPF too, so that what it keeps on the stack and what [`index`] does are never
/// there together.
#[inline(never)]
fn visit_beside_index(function: u32, overhead_ns: u32, entered_ns: u64) {
    visit::<Looping>(function, overhead_ns, entered_ns, false);
}

/// No index of a code location.
const UNKNOWN: u32 = u32::MAX;

/// The index of the code location that the probe reports, or [`UNKNOWN`].
///
/// A function of its own in BPF too: kernels before 6.13 allow a program and whatever it calls 512 bytes of
/// stack, and the key takes most of that. This way the key is gone when the delay is spun.
#[inline(never)]
fn index(context: &ProbeContext, site: &SiteArguments, process: u32) -> u32 {
    let [file, name, line] = &site.arguments;
    let (file, name) = (argument(context, file), argument(context, name));
    let line = argument(context, line) as u32;

    let mut key = MaybeUninit::<PythonKey>::zeroed();
    let key_pointer = key.as_mut_ptr();
    // SAFETY: both fields are as long as the helper is told, and the helper checks the user's addresses.
    unsafe {
        let file_field = &raw mut (*key_pointer).file;
        let name_field = &raw mut (*key_pointer).name;
        if bpf_probe_read_user_str(file_field.cast(), size_of_val(&*file_field) as u32, file as *const c_void)
            < 0
            || bpf_probe_read_user_str(
                name_field.cast(),
                size_of_val(&*name_field) as u32,
                name as *const c_void,
            ) < 0
        {
            fault(Fault::Unreadable);
            return UNKNOWN;
        }
        (*key_pointer).line = line;
    }
    // SAFETY: zeroed first, and every field is valid for any bits.
    let key = unsafe { key.assume_init_ref() };
    location(key, process).unwrap_or(UNKNOWN)
}

/// The index of a code location; a new one is entered and announced.
#[inline(always)]
fn location(key: &PythonKey, process: u32) -> Option<u32> {
    // SAFETY: the value is copied at once and never changes.
    if let Some(index) = unsafe { PYTHON_KEYS.get(key) } {
        return Some(*index);
    }
    // The last pending counter hands out the indices.
    let last = PYTHON_CAPACITY - 1;
    let index = count::next(PYTHON_PENDING.get_ptr_mut(last)?);
    if index >= u64::from(last) {
        fault(Fault::NoRoom);
        return None;
    }
    let index = index as u32;
    if PYTHON_KEYS.insert(key, index, u64::from(BPF_NOEXIST)).is_err() {
        // Another thread was first: its index stands, ours stays unused.
        // SAFETY: as above.
        return unsafe { PYTHON_KEYS.get(key) }.copied();
    }
    announce(key, process, index);
    Some(index)
}

/// Tells the loader of a code location. Built in the ring buffer: two keys do not fit on the stack.
#[inline(always)]
fn announce(key: &PythonKey, process: u32, index: u32) {
    let Some(mut entry) = EVENTS.reserve::<PythonCodeEvent>(0) else {
        fault(Fault::EventLost);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the reserved bytes are as many as the record has.
    unsafe {
        (*record).event =
            Event { kind: EventKind::PythonCode as u32, pid: process, detail: index, parent: 0 };
        (*record).key = *key;
    }
    entry.submit(0);
}

/// Reads one argument of the probe as its specification says; 0 where that fails, which no string's address
/// is. (We do not use an `Option`: the compiler leaves the value beside `None` undefined, and the verifier
/// rejects that.)
#[inline(always)]
fn argument(context: &ProbeContext, spec: &ArgumentSpec) -> u64 {
    let raw = match spec.kind {
        ArgumentSpec::CONSTANT => spec.value as u64,
        ArgumentSpec::REGISTER => register(context, spec.register),
        ArgumentSpec::MEMORY => {
            let mut address = register(context, spec.register).wrapping_add(spec.value as u64);
            if spec.index != ArgumentSpec::NO_REGISTER {
                let index = register(context, spec.index);
                address = address.wrapping_add(index.wrapping_mul(u64::from(spec.scale)));
            }
            // SAFETY: the helper checks the address. Eight bytes are read and cut below.
            unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0)
        }
        _ => 0,
    };
    match spec.size {
        8 | -8 => raw,
        4 => raw & 0xffff_ffff,
        -4 => raw as i32 as i64 as u64,
        2 => raw & 0xffff,
        -2 => raw as i16 as i64 as u64,
        1 => raw & 0xff,
        _ => raw as i8 as i64 as u64,
    }
}

/// Reads the register at a byte offset of `pt_regs`. The offset is data, so the verifier wants a helper.
#[inline(always)]
fn register(context: &ProbeContext, offset: u16) -> u64 {
    // SAFETY: the loader gives offsets inside `pt_regs`; the helper tolerates any address.
    unsafe { bpf_probe_read_kernel(context.as_ptr().cast::<u8>().add(usize::from(offset)).cast::<u64>()) }
        .unwrap_or(0)
}
