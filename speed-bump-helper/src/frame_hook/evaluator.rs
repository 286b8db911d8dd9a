//! Where an interpreter keeps the function that evaluates frames (PEP 523).

use core::{
    ffi::{c_int, c_void},
    mem::transmute,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

use speed_bump_abi::control_block::Failure;

use crate::{
    fault::Fault,
    python::{
        api::{Interpreter, ThreadState},
        gil::Python,
        object::Object,
    },
};

/// A `PyFrameObject`, in 3.11 an `_PyInterpreterFrame`.
#[repr(C)]
pub(crate) struct Frame {
    _opaque: [u8; 0],
}

/// The address of an evaluator, of the type that the version has: [`Evaluator38`] or [`Evaluator39`].
pub(crate) type Address = *mut c_void;
/// `_PyFrameEvalFunction` of 3.8 (Include/cpython/pystate.h).
pub(crate) type Evaluator38 = unsafe extern "C" fn(*mut Frame, c_int) -> *mut Object;
/// That of 3.9 to 3.11.
pub(crate) type Evaluator39 = unsafe extern "C" fn(*mut ThreadState, *mut Frame, c_int) -> *mut Object;

type Getter = unsafe extern "C" fn(*mut Interpreter) -> Address;
type Setter = unsafe extern "C" fn(*mut Interpreter, Address);

/// Bytes of an interpreter's state that are searched for the evaluator on 3.8. The state is larger: a table
/// of 2 KiB follows the evaluator (Include/internal/pycore_pystate.h).
const SEARCHED: usize = 1024;

static DEFAULT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static GETTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static SETTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Where it lies in an interpreter's state, on 3.8; 0 as long as nobody knows.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Finds out, once a process.
///
/// # Errors
/// [`Failure::NoPython`], [`Failure::Unsupported`].
pub(crate) fn prepare(python: Python<'_>) -> Result<(), Fault> {
    let find = |name: &core::ffi::CStr| {
        python.api.library.symbol(name).map(NonNull::as_ptr).ok_or_else(|| {
            let name = name.to_str().unwrap_or_default();
            Fault::new(Failure::NoPython, &["the interpreter exports no ", name])
        })
    };
    let default = find(c"_PyEval_EvalFrameDefault")?;
    DEFAULT.store(default, Ordering::Release);
    if python.api.version.minor() >= (3, 9) {
        GETTER.store(find(c"_PyInterpreterState_GetEvalFrameFunc")?, Ordering::Release);
        SETTER.store(find(c"_PyInterpreterState_SetEvalFrameFunc")?, Ordering::Release);
    } else if OFFSET.load(Ordering::Acquire) == 0 {
        OFFSET.store(search(main(python), default)?, Ordering::Release);
    }
    Ok(())
}

fn main(python: Python<'_>) -> *mut Interpreter {
    // SAFETY: needs nothing.
    unsafe { (python.api.interpreter_main)() }
}

fn search(interpreter: *mut Interpreter, default: Address) -> Result<usize, Fault> {
    let words = interpreter.cast::<Address>();
    // SAFETY: inside the interpreter's state.
    let mut places = (1..SEARCHED / 8).filter(|word| unsafe { words.add(*word).read() } == default);
    match (places.next(), places.next()) {
        (Some(word), None) => Ok(word * 8),
        (None, _) => Err(Fault::new(
            Failure::Unsupported,
            &["another tool evaluates the frames of this interpreter, and CPython 3.8 cannot be asked for \
                 its hook"],
        )),
        (Some(_), Some(_)) => Err(Fault::new(
            Failure::Unsupported,
            &["it is not certain where this build of CPython 3.8 keeps the function that evaluates frames"],
        )),
    }
}

/// CPython's own.
#[inline]
pub(crate) fn default() -> Address {
    DEFAULT.load(Ordering::Relaxed)
}

/// That of the main interpreter.
pub(crate) fn current(python: Python<'_>) -> Address {
    let getter = GETTER.load(Ordering::Acquire);
    if getter.is_null() {
        // SAFETY: that is where the field is; the GIL is held.
        return unsafe {
            main(python).wrapping_byte_add(OFFSET.load(Ordering::Acquire)).cast::<Address>().read()
        };
    }
    // SAFETY: the function of this name has this signature (Include/cpython/pystate.h); the GIL is held.
    unsafe { transmute::<Address, Getter>(getter)(main(python)) }
}

/// Has the main interpreter use another.
pub(crate) fn set(python: Python<'_>, evaluator: Address) {
    let setter = SETTER.load(Ordering::Acquire);
    if setter.is_null() {
        let place = main(python).wrapping_byte_add(OFFSET.load(Ordering::Acquire)).cast::<Address>();
        // SAFETY: that is where the field is; the GIL is held, and whoever reads it holds it, too.
        unsafe { place.write(evaluator) };
        return;
    }
    // SAFETY: as in `current`. From 3.11 on, the default is stored as null, which lets calls be inlined
    // again.
    unsafe { transmute::<Address, Setter>(setter)(main(python), evaluator) };
}
