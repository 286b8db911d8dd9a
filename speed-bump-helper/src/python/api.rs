//! The functions of CPython that the helper calls.

use core::{
    cell::UnsafeCell,
    ffi::{CStr, c_char, c_int, c_long, c_void},
    mem::transmute,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU8, Ordering},
};

use speed_bump_abi::control_block::Failure;

use super::{
    code::CodeLayout,
    object::Object,
    said::{self, Moment},
    version::Version,
};
use crate::{fault::Fault, host::Library};

/// A `PyThreadState`.
#[repr(C)]
pub(crate) struct ThreadState {
    _opaque: [u8; 0],
}

/// A `PyInterpreterState`.
#[repr(C)]
pub(crate) struct Interpreter {
    _opaque: [u8; 0],
}

/// `PyMethodDef` (Include/methodobject.h).
#[repr(C)]
pub(crate) struct MethodDefinition {
    pub(crate) name: *const c_char,
    pub(crate) function: FastCall,
    pub(crate) flags: c_int,
    pub(crate) documentation: *const c_char,
}

// SAFETY: never written.
unsafe impl Sync for MethodDefinition {}

/// A function under `METH_FASTCALL`.
pub(crate) type FastCall = unsafe extern "C" fn(*mut Object, *const *mut Object, isize) -> *mut Object;
/// A `gcvisitobjects_t`.
pub(crate) type Visitor = unsafe extern "C" fn(*mut Object, *mut c_void) -> c_int;

macro_rules! api {
    (
        required { $(
            $(#[$about:meta])*
            $name:ident = $($symbol:literal)|+ : fn($($argument:ty),* $(; $variadic:tt)?) $(-> $result:ty)?;
        )+ }
        optional { $(
            $(#[$maybe_about:meta])*
            $maybe:ident = $($maybe_symbol:literal)|+ : fn($($maybe_argument:ty),*) $(-> $maybe_result:ty)?;
        )+ }
    ) => {
        /// Functions and types of one CPython. All but the first few need the GIL.
        pub(crate) struct Api {
            pub(crate) version: Version,
            /// The library in which all that follows was found.
            pub(crate) library: Library,
            /// `PyCode_Type`.
            pub(crate) code_type: NonNull<Object>,
            /// `PyFunction_Type`.
            pub(crate) function_type: NonNull<Object>,
            /// `PyFrame_Type`.
            pub(crate) frame_type: NonNull<Object>,
            /// Offsets of the fields of code objects.
            pub(crate) code: CodeLayout,
            /// `None`.
            pub(crate) none: NonNull<Object>,
            $(
                $(#[$about])*
                pub(crate) $name: unsafe extern "C" fn($($argument),* $(, $variadic)?) $(-> $result)?,
            )+
            $(
                $(#[$maybe_about])*
                pub(crate) $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?>,
            )+
        }

        impl Api {
            fn resolve(library: Library, version: Version) -> Result<Self, Fault> {
                let code_type = required(library, &[c"PyCode_Type"])?.cast();
                let code = CodeLayout::read(code_type, required(library, &[c"PyType_Type"])?.cast())?;
                Ok(Self {
                    version: version.with_layout(code.object_type),
                    code_type,
                    library,
                    function_type: required(library, &[c"PyFunction_Type"])?.cast(),
                    frame_type: required(library, &[c"PyFrame_Type"])?.cast(),
                    code,
                    none: required(library, &[c"_Py_NoneStruct"])?.cast(),
                    // SAFETY: the function has this name and this signature in all versions that have it.
                    $($name: unsafe {
                        transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),* $(, $variadic)?) $(-> $result)?,
                        >(required(library, &[$($symbol),+])?.as_ptr())
                    },)+
                    // SAFETY: as above.
                    $($maybe: first(library, &[$($maybe_symbol),+]).map(|found| unsafe {
                        transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?,
                        >(found.as_ptr())
                    }),)+
                })
            }
        }
    };
}

api! {
    required {
        /// Needs no GIL.
        is_initialized = c"Py_IsInitialized": fn() -> c_int;
        /// Needs no GIL.
        is_finalizing = c"Py_IsFinalizing" | c"_Py_IsFinalizing": fn() -> c_int;
        /// Waits for the GIL.
        gil_ensure = c"PyGILState_Ensure": fn() -> c_int;
        gil_release = c"PyGILState_Release": fn(c_int);
        /// The calling thread's own; null if it has none.
        gil_state = c"PyGILState_GetThisThreadState": fn() -> *mut ThreadState;
        /// Makes the main thread call this when it next executes Python code; not 0: the queue is full. Needs
        /// no GIL.
        add_pending_call = c"Py_AddPendingCall":
            fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;
        save_thread = c"PyEval_SaveThread": fn() -> *mut ThreadState;
        /// Waits for the GIL.
        restore_thread = c"PyEval_RestoreThread": fn(*mut ThreadState);
        interpreter_head = c"PyInterpreterState_Head": fn() -> *mut Interpreter;
        interpreter_main = c"PyInterpreterState_Main": fn() -> *mut Interpreter;
        /// The next in the list. The caller must hold the list's lock.
        interpreter_next = c"PyInterpreterState_Next": fn(*mut Interpreter) -> *mut Interpreter;
        /// Needs no GIL.
        interpreter_id = c"PyInterpreterState_GetID": fn(*mut Interpreter) -> i64;
        /// The running thread's interpreter.
        interpreter = c"PyInterpreterState_Get" | c"_PyInterpreterState_Get": fn() -> *mut Interpreter;
        /// A borrowed reference, or null without an exception: a dictionary in the interpreter for tools.
        interpreter_dict = c"PyInterpreterState_GetDict": fn(*mut Interpreter) -> *mut Object;
        /// A borrowed reference, or null without an exception.
        dict_item = c"PyDict_GetItemString": fn(*mut Object, *const c_char) -> *mut Object;
        dict_set = c"PyDict_SetItemString": fn(*mut Object, *const c_char, *mut Object) -> c_int;
        increment = c"Py_IncRef": fn(*mut Object);
        decrement = c"Py_DecRef": fn(*mut Object);
        error_clear = c"PyErr_Clear": fn();
        error_occurred = c"PyErr_Occurred": fn() -> *mut Object;
        error_fetch = c"PyErr_Fetch": fn(*mut *mut Object, *mut *mut Object, *mut *mut Object);
        error_restore = c"PyErr_Restore": fn(*mut Object, *mut Object, *mut Object);
        object_str = c"PyObject_Str": fn(*mut Object) -> *mut Object;
        get_attribute = c"PyObject_GetAttrString": fn(*mut Object, *const c_char) -> *mut Object;
        call_method = c"PyObject_CallMethod":
            fn(*mut Object, *const c_char, *const c_char; ...) -> *mut Object;
        import = c"PyImport_ImportModule": fn(*const c_char) -> *mut Object;
        /// A borrowed reference.
        sys_object = c"PySys_GetObject": fn(*const c_char) -> *mut Object;
        interned = c"PyUnicode_InternFromString": fn(*const c_char) -> *mut Object;
        string = c"PyUnicode_FromString": fn(*const c_char) -> *mut Object;
        /// The text lives as long as the object.
        string_utf8 = c"PyUnicode_AsUTF8AndSize": fn(*mut Object, *mut isize) -> *const c_char;
        string_encode = c"PyUnicode_AsEncodedString":
            fn(*mut Object, *const c_char, *const c_char) -> *mut Object;
        bytes_data = c"PyBytes_AsStringAndSize": fn(*mut Object, *mut *mut c_char, *mut isize) -> c_int;
        long_as_long = c"PyLong_AsLong": fn(*mut Object) -> c_long;
        long = c"PyLong_FromLong": fn(c_long) -> *mut Object;
        tuple_size = c"PyTuple_Size": fn(*mut Object) -> isize;
        /// A borrowed reference.
        tuple_item = c"PyTuple_GetItem": fn(*mut Object, isize) -> *mut Object;
        list_size = c"PyList_Size": fn(*mut Object) -> isize;
        /// A borrowed reference.
        list_item = c"PyList_GetItem": fn(*mut Object, isize) -> *mut Object;
        /// A borrowed reference.
        function_code = c"PyFunction_GetCode": fn(*mut Object) -> *mut Object;
        native_function = c"PyCFunction_NewEx":
            fn(*const MethodDefinition, *mut Object, *mut Object) -> *mut Object;
        request_extra = c"PyUnstable_Eval_RequestCodeExtraIndex" | c"_PyEval_RequestCodeExtraIndex":
            fn(Option<unsafe extern "C" fn(*mut c_void)>) -> isize;
        get_extra = c"PyUnstable_Code_GetExtra" | c"_PyCode_GetExtra":
            fn(*mut Object, isize, *mut *mut c_void) -> c_int;
        set_extra = c"PyUnstable_Code_SetExtra" | c"_PyCode_SetExtra":
            fn(*mut Object, isize, *mut c_void) -> c_int;
    }
    optional {
        /// From 3.12 on.
        visit_objects = c"PyUnstable_GC_VisitObjects": fn(Visitor, *mut c_void);
        /// An empty code object with this file, name and line.
        empty_code = c"PyCode_NewEmpty": fn(*const c_char, *const c_char, c_int) -> *mut Object;
        /// From 3.9 on: `callable, arguments, count, keywords`.
        vectorcall = c"PyObject_Vectorcall":
            fn(*mut Object, *const *mut Object, usize, *mut Object) -> *mut Object;
        /// A borrowed reference; null if the thread evaluates nothing.
        running_frame = c"PyEval_GetFrame": fn() -> *mut Object;
        /// From 3.9 on. The frame that called a frame, or null.
        frame_back = c"PyFrame_GetBack": fn(*mut Object) -> *mut Object;
        /// From 3.9 on. A frame's code.
        frame_code = c"PyFrame_GetCode": fn(*mut Object) -> *mut Object;
        /// From 3.9 on. The interpreter of a thread state. Needs no GIL.
        thread_interpreter = c"PyThreadState_GetInterpreter": fn(*mut ThreadState) -> *mut Interpreter;
        /// A `PyThread_type_lock`, and whether to wait for it. Needs no GIL.
        acquire_lock = c"PyThread_acquire_lock": fn(*mut c_void, c_int) -> c_int;
        /// Needs no GIL.
        release_lock = c"PyThread_release_lock": fn(*mut c_void);
        /// From 3.13 on. Needs no GIL.
        mutex_unlock = c"PyMutex_Unlock": fn(*const AtomicU8);
        /// The calling thread's.
        thread_state = c"PyThreadState_Get": fn() -> *mut ThreadState;
        /// Up to 3.11 the state of the thread with the GIL, or null; from 3.12 on the calling thread's. Needs
        /// no GIL.
        holder = c"_PyThreadState_UncheckedGet": fn() -> *mut ThreadState;
        /// From 3.9 on. Needs no GIL.
        thread_id = c"PyThreadState_GetID": fn(*mut ThreadState) -> u64;
    }
}

struct Place(UnsafeCell<Option<Api>>);

// SAFETY: written once, by the helper's only thread, before `FOUND` points to it.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(None));
static FOUND: AtomicPtr<Option<Api>> = AtomicPtr::new(ptr::null_mut());

impl Api {
    /// This process's API, if it has been looked up.
    pub(crate) fn found() -> Option<&'static Self> {
        // SAFETY: null, or a value that is never written again.
        unsafe { FOUND.load(Ordering::Acquire).as_ref() }?.as_ref()
    }

    /// Looks up the API, once. Only the helper's thread calls this, or the one that initialises Python.
    /// `Ok(None)`: the version is not known before Python is initialised.
    ///
    /// # Errors
    /// [`Failure::NoPython`], [`Failure::UnknownVersion`].
    pub(crate) fn look_up(when: Moment) -> Result<Option<&'static Self>, Fault> {
        if let Some(api) = Self::found() {
            return Ok(Some(api));
        }
        let Some(library) = Library::with(c"Py_GetVersion", b"python") else {
            return Err(Fault::new(Failure::NoPython, &["nothing in the process exports Py_GetVersion"]));
        };
        let Some(version) = said::version(library, when)? else { return Ok(None) };
        let api = Self::resolve(library, version)?;
        // SAFETY: nothing points to the place yet, and one thread alone does this.
        unsafe { *PLACE.0.get() = Some(api) };
        FOUND.store(PLACE.0.get(), Ordering::Release);
        Self::found().map(Some).ok_or_else(|| Fault::new(Failure::NoPython, &[]))
    }
}

fn first(library: Library, names: &[&CStr]) -> Option<NonNull<c_void>> {
    names.iter().find_map(|name| library.symbol(name))
}

/// The first of the names that the library has, or the failure that it has none.
pub(super) fn required(library: Library, names: &[&CStr]) -> Result<NonNull<c_void>, Fault> {
    first(library, names).ok_or_else(|| {
        let name = names.last().and_then(|name| name.to_str().ok()).unwrap_or_default();
        Fault::new(Failure::NoPython, &["the interpreter exports no ", name])
    })
}
