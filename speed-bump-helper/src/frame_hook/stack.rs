//! How much of its C stack a thread has left.
//!
//! A hook can make a program need more of its stack: without a hook, 3.11 runs Python functions that call
//! each other in one C function. A program near the end of its stack must not overflow because of us. So we
//! leave half of every stack to the program.

use core::{
    ffi::{CStr, c_int, c_void},
    mem::{MaybeUninit, transmute},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

use crate::{arch::stack_pointer, host, sys};

/// What judging a function needs, including Python's own calls. Measured: 5 KiB.
const TO_JUDGE: usize = 24 << 10;

/// Identifies a thread by numbers that are not soon reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// From the numbers of its thread state and its interpreter; the pair is never reused.
    #[inline]
    pub(crate) fn of_thread_state(number: u64, interpreter: i64) -> Self {
        // 0 means no thread.
        Self((number ^ interpreter.cast_unsigned() << 32) << 1 | 1)
    }

    /// Index of its stack's entry. The first threads of all interpreters have the same number.
    #[inline]
    fn index(self) -> usize {
        (self.0 + (self.0 >> 33) * 37) as usize % ENTRIES.len()
    }

    /// For the calling thread, from the kernel's number.
    pub(crate) fn of_this_thread() -> Self {
        Self(sys::thread_number() << 1)
    }
}

/// The bounds of one stack. Only a thread that holds the GIL reads and writes it.
struct Entry {
    key: AtomicU64,
    low: AtomicUsize,
    high: AtomicUsize,
}

/// Entries for the usual number of threads; more threads only cost speed.
static ENTRIES: [Entry; 128] =
    [const { Entry { key: AtomicU64::new(0), low: AtomicUsize::new(0), high: AtomicUsize::new(0) } }; 128];

/// Whether more than half of the calling thread's stack is left. `false` also on a stack that is not the
/// thread's own, such as a coroutine's in C.
#[inline]
pub(crate) fn is_ample(key: Key) -> bool {
    let pointer = stack_pointer();
    let entry = &ENTRIES[key.index()];
    let (low, high) = (entry.low.load(Ordering::Relaxed), entry.high.load(Ordering::Relaxed));
    let is_its_own = entry.key.load(Ordering::Relaxed) == key.0;
    if is_its_own && pointer < high && pointer > low + (high - low) / 2 {
        return true;
    }
    look(key, pointer).is_some_and(|(low, high)| pointer > low + (high - low) / 2)
}

/// Whether there is room to judge a function.
pub(crate) fn suffices_to_judge(key: Key) -> bool {
    let pointer = stack_pointer();
    look(key, pointer).is_some_and(|(low, _)| pointer - low > TO_JUDGE)
}

/// Where the stack begins and ends, if the pointer lies in it.
#[cold]
fn look(key: Key, pointer: usize) -> Option<(usize, usize)> {
    let entry = &ENTRIES[key.index()];
    if entry.key.load(Ordering::Relaxed) != key.0 {
        let (low, high) = bounds()?;
        entry.low.store(low, Ordering::Relaxed);
        entry.high.store(high, Ordering::Relaxed);
        entry.key.store(key.0, Ordering::Relaxed);
    }
    let bounds = (entry.low.load(Ordering::Relaxed), entry.high.load(Ordering::Relaxed));
    (bounds.0..bounds.1).contains(&pointer).then_some(bounds)
}

type Attributes = MaybeUninit<[u64; 32]>;
type OfThread = unsafe extern "C" fn(usize, *mut Attributes) -> c_int;
type Own = unsafe extern "C" fn() -> usize;
type Stack = unsafe extern "C" fn(*const Attributes, *mut usize, *mut usize) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Attributes) -> c_int;

/// The functions of pthread.h that give the bounds of a stack, once they are found.
static FUNCTIONS: [AtomicPtr<c_void>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];
const NAMES: [&CStr; 4] =
    [c"pthread_getattr_np", c"pthread_self", c"pthread_attr_getstack", c"pthread_attr_destroy"];

/// Finds the functions of pthread.h; not to be called in a hook. `false`: the C library lacks one.
pub(crate) fn prepare() -> bool {
    NAMES.iter().zip(&FUNCTIONS).all(|(name, place)| {
        let found = host::symbol(name);
        place.store(found.map_or(ptr::null_mut(), NonNull::as_ptr), Ordering::Release);
        found.is_some()
    })
}

fn bounds() -> Option<(usize, usize)> {
    let [of_thread, own, stack, destroy] =
        FUNCTIONS.each_ref().map(|place| NonNull::new(place.load(Ordering::Acquire)));
    // SAFETY: the functions of pthread.h, with their signatures.
    let (of_thread, own, stack, destroy) = unsafe {
        (
            transmute::<*mut c_void, OfThread>(of_thread?.as_ptr()),
            transmute::<*mut c_void, Own>(own?.as_ptr()),
            transmute::<*mut c_void, Stack>(stack?.as_ptr()),
            transmute::<*mut c_void, Destroy>(destroy?.as_ptr()),
        )
    };
    let (mut attributes, mut low, mut size) = (Attributes::uninit(), 0_usize, 0_usize);
    // SAFETY: the attributes are initialised by the first call and destroyed by the last, and there is room
    // for them.
    unsafe {
        if of_thread(own(), &raw mut attributes) != 0 {
            return None;
        }
        let found = stack(&raw const attributes, &raw mut low, &raw mut size) == 0;
        destroy(&raw mut attributes);
        found.then(|| (low, low.saturating_add(size)))
    }
}
