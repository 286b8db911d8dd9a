//! References to Python objects.

use core::{
    ffi::CStr,
    ptr::{self, NonNull},
};

use speed_bump_abi::control_block::Failure;

use super::{gil::Python, text::Utf8};
use crate::fault::{Fault, Text};

/// A `PyObject`; we know nothing of its contents here.
#[repr(C)]
pub(crate) struct Object {
    _opaque: [u8; 0],
}

/// An owned reference; dropping it releases it.
pub(crate) struct Owned<'gil> {
    object: NonNull<Object>,
    python: Python<'gil>,
}

impl<'gil> Owned<'gil> {
    /// Takes over the result of a call that returns a new reference, or null and an exception. The exception
    /// stays set.
    ///
    /// # Safety
    /// Null, or a reference that the caller owns.
    pub(crate) unsafe fn from_new(python: Python<'gil>, object: *mut Object) -> Option<Self> {
        NonNull::new(object).map(|object| Self { object, python })
    }

    /// One more reference to an object that other code keeps alive.
    ///
    /// # Safety
    /// Null, or a living object.
    pub(crate) unsafe fn from_borrowed(python: Python<'gil>, object: *mut Object) -> Option<Self> {
        let object = NonNull::new(object)?;
        // SAFETY: the object is alive and the GIL held.
        unsafe { (python.api.increment)(object.as_ptr()) };
        Some(Self { object, python })
    }

    /// The object.
    pub(crate) fn as_ptr(&self) -> *mut Object {
        self.object.as_ptr()
    }

    /// Keeps the reference for ever.
    pub(crate) fn keep(self) -> *mut Object {
        let object = self.as_ptr();
        core::mem::forget(self);
        object
    }

    /// An attribute. If there is none, an exception is set.
    pub(crate) fn attribute(&self, name: &CStr) -> Option<Self> {
        // SAFETY: the object is alive and the GIL held.
        unsafe {
            let found = (self.python.api.get_attribute)(self.as_ptr(), name.as_ptr());
            Self::from_new(self.python, found)
        }
    }

    /// The value of an `int`. If it is not an `int`, or too large, an exception is set.
    pub(crate) fn integer(&self) -> Option<i64> {
        // SAFETY: the object is alive and the GIL held.
        let value = unsafe { (self.python.api.long_as_long)(self.as_ptr()) };
        if value == -1 && self.python.raised() { None } else { Some(value) }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and the GIL held.
        unsafe { (self.python.api.decrement)(self.as_ptr()) };
    }
}

impl<'gil> Python<'gil> {
    /// Whether an exception is set.
    pub(crate) fn raised(self) -> bool {
        // SAFETY: the GIL is held.
        unsafe { !(self.api.error_occurred)().is_null() }
    }

    /// Discards the exception that is set, if any.
    pub(crate) fn clear(self) {
        // SAFETY: the GIL is held.
        unsafe { (self.api.error_clear)() };
    }

    /// Discards the exception that is set, and returns it as a failure with these words before it.
    pub(crate) fn fault(self, before: &[&str]) -> Fault {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the GIL is held, and the references become ours.
        let (_kind, value, _trace) = unsafe {
            (self.api.error_fetch)(&raw mut kind, &raw mut value, &raw mut trace);
            (Owned::from_new(self, kind), Owned::from_new(self, value), Owned::from_new(self, trace))
        };
        let said = value.and_then(|value| {
            // SAFETY: the object is alive, the GIL held.
            unsafe {
                let said = Owned::from_new(self, (self.api.object_str)(value.as_ptr()))?;
                Utf8::from_string(self, said.as_ptr())
            }
        });
        self.clear();
        let mut text = Text::from_parts(before);
        text.push(said.as_ref().map_or("an exception without a text", Utf8::text));
        Fault { failure: Failure::Python, text }
    }

    /// A module that was imported, from `sys.modules`. Runs no Python code, unlike an import if the program
    /// has replaced `__import__`.
    pub(crate) fn imported(self, name: &CStr) -> Option<Owned<'gil>> {
        // SAFETY: the GIL is held; `sys` keeps its dictionary alive, which keeps the module alive until we
        // have a reference.
        unsafe {
            let modules = NonNull::new((self.api.sys_object)(c"modules".as_ptr()))?;
            Owned::from_borrowed(self, (self.api.dict_item)(modules.as_ptr(), name.as_ptr()))
        }
    }

    /// Imports a module, or returns the imported one. If that fails, an exception is set.
    pub(crate) fn import(self, name: &CStr) -> Option<Owned<'gil>> {
        self.imported(name).or_else(|| {
            // SAFETY: the GIL is held.
            unsafe { Owned::from_new(self, (self.api.import)(name.as_ptr())) }
        })
    }
}
