//! A session that begins before Python does.
//!
//! The loader calls [`speed_bump_attach`](crate::speed_bump_attach) on the first thread of a program, at its entry
//! point. There is no interpreter yet, so all that is done is to ask to be told of its audit events (PEP 578), which
//! may be done that early. The first event of an initialised interpreter is the import of `site`, or, without that,
//! the running of the main module: in all versions the flag is set before any code runs that is not CPython's own
//! (`init_interp_main` in Python/pylifecycle.c). There the session begins, on the very thread, so that no call is
//! missed; then the helper's thread is started and takes it over.
//!
//! An audit hook cannot be removed: from then on this one returns at once.

use core::{
    cell::UnsafeCell,
    ffi::{c_char, c_int, c_void},
    mem::transmute,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use speed_bump_abi::control_block::{Failure, State};

use crate::{
    attach,
    block::Block,
    host::Library,
    life,
    python::{api::Api, object::Object},
    session::{self, Session},
};

/// Nothing waits for Python.
const IDLE: u32 = 0;
/// A session waits for it.
const ARMED: u32 = 1;

static STAGE: AtomicU32 = AtomicU32::new(IDLE);
/// `Py_IsInitialized`: the rest of the API is not looked at before it says so.
static IS_INITIALIZED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The session on its way from Python's thread to the helper's.
struct Handed(UnsafeCell<Option<Session>>);

// SAFETY: written by the thread that begins the session before it starts the helper's thread, and then taken by that.
unsafe impl Sync for Handed {}

static HANDED: Handed = Handed(UnsafeCell::new(None));

type Hook = unsafe extern "C" fn(*const c_char, *mut Object, *mut c_void) -> c_int;

/// Has the session begin when Python does. `Ok(false)`: it has begun.
///
/// # Errors
/// [`Failure::NoPython`]: the program exports no Python that could be waited for.
pub(crate) fn arm(block: Block) -> Result<bool, Failure> {
    let library = Library::with(c"PySys_AddAuditHook", b"python").ok_or(Failure::NoPython)?;
    let add = library.symbol(c"PySys_AddAuditHook").ok_or(Failure::NoPython)?;
    let is_initialized = library.symbol(c"Py_IsInitialized").ok_or(Failure::NoPython)?;
    IS_INITIALIZED.store(is_initialized.as_ptr(), Ordering::Release);
    if python_is_initialized() {
        return Ok(false);
    }
    block.set_state(State::Waiting);
    STAGE.store(ARMED, Ordering::Release);
    // SAFETY: the function has this signature in all versions (Include/cpython/sysmodule.h), and may be called before
    // the interpreter is initialised.
    unsafe {
        let add = transmute::<*mut c_void, unsafe extern "C" fn(Hook, *mut c_void) -> c_int>(add.as_ptr());
        if add(on_event, ptr::null_mut()) != 0 {
            STAGE.store(IDLE, Ordering::Release);
            return Err(Failure::Python);
        }
    }
    Ok(true)
}

fn python_is_initialized() -> bool {
    let function = IS_INITIALIZED.load(Ordering::Acquire);
    // SAFETY: null, or the function, which has this signature in all versions (Include/pylifecycle.h) and needs nothing.
    let function = unsafe { transmute::<*mut c_void, Option<unsafe extern "C" fn() -> c_int>>(function) };
    // SAFETY: as above.
    function.is_some_and(|function| unsafe { function() } != 0)
}

/// What the helper's thread goes on with; for that thread alone.
pub(crate) fn take() -> Option<Session> {
    // SAFETY: whoever wrote it started this thread afterwards.
    unsafe { (*HANDED.0.get()).take() }
}

/// An audit event: `Py_AuditHookFunction`.
///
/// # Safety
/// Python calls it. Events before the initialisation may come without a thread state.
unsafe extern "C" fn on_event(_: *const c_char, _: *mut Object, _: *mut c_void) -> c_int {
    if STAGE.load(Ordering::Relaxed) == ARMED {
        begin();
    }
    0
}

#[cold]
fn begin() {
    if !python_is_initialized() {
        return;
    }
    // What follows raises events itself.
    if STAGE.compare_exchange(ARMED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    let Some(block) = Block::current() else { return };
    // The program may have forked before it initialised Python: such a child is like one that was forked later, and
    // has no thread of the helper's.
    let is_owner = life::is_claimed();
    let begun = Api::look_up().and_then(|api| session::begin(block, api));
    if !is_owner {
        return;
    }
    let state = match begun {
        Ok(Some(session)) => {
            // SAFETY: there is no thread of the helper's that could take it, as the claim is ours.
            unsafe { *HANDED.0.get() = Some(session) };
            if attach::start(block).is_some() {
                return;
            }
            // `start` has told of it, and freed the block.
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
