//! Objects that a program has hidden from its garbage collector by `gc.freeze()`: servers do so before they
//! fork. Up to 3.13 Python lists no frozen object, so we read them from memory.
//!
//! Each object has two words before it that link it to others of its generation (`PyGC_Head`), and frozen
//! objects are a generation of their own. CPython does not export the address of this generation's head. The
//! head comes after the three other generations and a pointer to the first of them (`struct
//! _gc_runtime_state`, Include/internal/pycore_gc.h of 3.9 to 3.13, pycore_pymem.h of 3.8). We find it by
//! that pointer, and accept it if its chain has as many objects as `gc.get_freeze_count()` returns. Following
//! a chain of millions of objects takes a tenth of a second, with the GIL, so we count only once. From then
//! on, each use follows the chain only as long as every link points back.

use core::{
    ops::ControlFlow,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{gil::Python, object::Object, object::Owned};

/// How many bytes of `_PyRuntime` (3.8) or of an interpreter's state (later) we search for the pointer to the
/// first generation: less than the structure has, and more than the offset of the pointer.
const SEARCHED_RUNTIME_38: usize = 640;
const SEARCHED_INTERPRETER: usize = 1024;
const SEARCHED_INTERPRETER_313: usize = 8192;
/// Bytes of a `struct gc_generation`: the head of its chain, a threshold and a count.
const GENERATION: usize = 24;
/// How many generations come before the pointer to the first of them.
const GENERATIONS: usize = 3;
/// Bytes between these generations and the pointer: later releases of 3.13 align only the pointer.
const GAPS: [usize; 2] = [0, 4];
/// Bytes of a `PyGC_Head`, which lies right before an object.
const HEAD: usize = 16;
/// Bits of the second word of a `PyGC_Head` that do not belong to the address (`_PyGC_PREV_MASK`).
const FLAGS: usize = 3;

/// The head of a chain that was followed to its end and had the expected number of objects.
static PROVEN: AtomicPtr<Links> = AtomicPtr::new(ptr::null_mut());

/// The frozen objects. They stay frozen as long as no Python code runs.
pub(crate) enum Frozen {
    /// There are none.
    Nothing,
    /// They can be visited.
    Known(Chain),
    /// There are some, or may be some, and this build does not show them.
    Hidden,
}

/// The objects that are linked to this head.
pub(crate) struct Chain {
    head: NonNull<Links>,
}

/// A `PyGC_Head`.
#[repr(C)]
struct Links {
    next: *mut Links,
    previous: usize,
}

impl Frozen {
    /// The running interpreter's frozen objects; `gc` is its module of that name.
    pub(crate) fn find(python: Python<'_>, gc: NonNull<Object>) -> Self {
        let chain = head(python).map(|head| Chain { head });
        if let Some(chain) = chain.as_ref()
            && PROVEN.load(Ordering::Relaxed) == chain.head.as_ptr()
        {
            return if chain.is_empty() { Self::Nothing } else { Self::Known(Chain { head: chain.head }) };
        }
        // SAFETY: the module is alive, the GIL held, and the call has no arguments.
        let count = unsafe {
            let count = (python.api.call_method)(gc.as_ptr(), c"get_freeze_count".as_ptr(), ptr::null());
            Owned::from_new(python, count).and_then(|count| count.integer())
        };
        python.clear();
        match count.map(usize::try_from) {
            Some(Ok(0)) => Self::Nothing,
            Some(Ok(count)) => match chain.filter(|chain| chain.is_whole(count)) {
                Some(chain) => {
                    PROVEN.store(chain.head.as_ptr(), Ordering::Relaxed);
                    Self::Known(chain)
                }
                None => Self::Hidden,
            },
            Some(Err(_)) | None => Self::Hidden,
        }
    }
}

impl Chain {
    /// Calls `show` for each of them until it breaks. Returns how many were shown. Meanwhile nothing may run,
    /// be made or be freed.
    pub(crate) fn each(&self, mut show: impl FnMut(NonNull<Object>) -> ControlFlow<()>) -> usize {
        let (mut links, mut shown) = (self.head.as_ptr(), 0);
        // SAFETY: the head, or a link that was in the chain.
        while let Some(next) = unsafe { after(links) }
            && next != self.head.as_ptr()
        {
            shown += 1;
            if let Some(object) = NonNull::new(next.wrapping_byte_add(HEAD).cast())
                && show(object).is_break()
            {
                break;
            }
            links = next;
        }
        shown
    }

    fn is_empty(&self) -> bool {
        // SAFETY: the head of a chain.
        unsafe { after(self.head.as_ptr()) == Some(self.head.as_ptr()) }
    }

    /// Whether the chain comes back to its head after the expected number of objects.
    fn is_whole(&self, count: usize) -> bool {
        let mut links = self.head.as_ptr();
        for passed in 0..=count {
            // SAFETY: the head, or a link that was in the chain.
            let Some(next) = (unsafe { after(links) }) else { return false };
            if next == self.head.as_ptr() {
                return passed == count;
            }
            links = next;
        }
        false
    }
}

/// The next link. `None`: the next link does not point back.
///
/// # Safety
/// The head of a chain, or a link after another one in it.
unsafe fn after(links: *mut Links) -> Option<*mut Links> {
    // SAFETY: as the caller promises.
    let next = unsafe { (*links).next };
    // SAFETY: the link before points to it.
    let points_back = || unsafe { (*next).previous } & !FLAGS == links as usize;
    (!next.is_null() && next.is_aligned() && points_back()).then_some(next)
}

/// Where the head of the chain should be.
fn head(python: Python<'_>) -> Option<NonNull<Links>> {
    let api = python.api;
    // Include/object.h: objects begin with their reference count and their type.
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
    Some(unsafe { place.add(1) }.cast::<Links>())
}
