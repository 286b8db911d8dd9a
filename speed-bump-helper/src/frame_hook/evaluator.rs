//! Where an interpreter stores the function that evaluates frames (PEP 523).

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
        api::{Api, Interpreter, ThreadState},
        gil::Python,
        object::Object,
    },
    sys,
};

/// A `PyFrameObject`; on 3.11 an `_PyInterpreterFrame`.
#[repr(C)]
pub(crate) struct Frame {
    _opaque: [u8; 0],
}

/// The address of an evaluator; its type depends on the version: [`Evaluator38`] or [`Evaluator39`].
pub(crate) type Address = *mut c_void;
/// `_PyFrameEvalFunction` of 3.8 (Include/cpython/pystate.h).
pub(crate) type Evaluator38 = unsafe extern "C" fn(*mut Frame, c_int) -> *mut Object;
/// The type of 3.9 to 3.11.
pub(crate) type Evaluator39 = unsafe extern "C" fn(*mut ThreadState, *mut Frame, c_int) -> *mut Object;

type Getter = unsafe extern "C" fn(*mut Interpreter) -> Address;
type Setter = unsafe extern "C" fn(*mut Interpreter, Address);

/// Bytes of an interpreter's state that we search for the evaluator on 3.8. The state is larger: a table of 2
/// KiB follows the evaluator (Include/internal/pycore_pystate.h).
const SEARCHED: usize = 1024;

static DEFAULT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static GETTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static SETTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The offset of the evaluator in an interpreter's state; 0 while unknown.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Finds the offset, once per process.
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
        if OFFSET.load(Ordering::Acquire) == 0 {
            OFFSET.store(probe().unwrap_or(0), Ordering::Release);
        }
    } else if OFFSET.load(Ordering::Acquire) == 0 {
        OFFSET.store(search(main(python), default)?, Ordering::Release);
    }
    Ok(())
}

/// Searches again, after [`prepare`], for the place where 3.8 stores the evaluator. Returns whether the place
/// is known. The main interpreter must exist.
pub(crate) fn search_again(api: &Api) -> bool {
    if OFFSET.load(Ordering::Acquire) == 0 {
        // SAFETY: needs nothing.
        let main = unsafe { (api.interpreter_main)() };
        OFFSET.store(search(main, default()).unwrap_or(0), Ordering::Release);
    }
    OFFSET.load(Ordering::Acquire) != 0
}

/// The main interpreter.
pub(crate) fn main(python: Python<'_>) -> *mut Interpreter {
    // SAFETY: needs nothing.
    unsafe { (python.api.interpreter_main)() }
}

/// Calls the getter with a made-up interpreter, in which every word holds its own offset. The getter reads
/// one field, and returns the default if that is null. `None`: no such answer.
fn probe() -> Option<usize> {
    /// Larger than the offset of the field: 8 KiB from 3.12 on.
    const BYTES: usize = sys::PAGE;
    let getter = NonNull::new(GETTER.load(Ordering::Acquire))?;
    let made_up = sys::allocate(BYTES).ok()?;
    let words = made_up.cast::<usize>();
    for word in 0..BYTES / 8 {
        // SAFETY: in the memory that was allocated. Odd, unlike the address of an aligned function.
        unsafe { words.add(word).write(word * 8 + 1) };
    }
    // SAFETY: the function of this name has this signature (Include/cpython/pystate.h), and only reads a
    // field (Python/pystate.c, 3.9 to 3.15).
    let said = unsafe { transmute::<Address, Getter>(getter.as_ptr())(made_up.as_ptr().cast()) } as usize;
    // SAFETY: allocated above, and shared with no other code.
    unsafe { sys::free(made_up, BYTES) };
    let offset = said.checked_sub(1)?;
    (offset > 0 && offset < BYTES && offset.is_multiple_of(8)).then_some(offset)
}

/// The place of the evaluator in an interpreter. `None`: the offset is unknown.
///
/// # Safety
/// The interpreter is alive for as long as the place is used.
pub(crate) unsafe fn place<'i>(interpreter: NonNull<Interpreter>) -> Option<&'i AtomicPtr<c_void>> {
    let offset = OFFSET.load(Ordering::Acquire);
    // SAFETY: an aligned field of the interpreter, which is always read and written as a whole.
    (offset != 0).then(|| unsafe { interpreter.byte_add(offset).cast().as_ref() })
}

/// Makes an interpreter that uses the default evaluator use another one; its threads find it at the next
/// call. Returns whether the interpreter uses the other one now.
pub(crate) fn replace_default(place: &AtomicPtr<c_void>, evaluator: Address) -> bool {
    [ptr::null_mut(), default()]
        .into_iter()
        .any(|default| place.compare_exchange(default, evaluator, Ordering::SeqCst, Ordering::SeqCst).is_ok())
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

/// The value that is stored for the default evaluator.
pub(crate) fn stored_default(python: Python<'_>) -> Address {
    if python.api.version.minor() >= (3, 11) { ptr::null_mut() } else { default() }
}

/// CPython's own evaluator.
#[inline]
pub(crate) fn default() -> Address {
    DEFAULT.load(Ordering::Relaxed)
}

/// The main interpreter's evaluator.
pub(crate) fn current(python: Python<'_>) -> Address {
    // SAFETY: the main interpreter exists while some thread holds its GIL.
    unsafe { current_of(python, main(python)) }
}

/// Makes the main interpreter use another evaluator.
pub(crate) fn set(python: Python<'_>, evaluator: Address) {
    // SAFETY: as in `current`.
    unsafe { set_of(python, main(python), evaluator) };
}

/// An interpreter's evaluator.
///
/// # Safety
/// The interpreter is alive, and its GIL is the one that is held.
pub(crate) unsafe fn current_of(_: Python<'_>, interpreter: *mut Interpreter) -> Address {
    let getter = GETTER.load(Ordering::Acquire);
    if getter.is_null() {
        // SAFETY: the field is there; the GIL is held.
        return unsafe {
            interpreter.wrapping_byte_add(OFFSET.load(Ordering::Acquire)).cast::<Address>().read()
        };
    }
    // SAFETY: the function of this name has this signature (Include/cpython/pystate.h); the GIL is held.
    unsafe { transmute::<Address, Getter>(getter)(interpreter) }
}

/// Makes an interpreter use another evaluator.
///
/// # Safety
/// As [`current_of`].
pub(crate) unsafe fn set_of(_: Python<'_>, interpreter: *mut Interpreter, evaluator: Address) {
    let setter = SETTER.load(Ordering::Acquire);
    if setter.is_null() {
        let place = interpreter.wrapping_byte_add(OFFSET.load(Ordering::Acquire)).cast::<Address>();
        // SAFETY: the field is there; the GIL is held, and every reader holds it too.
        unsafe { place.write(evaluator) };
        return;
    }
    // SAFETY: as in `current_of`. From 3.11 on, null stands for the default, which lets calls be inlined
    // again.
    unsafe { transmute::<Address, Setter>(setter)(interpreter, evaluator) };
}
