//! A session that starts before Python does.
//!
//! The loader calls [`speed_bump_attach`](crate::speed_bump_attach) on the first thread of a program, at its
//! entry point. There is no interpreter yet, so we only add a hook for its audit events (PEP 578), which is
//! allowed that early. The first code that runs and is not CPython's own is that of `site`, or, without that,
//! the main module's (`init_interp_main` in Python/pylifecycle.c). Their events are the first of an
//! interpreter that counts as initialised, up to 3.14. 3.15 counts as initialised only after `site`, so there
//! we watch for its import. With that event the session starts, on the same thread, so that no call is
//! missed; then the helper's thread starts and takes it over.
//!
//! Later events do not matter here.

use core::{
    cell::UnsafeCell,
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use speed_bump_abi::control_block::{Failure, State};

use crate::{
    attach, audit,
    block::Block,
    host::Library,
    life,
    python::{api::Api, object::Object, said::Moment},
    session::{self, Session},
    stage::Stage,
};

/// The functions that we call before we know whether we may call the rest of the API.
static IS_INITIALIZED: Function = Function::unknown();
static IS_FINALIZING: Function = Function::unknown();
static TUPLE_ITEM: Function = Function::unknown();
static COMPARE: Function = Function::unknown();

/// A function of Python's, once it is found.
struct Function(AtomicPtr<c_void>);

impl Function {
    const fn unknown() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn find(&self, library: Library, name: &CStr) -> Result<(), Failure> {
        let found = library.symbol(name).ok_or(Failure::NoPython)?;
        self.0.store(found.as_ptr(), Ordering::Release);
        Ok(())
    }

    fn address(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.0.load(Ordering::Acquire))
    }

    /// Calls a function that needs nothing and returns yes or no.
    ///
    /// # Safety
    /// The function is of that kind.
    unsafe fn says_yes(&self) -> bool {
        self.address().is_some_and(|function| {
            // SAFETY: as the caller promises.
            unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function.as_ptr())() != 0 }
        })
    }
}

/// The session, handed from Python's thread to the helper's.
struct Handed(UnsafeCell<Option<Session>>);

// SAFETY: written by the thread that starts the session before it starts the helper's thread, which then
// takes it.
unsafe impl Sync for Handed {}

static HANDED: Handed = Handed(UnsafeCell::new(None));

/// Makes the session start when Python does. `Ok(false)`: it has started.
///
/// # Errors
/// [`Failure::NoPython`]: the program exports no Python to wait for.
pub(crate) fn arm(block: Block) -> Result<bool, Failure> {
    let library = Library::with(c"PySys_AddAuditHook", b"python").ok_or(Failure::NoPython)?;
    IS_INITIALIZED.find(library, c"Py_IsInitialized")?;
    IS_FINALIZING
        .find(library, c"Py_IsFinalizing")
        .or_else(|_| IS_FINALIZING.find(library, c"_Py_IsFinalizing"))?;
    TUPLE_ITEM.find(library, c"PyTuple_GetItem")?;
    COMPARE.find(library, c"PyUnicode_CompareWithASCIIString")?;
    if python_is_initialized() {
        return Ok(false);
    }
    block.set_state(State::Waiting);
    Stage::Armed.begin();
    // SAFETY: Python is not initialised.
    if !unsafe { audit::listen(library) } {
        Stage::Idle.begin();
        return Err(Failure::Python);
    }
    Ok(true)
}

fn python_is_initialized() -> bool {
    // SAFETY: the function needs nothing (Include/pylifecycle.h).
    unsafe { IS_INITIALIZED.says_yes() }
}

/// The session for the helper's thread; only that thread calls this.
pub(crate) fn take() -> Option<Session> {
    // SAFETY: the thread that wrote it has started this thread afterwards.
    unsafe { (*HANDED.0.get()).take() }
}

/// Handles an audit event, while a session waits for Python.
///
/// # Safety
/// As Python calls an audit hook.
pub(crate) unsafe fn on_event(stage: Stage, event: *const c_char, arguments: *mut Object) {
    match stage {
        // SAFETY: as the caller promises.
        Stage::Armed => unsafe { begin(event, arguments) },
        Stage::Early => settle(),
        Stage::Idle => {}
    }
}

/// Ends the time in which Python does not count as initialised.
#[cold]
fn settle() {
    // SAFETY: the function needs nothing (Include/cpython/pylifecycle.h).
    if python_is_initialized() || unsafe { IS_FINALIZING.says_yes() } {
        Stage::Idle.begin();
    }
}

/// Whether this is the event of `import site`, whose arguments are a tuple with the module's name first.
///
/// # Safety
/// The event and the arguments are those of one audit event.
unsafe fn is_import_of_site(event: *const c_char, arguments: *mut Object) -> bool {
    let (Some(item), Some(compare)) = (TUPLE_ITEM.address(), COMPARE.address()) else { return false };
    // SAFETY: the event is a C string. An import has a thread state, and its first argument is a string; the
    // functions have these signatures in all versions (Include/tupleobject.h, unicodeobject.h).
    unsafe {
        if CStr::from_ptr(event) != c"import" || arguments.is_null() {
            return false;
        }
        let item =
            transmute::<*mut c_void, unsafe extern "C" fn(*mut Object, isize) -> *mut Object>(item.as_ptr());
        let compare = transmute::<*mut c_void, unsafe extern "C" fn(*mut Object, *const c_char) -> c_int>(
            compare.as_ptr(),
        );
        let name = item(arguments, 0);
        !name.is_null() && compare(name, c"site".as_ptr()) == 0
    }
}

/// # Safety
/// The arguments are an audit event's.
#[cold]
unsafe fn begin(event: *const c_char, arguments: *mut Object) {
    let stage = if python_is_initialized() {
        Stage::Idle
    // SAFETY: as the caller promises.
    } else if unsafe { is_import_of_site(event, arguments) } {
        Stage::Early
    } else {
        return;
    };
    // The calls that follow raise events themselves.
    if !stage.begin_after(Stage::Armed) {
        return;
    }
    let Some(block) = Block::current() else { return };
    // The program may have forked before it initialised Python. Such a child is like one that was forked
    // later, and has no helper thread.
    let is_owner = life::is_claimed();
    let begun = Api::look_up(Moment::Initialising).and_then(|api| match api {
        Some(api) => session::begin(block, api),
        None => Ok(None),
    });
    if !is_owner {
        return;
    }
    let state = match begun {
        Ok(Some(session)) => {
            // SAFETY: no helper thread exists that could take it, since the claim is ours.
            unsafe { *HANDED.0.get() = Some(session) };
            if attach::start(block).is_ok() {
                return;
            }
            // `start` has reported the failure, and unmapped the block.
            if let (Some(session), Some(api)) = (take(), Api::found()) {
                session.give_up(api);
            }
            return life::release();
        }
        Ok(None) => State::Left,
        Err(fault) => {
            block.describe(&fault);
            State::Failed
        }
    };
    block.leave(state, life::release);
}
