//! CPython's list of its interpreters, and the lock that guards it.
//!
//! An interpreter is in the list from its start until its memory is about to be freed. So a thread that holds
//! the lock may read and write a field of an interpreter in the list, whatever state that interpreter is in.
//! No thread waits for a GIL while it holds the lock, so a thread that holds a GIL may take the lock. The
//! helper never waits for the lock. Up to 3.12 the lock is freed when Python is finalized, which takes the
//! GIL.
//!
//! The list is exported, its lock is not. The lock comes before the list's head in `_PyRuntime` (`struct
//! pyinterpreters`, Include/internal/pycore_pystate.h of 3.8, pycore_runtime.h of 3.9 to 3.13,
//! pycore_runtime_structs.h from 3.14 on). We find it by the values of the words beside it.

use core::{
    ffi::c_int,
    ptr::{self, NonNull},
    sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, Ordering},
};

use super::api::{Api, Interpreter};

/// How many bytes of `_PyRuntime` we search: less than its size, 656 bytes on 3.9 and 282 KiB on 3.13.
const SEARCHED_BEFORE_311: usize = 512;
const SEARCHED: usize = 2048;
/// Words of `struct pyinterpreters`: lock, head, main interpreter, next number.
const WORDS: usize = 4;
/// More interpreters than any process has had.
const MANY: i64 = 1 << 32;
/// `_Py_UNLOCKED`, `_Py_LOCKED` of a `PyMutex` (Include/cpython/pylock.h).
const UNLOCKED: u8 = 0;
const LOCKED: u8 = 1;
/// `NOWAIT_LOCK` (Include/pythread.h).
const AT_ONCE: c_int = 0;

/// The words, once they are found.
static FOUND: AtomicPtr<u64> = AtomicPtr::new(ptr::null_mut());

/// The list, at the place where it was found.
#[derive(Clone, Copy)]
pub(crate) struct Interpreters {
    api: &'static Api,
    words: NonNull<u64>,
}

/// The list while its lock is held.
pub(crate) struct Locked {
    list: Interpreters,
}

impl Interpreters {
    /// Finds the list. `None`: it is not certain where the list is.
    pub(crate) fn find(api: &'static Api) -> Option<Self> {
        if let Some(words) = NonNull::new(FOUND.load(Ordering::Acquire)) {
            return Some(Self { api, words });
        }
        let runtime = api.library.symbol(c"_PyRuntime")?.cast::<u64>();
        let searched = if api.version.minor() < (3, 11) { SEARCHED_BEFORE_311 } else { SEARCHED };
        // SAFETY: both return a pointer that is only compared.
        let (head, main) = unsafe { ((api.interpreter_head)(), (api.interpreter_main)()) };
        let mut places = (0..searched / 8 - WORDS).filter_map(|word| {
            // SAFETY: in `_PyRuntime`, which is larger, aligned, and there for ever.
            let words = unsafe { runtime.add(word) };
            // SAFETY: the same; other threads write whole words.
            let read = |offset: usize| unsafe { words.add(offset).as_ptr().read_volatile() };
            let is_lock = if has_mutex(api) { read(0) < 4 } else { read(0) != 0 };
            let is_list = read(1) == head as u64 && read(2) == main as u64;
            let is_number = (1..MANY).contains(&read(3).cast_signed());
            (is_lock && is_list && is_number).then_some(words)
        });
        match (places.next(), places.next()) {
            (Some(words), None) => {
                FOUND.store(words.as_ptr(), Ordering::Release);
                Some(Self { api, words })
            }
            _ => None,
        }
    }

    /// The number that the next interpreter will get. The main one has 0, and none is reused.
    #[inline]
    pub(crate) fn next_number(self) -> i64 {
        next_number_at(self.words)
    }

    /// Takes the lock, unless another thread has it. Up to 3.12 the caller must hold a GIL.
    pub(crate) fn try_lock(self) -> Option<Locked> {
        let can_be_given_back = if has_mutex(self.api) {
            self.api.mutex_unlock.is_some()
        } else {
            self.api.release_lock.is_some()
        };
        if !can_be_given_back {
            return None;
        }
        let is_taken = if has_mutex(self.api) {
            self.mutex().compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        } else {
            let lock = self.lock();
            // SAFETY: a lock of this type. The thread that finalizes Python frees it, and holds the GIL for
            // that.
            let acquire = |acquire: unsafe extern "C" fn(_, _) -> _| unsafe { acquire(lock, AT_ONCE) } != 0;
            !lock.is_null() && self.api.acquire_lock.is_some_and(acquire)
        };
        // Not made before the lock is held: dropping it releases the lock.
        is_taken.then(|| Locked { list: self })
    }

    fn mutex(self) -> &'static AtomicU8 {
        // SAFETY: from 3.13 on the lock is a byte that lies there for ever.
        unsafe { self.words.cast().as_ref() }
    }

    fn lock(self) -> *mut core::ffi::c_void {
        // SAFETY: up to 3.12 there is a pointer to the lock.
        unsafe { self.words.cast::<AtomicPtr<core::ffi::c_void>>().as_ref() }.load(Ordering::Acquire)
    }
}

impl Locked {
    /// Calls `visit` for all interpreters but the main one, with their numbers.
    pub(crate) fn each_other(&self, mut visit: impl FnMut(NonNull<Interpreter>, i64)) {
        let api = self.list.api;
        // SAFETY: the list does not change while the lock is held, and those in it are alive.
        unsafe {
            let main = (api.interpreter_main)();
            let mut next = (api.interpreter_head)();
            while let Some(interpreter) = NonNull::new(next) {
                if !ptr::eq(next, main) {
                    visit(interpreter, (api.interpreter_id)(next));
                }
                next = (api.interpreter_next)(next);
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let (list, api) = (self.list, self.list.api);
        if !has_mutex(api) {
            // SAFETY: held since `try_lock`.
            api.release_lock.into_iter().for_each(|release| unsafe { release(list.lock()) });
            return;
        }
        let mutex = list.mutex();
        if mutex.compare_exchange(LOCKED, UNLOCKED, Ordering::Release, Ordering::Relaxed).is_err() {
            // A thread waits, and must be woken.
            // SAFETY: held since `try_lock`.
            api.mutex_unlock.into_iter().for_each(|unlock| unsafe { unlock(mutex) });
        }
    }
}

/// [`Interpreters::next_number`], if the list was found.
#[inline]
pub(crate) fn next_number() -> Option<i64> {
    NonNull::new(FOUND.load(Ordering::Relaxed)).map(next_number_at)
}

#[inline]
fn next_number_at(words: NonNull<u64>) -> i64 {
    // SAFETY: the words exist for ever, and are aligned.
    unsafe { words.add(3).cast::<AtomicI64>().as_ref() }.load(Ordering::Acquire)
}

/// Whether the lock is a `PyMutex`.
fn has_mutex(api: &Api) -> bool {
    api.version.minor() >= (3, 13)
}
