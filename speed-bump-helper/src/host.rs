//! Functions of the host process, found at run time: the helper links only `dlsym`.

mod loaded;

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::MaybeUninit,
    ptr::{self, NonNull},
};

use speed_bump_abi::control_block::Failure;

use crate::{fault, sys};

/// `RTLD_DEFAULT` of glibc and musl (dlfcn.h): the global scope.
const GLOBAL_SCOPE: *mut c_void = ptr::null_mut();
/// `PTHREAD_CREATE_DETACHED` of glibc and musl (pthread.h).
const DETACHED: c_int = 1;
/// Bytes of the thread's stack. C libraries put thread-local storage on it; the libraries of a large program
/// have some hundred KiB of that. Only memory that is touched is used.
const STACK_BYTES: usize = 1 << 20;
/// Larger than `pthread_attr_t` on any system (56 bytes with glibc and musl on x86-64, 64 on aarch64).
type Attributes = MaybeUninit<[u64; 32]>;

unsafe extern "C" {
    safe fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The main function of a new thread.
pub(crate) type ThreadMain = extern "C" fn(*mut c_void) -> *mut c_void;

/// The address of a function or variable of the process.
pub(crate) fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    Library(GLOBAL_SCOPE).symbol(name)
}

/// Where to look symbols up: the global scope, or one library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(*mut c_void);

impl Library {
    /// The scope that has the symbol: the global one, or else a library whose file name contains the word,
    /// since a program may load its Python with `RTLD_LOCAL`. Such a library is never unloaded from then on.
    pub(crate) fn with(name: &CStr, word: &[u8]) -> Option<Self> {
        let global = Self(GLOBAL_SCOPE);
        if global.symbol(name).is_some() {
            return Some(global);
        }
        loaded::libraries(word).map(Self).find(|library| library.symbol(name).is_some())
    }

    /// The address of a function or variable there.
    pub(crate) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        NonNull::new(dlsym(self.0, name.as_ptr()))
    }
}

/// The signals that the C library itself sends to threads (for `setuid` in all threads, and for
/// cancellation): bit N is signal N + 1. The library waits until the threads have handled them. So a thread
/// that blocks them hangs the process.
pub(crate) fn reserved_signals() -> u64 {
    const fn bit(signal: u32) -> u64 {
        1 << (signal - 1)
    }
    // glibc: 32 and 33 (nptl/pthreadP.h); musl: 34 as well (src/internal/pthread_impl.h), which glibc gives
    // to programs as SIGRTMIN.
    let is_glibc = symbol(c"gnu_get_libc_version").is_some();
    bit(32) | bit(33) | if is_glibc { 0 } else { bit(34) }
}

/// Starts a detached thread with a stack of [`STACK_BYTES`]. The thread inherits the caller's signal mask.
///
/// # Errors
/// [`Failure::NoThreads`], [`Failure::NoThread`] or [`Failure::NoMemory`].
pub(crate) fn start_thread(main: ThreadMain) -> Result<(), Failure> {
    type Init = unsafe extern "C" fn(*mut Attributes) -> c_int;
    type Set = unsafe extern "C" fn(*mut Attributes, c_int) -> c_int;
    type SetSize = unsafe extern "C" fn(*mut Attributes, usize) -> c_int;
    type Create = unsafe extern "C" fn(*mut usize, *const Attributes, ThreadMain, *mut c_void) -> c_int;

    let find = |name: &CStr| symbol(name).map(NonNull::as_ptr).ok_or(Failure::NoThreads);
    // SAFETY: the functions of pthread.h, with their signatures.
    let (init, destroy, set_detached, set_size, create) = unsafe {
        (
            core::mem::transmute::<*mut c_void, Init>(find(c"pthread_attr_init")?),
            core::mem::transmute::<*mut c_void, Init>(find(c"pthread_attr_destroy")?),
            core::mem::transmute::<*mut c_void, Set>(find(c"pthread_attr_setdetachstate")?),
            core::mem::transmute::<*mut c_void, SetSize>(find(c"pthread_attr_setstacksize")?),
            core::mem::transmute::<*mut c_void, Create>(find(c"pthread_create")?),
        )
    };
    let (mut attributes, mut thread) = (Attributes::uninit(), 0);
    // SAFETY: the attributes are initialised first and destroyed last, and there is room for them.
    unsafe {
        if init(&raw mut attributes) != 0 {
            return Err(Failure::NoMemory);
        }
        set_detached(&raw mut attributes, DETACHED);
        set_size(&raw mut attributes, STACK_BYTES);
        let result = create(&raw mut thread, &raw const attributes, main, ptr::null_mut());
        destroy(&raw mut attributes);
        if result == 0 { Ok(()) } else { Err(why_not_started()) }
    }
}

/// Finds the reason: the C library returns EAGAIN both for too many threads and for lack of memory for a
/// stack.
fn why_not_started() -> Failure {
    match sys::allocate(STACK_BYTES) {
        Ok(stack) => {
            // SAFETY: no other code has its address.
            unsafe { sys::free(stack, STACK_BYTES) };
            Failure::NoThread
        }
        Err(error) => fault::not_mapped(error),
    }
}
