//! Reads a frame before it is evaluated: its code, and whether it starts.

use core::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use speed_bump_abi::control_block::Failure;

use super::evaluator::Frame;
use crate::{
    arch,
    fault::Fault,
    python::{
        api::ThreadState,
        gil::Python,
        members::{BOOL, INT, Members, OBJECT},
        object::Object,
    },
};

// Include/frameobject.h (3.8), Include/cpython/frameobject.h (3.9, 3.10), Include/internal/pycore_frame.h
// (3.11)
/// `f_code`, on all of 3.8 to 3.11.
const CODE: usize = 32;
/// `f_back`, on 3.8 to 3.10.
const BACK: usize = 24;
/// `f_lasti` on 3.8 and 3.9.
pub(crate) const LAST_38: usize = 104;
/// `f_lasti` on 3.10.
pub(crate) const LAST_310: usize = 96;
/// From `f_gen` to `f_lasti`, on 3.8 to 3.10.
const GENERATOR_TO_LAST: usize = 8;
/// `f_lasti` of a frame that has not started, on 3.8 to 3.10.
const NOT_BEGUN: c_int = -1;
/// `prev_instr` on 3.11.
const PREVIOUS: usize = 56;
/// `owner` on 3.11.
const OWNER: usize = 69;
/// `FRAME_OWNED_BY_THREAD`, `FRAME_OWNED_BY_GENERATOR`.
const BY_THREAD: u8 = 0;
const BY_GENERATOR: u8 = 1;
// Include/cpython/pystate.h of 3.11
/// `cframe` of a thread state.
const CFRAME: usize = 56;
/// `current_frame` of the `_PyCFrame`.
const CURRENT: usize = 8;
// Include/cpython/code.h of 3.11
/// `_co_firsttraceable`: the index of the instruction that begins the body.
const FIRST_TRACEABLE: usize = 168;
/// `co_code_adaptive`: the instructions, at the end of the object.
const INSTRUCTIONS: usize = 184;
/// `CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR`.
const SUSPENDABLE: c_int = 0x20 | 0x80 | 0x200;

/// Offset of `f_gen` on this version; 0 if it is not used.
static GENERATOR: AtomicUsize = AtomicUsize::new(0);

/// Whether we know on 3.11 where a thread state holds its frames.
static CALLS_KNOWN_311: AtomicBool = AtomicBool::new(false);

/// Checks that frames and code objects have the layout in this file, by what their types report.
///
/// # Errors
/// [`Failure::Unsupported`].
pub(crate) fn check(python: Python<'_>) -> Result<(), Fault> {
    let api = python.api;
    let members = |of| Members::for_type(of, api.code.object_type);
    let (Some(frame), Some(code)) = (members(api.frame_type), members(api.code_type)) else {
        return Err(unknown());
    };
    let (is_known, generator) = match api.version.minor() {
        (3, 8 | 9) => {
            let known = frame.find(c"f_code", &[OBJECT]) == Some(CODE)
                && frame.find(c"f_back", &[OBJECT]) == Some(BACK)
                && frame.find(c"f_lasti", &[INT]) == Some(LAST_38);
            (known, LAST_38 - GENERATOR_TO_LAST)
        }
        (3, 10) => {
            let known = frame.find(c"f_code", &[OBJECT]) == Some(CODE)
                && frame.find(c"f_back", &[OBJECT]) == Some(BACK)
                && frame.find(c"f_trace_opcodes", &[BOOL]) == Some(85);
            (known, LAST_310 - GENERATOR_TO_LAST)
        }
        (3, 11) => {
            let known = frame.find(c"f_trace_opcodes", &[BOOL]) == Some(45)
                && code.find(c"co_qualname", &[OBJECT]) == Some(128)
                && code.find(c"co_linetable", &[OBJECT]) == Some(136)
                && code.object_size() == INSTRUCTIONS
                && members(api.function_type).is_some_and(|function| {
                    function.find(c"__module__", &[OBJECT]) == Some(104) && function.object_size() == 136
                });
            let says_its_frames = api.thread_state.is_some_and(|current| {
                // SAFETY: the GIL is held, so there is a current one.
                unsafe { says_its_frames_311(current()) }
            });
            CALLS_KNOWN_311.store(says_its_frames, Ordering::Relaxed);
            (known, 0)
        }
        _ => (false, 0),
    };
    if !is_known || api.code.object_type != 8 {
        return Err(unknown());
    }
    GENERATOR.store(generator, Ordering::Relaxed);
    Ok(())
}

fn unknown() -> Fault {
    Fault::new(Failure::Unsupported, &["frames or code objects of this build are laid out in an unknown way"])
}

/// The code of a frame.
///
/// # Safety
/// A frame that is about to be evaluated.
#[inline]
pub(crate) unsafe fn code(frame: *mut Frame) -> *mut Object {
    // SAFETY: as the caller promises.
    unsafe { frame.wrapping_byte_add(CODE).cast::<*mut Object>().read() }
}

/// The code of the calling frame, on 3.8 to 3.10; null if there is none.
///
/// # Safety
/// A frame that is about to be evaluated.
#[inline]
pub(crate) unsafe fn calling_code(frame: *mut Frame) -> *mut Object {
    // SAFETY: as the caller promises; the calling frame lives as long as it does.
    unsafe { code_or_null(frame.wrapping_byte_add(BACK).cast::<*mut Frame>().read()) }
}

/// The code of the calling frame, on 3.11. There, when Python calls a hook, the thread's current frame is
/// still the calling one. Null if there is none; `None`: this build has an unknown layout.
///
/// # Safety
/// The thread state that a hook is called with, before the evaluator runs.
#[inline]
pub(crate) unsafe fn calling_code_311(thread: *mut ThreadState) -> Option<*mut Object> {
    if !CALLS_KNOWN_311.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: as the caller promises; a thread state always points to a `_PyCFrame`.
    unsafe {
        let of_thread = thread.wrapping_byte_add(CFRAME).cast::<*mut u8>().read();
        Some(code_or_null(of_thread.wrapping_add(CURRENT).cast::<*mut Frame>().read()))
    }
}

/// # Safety
/// Null, or a frame that is evaluated.
#[inline]
unsafe fn code_or_null(frame: *mut Frame) -> *mut Object {
    if frame.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: as the caller promises; an object begins with its reference count.
    unsafe {
        let code = code(frame);
        if code.is_null() {
            return code;
        }
        // The first releases of 3.11 free a frame's code before the frame, and that may make calls.
        if code.cast::<isize>().read() > 0 { code } else { ptr::null_mut() }
    }
}

/// Whether the calling thread's state holds its frames at the expected place on 3.11, as far as that can be
/// checked: the pointer leads into the state itself if the thread evaluates nothing, and else to the thread's
/// stack.
///
/// # Safety
/// The state of the calling thread.
unsafe fn says_its_frames_311(thread: *mut ThreadState) -> bool {
    /// In bytes: at least the offset of that part, and more than the size of a thread state.
    const BEFORE: usize = 256;
    const LARGEST: usize = 1024;
    /// Larger than nearly any thread's stack.
    const STACK: usize = 1 << 30;
    // SAFETY: as the caller promises.
    let place = unsafe { thread.wrapping_byte_add(CFRAME).cast::<*const u8>().read() };
    if (BEFORE..LARGEST).contains(&(place as usize).wrapping_sub(thread as usize)) {
        // SAFETY: in the thread state, or right behind it.
        return unsafe { place.wrapping_add(CURRENT).cast::<usize>().read_unaligned() } == 0;
    }
    (0..STACK).contains(&(place as usize).wrapping_sub(arch::stack_pointer()))
}

/// Whether the frame starts, on 3.8 to 3.10.
///
/// # Safety
/// A frame that is about to be evaluated; `f_lasti` lies at `LAST`.
#[inline]
pub(crate) unsafe fn begins<const LAST: usize>(frame: *mut Frame) -> bool {
    // SAFETY: as the caller promises.
    unsafe { frame.wrapping_byte_add(LAST).cast::<c_int>().read() == NOT_BEGUN }
}

/// Whether the frame starts, on 3.11. A call of a generator function or the like only makes the generator;
/// its body starts with the first resume.
///
/// # Safety
/// A frame of 3.11 that is about to be evaluated, and the flags of its code.
#[inline]
pub(crate) unsafe fn begins_311(frame: *mut Frame, code: *mut Object, flags: c_int) -> bool {
    // SAFETY: as the caller promises.
    let (owner, previous) = unsafe {
        (
            frame.wrapping_byte_add(OWNER).cast::<u8>().read(),
            frame.wrapping_byte_add(PREVIOUS).cast::<usize>().read(),
        )
    };
    match owner {
        BY_THREAD => flags & SUSPENDABLE == 0,
        BY_GENERATOR => {
            // SAFETY: the code of the frame.
            let first = unsafe { code.wrapping_byte_add(FIRST_TRACEABLE).cast::<c_int>().read() };
            previous < code as usize + INSTRUCTIONS + 2 * usize::try_from(first).unwrap_or(0)
        }
        _ => false,
    }
}

/// Whether it is the frame of a generator or the like that has started, on 3.11.
///
/// # Safety
/// A frame of 3.11 that is about to be evaluated, and its code.
#[inline]
pub(crate) unsafe fn has_begun_311(frame: *mut Frame, code: *mut Object) -> bool {
    // SAFETY: as the caller promises.
    let owner = unsafe { frame.wrapping_byte_add(OWNER).cast::<u8>().read() };
    // SAFETY: as the caller promises; for a generator's frame the flags do not matter.
    owner == BY_GENERATOR && !unsafe { begins_311(frame, code, 0) }
}

/// The generator or the like that the frame belongs to, on 3.8 to 3.10.
///
/// # Safety
/// A frame that is about to be evaluated.
pub(crate) unsafe fn generator(frame: *mut Frame) -> *mut Object {
    match GENERATOR.load(Ordering::Relaxed) {
        0 => ptr::null_mut(),
        // SAFETY: as the caller promises.
        offset => unsafe { frame.wrapping_byte_add(offset).cast::<*mut Object>().read() },
    }
}
