//! Saves the exception that is set while a frame is about to start: the program must not lose it.

use core::ptr;

use crate::python::{gil::Python, object::Object};

/// The exception that was set; dropping this sets it again.
pub(crate) struct Raised<'gil> {
    python: Python<'gil>,
    exception: [*mut Object; 3],
}

impl<'gil> Raised<'gil> {
    /// Saves the exception until this is dropped.
    pub(crate) fn set_aside(python: Python<'gil>) -> Self {
        let [mut kind, mut value, mut trace] = [ptr::null_mut(); 3];
        // SAFETY: the GIL is held; the references become ours.
        unsafe { (python.api.error_fetch)(&raw mut kind, &raw mut value, &raw mut trace) };
        Self { python, exception: [kind, value, trace] }
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        let [kind, value, trace] = self.exception;
        // SAFETY: the GIL is held; the references are given away.
        unsafe { (self.python.api.error_restore)(kind, value, trace) };
    }
}
