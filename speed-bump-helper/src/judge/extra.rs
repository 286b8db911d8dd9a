//! Two numbers of ours in each code object, in `co_extra`, where Python lets tools reserve places.

use core::{
    ffi::c_void,
    hint::spin_loop,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering},
};

use speed_bump_abi::control_block::Failure;

use crate::{
    fault::Fault,
    python::{
        code::Code,
        gil::Python,
        kept::{Kept, KeptObject},
        object::{Object, Owned},
    },
};

const NO_INDEX: isize = -1;
/// Our indices into `co_extra`, once there are any.
static VERDICT: AtomicIsize = AtomicIsize::new(NO_INDEX);
static CALLER: AtomicIsize = AtomicIsize::new(NO_INDEX);
/// Offset of `co_extra` in a code object, if we read it in place; else 0.
static IN_PLACE: AtomicUsize = AtomicUsize::new(0);
/// A lock, held while a verdict is written in a free-threaded build: two threads must not both grow one code
/// object's list.
static WRITING: AtomicBool = AtomicBool::new(false);
/// How often we try to take that lock. A forked child inherits the lock as held if a thread of its parent
/// held it, and no thread of the child frees it. Then the child decides each verdict anew, until it gets a
/// session of its own.
const PATIENCE: u32 = 100_000;

/// Which of our two numbers in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The verdict.
    Verdict,
    /// Which callers of targets (`caller=`) the function is.
    Caller,
}

impl Place {
    /// In the order in which they are reserved.
    const ALL: [Self; 2] = [Self::Verdict, Self::Caller];

    #[inline]
    fn index(self) -> &'static AtomicIsize {
        match self {
            Self::Verdict => &VERDICT,
            Self::Caller => &CALLER,
        }
    }
}

/// The number; 0 if there is none.
#[inline]
pub(super) fn read(place: Place, code: Code<'_>) -> u64 {
    let in_place = IN_PLACE.load(Ordering::Relaxed);
    if in_place != 0 {
        // SAFETY: a living code object, whose `co_extra` lies there; the GIL is held.
        return unsafe { read_at(place, code.as_ptr(), in_place) };
    }
    let mut extra: *mut c_void = ptr::null_mut();
    // SAFETY: a living code object, the GIL is held. It fails only for other objects, and then sets nothing.
    unsafe {
        let index = place.index().load(Ordering::Relaxed);
        (code.python().api.get_extra)(code.as_ptr(), index, &raw mut extra);
    }
    extra as u64
}

/// The number, if `co_extra` is at this offset; 0 if there is none.
///
/// # Safety
/// A living code object, whose `co_extra` lies there; the GIL is held.
#[inline]
pub(super) unsafe fn read_at(place: Place, code: *mut Object, offset: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { ExtraList::read(code, offset, place.index().load(Ordering::Relaxed)) }
}

/// Stores a number. Without memory for it, nothing is stored.
pub(super) fn write(place: Place, code: Code<'_>, bits: u64) {
    let python = code.python();
    let lock = python.api.version.free_threaded;
    if lock && !(0..PATIENCE).any(|_| lock_writing()) {
        return;
    }
    let index = place.index().load(Ordering::Relaxed);
    // SAFETY: a living code object, the GIL is held, the index is ours.
    let result = unsafe { (python.api.set_extra)(code.as_ptr(), index, bits as *mut c_void) };
    if lock {
        unlock();
    }
    if result != 0 {
        python.clear();
    }
}

/// In a forked child, the holder of the lock may not exist.
pub(super) fn unlock() {
    WRITING.store(false, Ordering::Release);
}

/// `_PyCodeObjectExtra` (Objects/codeobject.c), to which `co_extra` points unless it is null.
#[repr(C)]
struct ExtraList {
    count: isize,
    first: [u64; 0],
}

impl ExtraList {
    /// The value with this index; 0 if there is none.
    ///
    /// # Safety
    /// `co_extra` is at the offset, and no other thread writes it meanwhile.
    #[inline]
    unsafe fn read(code: *mut Object, offset: usize, index: isize) -> u64 {
        // SAFETY: as the caller promises.
        let Some(list) = NonNull::new(unsafe { code.wrapping_byte_add(offset).cast::<*mut Self>().read() })
        else {
            return 0;
        };
        // SAFETY: as the caller promises; the list has `count` items.
        unsafe {
            if !(0..(*list.as_ptr()).count).contains(&index) {
                return 0;
            }
            (&raw const (*list.as_ptr()).first).cast::<u64>().offset(index).read()
        }
    }
}

/// Reads verdicts in place from now on, if the GIL keeps other threads from writing them meanwhile: a call to
/// Python takes as long as the rest of the check.
pub(crate) fn read_in_place(python: Python<'_>) {
    if IN_PLACE.load(Ordering::Relaxed) == 0 && !python.api.version.free_threaded {
        IN_PLACE.store(find(python).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Offset of `co_extra`. `None`: it cannot be found.
pub(crate) fn find(python: Python<'_>) -> Option<usize> {
    let make = python.api.empty_code?;
    // SAFETY: the arguments are texts; the GIL is held.
    let made = unsafe { Owned::from_new(python, make(c"".as_ptr(), c"".as_ptr(), 1)) };
    let Some(made) = made else {
        python.clear();
        return None;
    };
    // SAFETY: a living code object, which outlives this.
    let code = unsafe { Code::assume(python, NonNull::new(made.as_ptr())?) };
    offset_of(code, python.api.code.size)
}

/// Offset of `co_extra`, found with a code object of our own: setting a value changes exactly that word.
/// `None`: there is no such word.
fn offset_of(code: Code<'_>, object_size: usize) -> Option<usize> {
    /// Large and odd, so that no other word is likely to have this value.
    const VALUE: u64 = 0x5bed_b09b_5bed_b09b;
    let index = VERDICT.load(Ordering::Relaxed);
    let start = code.as_ptr().cast::<u64>();
    let set = |value: u64| {
        // SAFETY: a living code object, the GIL is held, the index is ours.
        unsafe { (code.python().api.set_extra)(code.as_ptr(), index, value as *mut c_void) }
    };
    let mut before = [0_u64; 64];
    for (i, word) in before.iter_mut().enumerate().take(object_size / 8) {
        // SAFETY: inside the object.
        *word = unsafe { start.add(i).read() };
    }
    if set(VALUE) != 0 {
        code.python().clear();
        return None;
    }
    let mut changed = before.iter().enumerate().take(object_size / 8).filter(|(i, word)| {
        // SAFETY: inside the object.
        **word != unsafe { start.add(*i).read() }
    });
    let offset = match (changed.next(), changed.next()) {
        (Some((i, 0)), None) => Some(i * 8),
        _ => None,
    };
    // SAFETY: the word has just become a pointer that Python set.
    let found = offset.filter(|offset| unsafe { ExtraList::read(code.as_ptr(), *offset, index) } == VALUE);
    set(0);
    found
}

fn lock_writing() -> bool {
    let locked = !WRITING.swap(true, Ordering::Acquire);
    if !locked {
        spin_loop();
    }
    locked
}

/// Reserves our places in all code objects, once per process.
///
/// # Errors
/// [`Failure::Python`]: all are taken.
pub(crate) fn prepare(python: Python<'_>) -> Result<(), Fault> {
    for place in Place::ALL {
        if place.index().load(Ordering::Relaxed) != NO_INDEX {
            continue;
        }
        // SAFETY: the GIL is held. The stored value is a number that needs no freeing.
        let index = unsafe { (python.api.request_extra)(None) };
        if index < 0 {
            python.clear();
            return Err(Fault::new(Failure::Python, &["every place in code objects (co_extra) is taken"]));
        }
        place.index().store(index, Ordering::Relaxed);
    }
    Ok(())
}

/// Reserves the same places in the running interpreter, which is not the one of [`prepare`]: tried once per
/// interpreter. `false`: they cannot be the same.
pub(crate) fn prepare_here(python: Python<'_>) -> bool {
    let Some(kept) = Kept::here(python) else { return false };
    if let Some(known) = kept.number(KeptObject::Place) {
        return known == 1;
    }
    // Python hands out places from 0 on, until none is left.
    // SAFETY: the GIL is held. The stored value is a number that needs no freeing.
    let mut given = core::iter::from_fn(|| Some(unsafe { (python.api.request_extra)(None) }));
    let is_same = Place::ALL.into_iter().all(|place| {
        let index = place.index().load(Ordering::Relaxed);
        given.find(|given| !(0..index).contains(given)) == Some(index)
    });
    kept.keep_number(KeptObject::Place, i64::from(is_same));
    python.clear();
    is_same
}
