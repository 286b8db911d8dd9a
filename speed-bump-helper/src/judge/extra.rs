//! A number of ours in each code object: `co_extra`, in which Python has a place for whoever asks for one.

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
/// Our index into `co_extra`, once there is one.
static INDEX: AtomicIsize = AtomicIsize::new(NO_INDEX);
/// Where `co_extra` lies in a code object, if it is read in place; else 0.
static IN_PLACE: AtomicUsize = AtomicUsize::new(0);
/// Held while a verdict is written in a free-threaded build: two threads must not make room in one code
/// object.
static WRITING: AtomicBool = AtomicBool::new(false);
/// How often it is tried. A forked child may inherit it locked by a thread that it does not have; it finds
/// its verdicts anew each time then, until it gets a session of its own.
const PATIENCE: u32 = 100_000;

/// What lies there; 0 if nothing does.
#[inline]
pub(super) fn read(code: Code<'_>) -> u64 {
    let in_place = IN_PLACE.load(Ordering::Relaxed);
    if in_place != 0 {
        // SAFETY: a living code object, whose `co_extra` lies there; the GIL is held.
        return unsafe { read_at(code.as_ptr(), in_place) };
    }
    let mut extra: *mut c_void = ptr::null_mut();
    // SAFETY: a living code object, the GIL is held. It fails for other objects only, and sets nothing then.
    unsafe {
        (code.python().api.get_extra)(code.as_ptr(), INDEX.load(Ordering::Relaxed), &raw mut extra);
    }
    extra as u64
}

/// The same where `co_extra` lies at this offset.
///
/// # Safety
/// A living code object, whose `co_extra` lies there; the GIL is held.
#[inline]
pub(super) unsafe fn read_at(code: *mut Object, offset: usize) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { ExtraList::read(code, offset, INDEX.load(Ordering::Relaxed)) }
}

/// Puts a number there. Without memory for it there is none.
pub(super) fn write(code: Code<'_>, bits: u64) {
    let python = code.python();
    let lock = python.api.version.free_threaded;
    if lock && !(0..PATIENCE).any(|_| lock_writing()) {
        return;
    }
    // SAFETY: a living code object, the GIL is held, the index is ours.
    let result =
        unsafe { (python.api.set_extra)(code.as_ptr(), INDEX.load(Ordering::Relaxed), bits as *mut c_void) };
    if lock {
        unlock();
    }
    if result != 0 {
        python.clear();
    }
}

/// In a forked child, nobody is left who held the lock.
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
    /// What has this index; 0 if nothing has.
    ///
    /// # Safety
    /// `co_extra` lies at the offset, and nobody writes it meanwhile.
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

/// Has verdicts read in place from now on, where the GIL keeps others from writing them meanwhile: asking
/// Python takes as long as the rest of a look.
pub(crate) fn read_in_place(python: Python<'_>) {
    if IN_PLACE.load(Ordering::Relaxed) == 0 && !python.api.version.free_threaded {
        IN_PLACE.store(find(python).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Where `co_extra` lies. `None`: that cannot be found out.
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

/// Where `co_extra` lies, found out on a code object of one's own: it is the one word that setting a value
/// changes. `None`: no such word.
fn offset_of(code: Code<'_>, object_size: usize) -> Option<usize> {
    /// Large and odd, so that nothing else is likely to look so.
    const VALUE: u64 = 0x5bed_b09b_5bed_b09b;
    let index = INDEX.load(Ordering::Relaxed);
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

/// Has Python set a place aside in all code objects, once a process.
///
/// # Errors
/// [`Failure::Python`]: none is left.
pub(crate) fn prepare(python: Python<'_>) -> Result<(), Fault> {
    if INDEX.load(Ordering::Relaxed) != NO_INDEX {
        return Ok(());
    }
    // SAFETY: the GIL is held. What is stored is a number, which nothing need free.
    let index = unsafe { (python.api.request_extra)(None) };
    if index < 0 {
        python.clear();
        return Err(Fault::new(Failure::Python, &["every place in code objects (co_extra) is taken"]));
    }
    INDEX.store(index, Ordering::Relaxed);
    Ok(())
}

/// Has Python set the same place aside in the interpreter that runs, which is not the one of [`prepare`]:
/// tried once an interpreter. `false`: it cannot be the same place.
pub(crate) fn prepare_here(python: Python<'_>) -> bool {
    let Some(kept) = Kept::here(python) else { return false };
    if let Some(known) = kept.number(KeptObject::Place) {
        return known == 1;
    }
    let index = INDEX.load(Ordering::Relaxed);
    // Places are given out from 0 on, until there is none.
    // SAFETY: the GIL is held. What is stored is a number, which nothing need free.
    let mut given = core::iter::from_fn(|| Some(unsafe { (python.api.request_extra)(None) }));
    let is_same = given.find(|given| !(0..index).contains(given)) == Some(index);
    kept.keep_number(KeptObject::Place, i64::from(is_same));
    python.clear();
    is_same
}
