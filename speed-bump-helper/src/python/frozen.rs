//! Objects that a program has taken from its garbage collector, by `gc.freeze()`: servers do so before they
//! fork. Up to 3.13 Python lists no object that is frozen, so they are read where they lie.
//!
//! Each object has two words before it that chain it to others of its generation (`PyGC_Head`), and frozen
//! ones are a generation of their own. Where that begins is not exported; it lies behind the three others and
//! a pointer to the first of them (`struct _gc_runtime_state`, Include/internal/pycore_gc.h of 3.9 to 3.13,
//! pycore_pymem.h of 3.8). It is found by that pointer, and believed if its chain has as many objects as
//! `gc.get_freeze_count()` says.

use core::{
    ops::ControlFlow,
    ptr::{self, NonNull},
};

use super::{gil::Python, object::Object, object::Owned};

/// How much of where it lies is searched, in bytes: less than that has, and more than lies before it.
const SEARCHED_RUNTIME_38: usize = 640;
const SEARCHED_INTERPRETER: usize = 1024;
const SEARCHED_INTERPRETER_313: usize = 8192;
/// Bytes of a `struct gc_generation`: the head of its chain, a threshold and a count.
const GENERATION: usize = 24;
/// How many come before the pointer to the first of them.
const GENERATIONS: usize = 3;
/// Bytes between them and the pointer: later releases of 3.13 align the pointer alone.
const GAPS: [usize; 2] = [0, 4];
/// Bytes of a `PyGC_Head`, which lies right before an object.
const HEAD: usize = 16;
/// Bits of its second word that are no part of the address (`_PyGC_PREV_MASK`).
const FLAGS: usize = 3;

/// The objects that are frozen. They stay so as long as nobody runs Python code.
pub(crate) enum Frozen {
    /// There are none.
    Nothing,
    /// They can be gone through.
    Known(Chain),
    /// There are some, which this build does not show; or there may be.
    Hidden,
}

/// As many objects, chained to this head.
pub(crate) struct Chain {
    head: NonNull<Links>,
    count: usize,
}

/// A `PyGC_Head`.
#[repr(C)]
struct Links {
    next: *mut Links,
    previous: usize,
}

impl Frozen {
    /// Those of the running interpreter, which the module `gc` knows.
    pub(crate) fn find(python: Python<'_>, gc: NonNull<Object>) -> Self {
        // SAFETY: the module is alive, the GIL held, and the call has no arguments.
        let count = unsafe {
            let count = (python.api.call_method)(gc.as_ptr(), c"get_freeze_count".as_ptr(), ptr::null());
            Owned::from_new(python, count).and_then(|count| count.integer())
        };
        python.clear();
        match count.map(usize::try_from) {
            Some(Ok(0)) => Self::Nothing,
            Some(Ok(count)) => chain(python, count).map_or(Self::Hidden, Self::Known),
            Some(Err(_)) | None => Self::Hidden,
        }
    }
}

impl Chain {
    /// Shows each of them, until it is told to stop. Nothing may run, be made or be freed meanwhile.
    pub(crate) fn each(&self, mut show: impl FnMut(NonNull<Object>) -> ControlFlow<()>) {
        // SAFETY: the head of a chain that was followed to its end.
        let mut links = unsafe { self.head.as_ref().next };
        for _ in 0..self.count {
            if let Some(object) = NonNull::new(links.wrapping_byte_add(HEAD).cast())
                && show(object).is_break()
            {
                return;
            }
            // SAFETY: in the chain.
            links = unsafe { (*links).next };
        }
    }
}

/// The chain of this many objects.
fn chain(python: Python<'_>, count: usize) -> Option<Chain> {
    let api = python.api;
    // Include/object.h: objects begin with the count of their references and their type.
    if api.version.free_threaded || api.code.object_type != 8 {
        return None;
    }
    // SAFETY: the GIL is held, so an interpreter runs.
    let interpreter = || unsafe { NonNull::new((api.interpreter)()) }.map(NonNull::cast::<usize>);
    let (start, searched) = match api.version.minor() {
        (3, 8) => (api.library.symbol(c"_PyRuntime")?.cast(), SEARCHED_RUNTIME_38),
        (3, 9..=12) => (interpreter()?, SEARCHED_INTERPRETER),
        (3, 13) => (interpreter()?, SEARCHED_INTERPRETER_313),
        _ => return None,
    };
    let mut places = (0..searched / size_of::<usize>()).filter_map(|word| {
        // SAFETY: in `_PyRuntime` or the running interpreter, which are larger, and aligned.
        let place = unsafe { start.add(word) };
        // SAFETY: the same.
        let first = unsafe { place.read() };
        let is_theirs = |gap| first.wrapping_add(GENERATIONS * GENERATION + gap) == place.as_ptr() as usize;
        GAPS.into_iter().any(is_theirs).then_some(place)
    });
    let (place, None) = (places.next()?, places.next()) else { return None };
    // SAFETY: the frozen generation follows the pointer.
    let head = unsafe { place.add(1) }.cast::<Links>();
    let chain = Chain { head, count };
    chain.is_whole().then_some(chain)
}

impl Chain {
    /// Whether it comes back to its head after as many objects as it should have.
    fn is_whole(&self) -> bool {
        let head = self.head.as_ptr();
        let mut links = head;
        for passed in 0..=self.count {
            // SAFETY: the head, or what one before it says comes next, and what says the same of that one.
            let next = unsafe { (*links).next };
            if next.is_null() || !next.is_aligned() {
                return false;
            }
            // SAFETY: as above.
            if unsafe { (*next).previous } & !FLAGS != links as usize {
                return false;
            }
            if next == head {
                return passed == self.count;
            }
            links = next;
        }
        false
    }
}
