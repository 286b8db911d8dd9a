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
        api::{Api, Interpreter, ThreadState},
        gil::Python,
        object::Object,
    },
    sys,
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
/// Where it lies in an interpreter's state; 0 as long as nobody knows.
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
        if OFFSET.load(Ordering::Acquire) == 0 {
            OFFSET.store(probe().unwrap_or(0), Ordering::Release);
        }
    } else if OFFSET.load(Ordering::Acquire) == 0 {
        OFFSET.store(search(main(python), default)?, Ordering::Release);
    }
    Ok(())
}

/// Looks once more for where 3.8 keeps it, after [`prepare`]. Whether that is known; the main interpreter is
/// there.
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

/// Asks the getter of an interpreter that there is not, whose every word says where it lies: the getter reads
/// one field, and answers with the default if that is null. `None`: no such answer.
fn probe() -> Option<usize> {
    /// More than lies before the field: 8 KiB from 3.12 on.
    const BYTES: usize = sys::PAGE;
    let getter = NonNull::new(GETTER.load(Ordering::Acquire))?;
    let nobody = sys::allocate(BYTES).ok()?;
    let words = nobody.cast::<usize>();
    for word in 0..BYTES / 8 {
        // SAFETY: in the memory that was allocated. Odd, as no address of a function that is aligned.
        unsafe { words.add(word).write(word * 8 + 1) };
    }
    // SAFETY: the function of this name has this signature (Include/cpython/pystate.h), and reads nothing
    // but a field (Python/pystate.c, 3.9 to 3.15).
    let said = unsafe { transmute::<Address, Getter>(getter.as_ptr())(nobody.as_ptr().cast()) } as usize;
    // SAFETY: allocated above, and known to nobody else.
    unsafe { sys::free(nobody, BYTES) };
    let offset = said.checked_sub(1)?;
    (offset > 0 && offset < BYTES && offset.is_multiple_of(8)).then_some(offset)
}

/// The place of it in an interpreter. `None`: nobody knows where that is.
///
/// # Safety
/// The interpreter is alive as long as the place is used.
pub(crate) unsafe fn place<'i>(interpreter: NonNull<Interpreter>) -> Option<&'i AtomicPtr<c_void>> {
    let offset = OFFSET.load(Ordering::Acquire);
    // SAFETY: an aligned field of the interpreter, which all read and write as a whole.
    (offset != 0).then(|| unsafe { interpreter.byte_add(offset).cast().as_ref() })
}

/// Has an interpreter use another evaluator, which its threads find at the next call, if it uses the default
/// one. Whether it does.
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

/// What lies in the place of the default one.
pub(crate) fn stored_default(python: Python<'_>) -> Address {
    if python.api.version.minor() >= (3, 11) { ptr::null_mut() } else { default() }
}

/// CPython's own.
#[inline]
pub(crate) fn default() -> Address {
    DEFAULT.load(Ordering::Relaxed)
}

/// That of the main interpreter.
pub(crate) fn current(python: Python<'_>) -> Address {
    // SAFETY: the main interpreter is there as long as somebody holds its GIL.
    unsafe { current_of(python, main(python)) }
}

/// Has the main interpreter use another.
pub(crate) fn set(python: Python<'_>, evaluator: Address) {
    // SAFETY: as in `current`.
    unsafe { set_of(python, main(python), evaluator) };
}

/// That of an interpreter.
///
/// # Safety
/// The interpreter is alive, and its GIL is the one that is held.
pub(crate) unsafe fn current_of(_: Python<'_>, interpreter: *mut Interpreter) -> Address {
    let getter = GETTER.load(Ordering::Acquire);
    if getter.is_null() {
        // SAFETY: that is where the field is; the GIL is held.
        return unsafe {
            interpreter.wrapping_byte_add(OFFSET.load(Ordering::Acquire)).cast::<Address>().read()
        };
    }
    // SAFETY: the function of this name has this signature (Include/cpython/pystate.h); the GIL is held.
    unsafe { transmute::<Address, Getter>(getter)(interpreter) }
}

/// Has an interpreter use another.
///
/// # Safety
/// As [`current_of`].
pub(crate) unsafe fn set_of(_: Python<'_>, interpreter: *mut Interpreter, evaluator: Address) {
    let setter = SETTER.load(Ordering::Acquire);
    if setter.is_null() {
        let place = interpreter.wrapping_byte_add(OFFSET.load(Ordering::Acquire)).cast::<Address>();
        // SAFETY: that is where the field is; the GIL is held, and whoever reads it holds it, too.
        unsafe { place.write(evaluator) };
        return;
    }
    // SAFETY: as in `current_of`. From 3.11 on, the default is stored as null, which lets calls be inlined
    // again.
    unsafe { transmute::<Address, Setter>(setter)(interpreter, evaluator) };
}
