//! Texts out of Python strings.

use core::{ffi::c_char, ptr, slice};

use super::{
    gil::Python,
    object::{Object, Owned},
};

/// The UTF-8 of a Python string.
pub(crate) struct Utf8<'gil> {
    bytes: *const u8,
    length: usize,
    /// Whose bytes they are.
    _owner: Owned<'gil>,
}

impl<'gil> Utf8<'gil> {
    /// Of a string; where it has lone surrogates, as in file names that are not UTF-8, they are read as `?`. `None`:
    /// not a string, or no memory.
    ///
    /// # Safety
    /// Null, or a living object.
    pub(crate) unsafe fn of(python: Python<'gil>, string: *mut Object) -> Option<Self> {
        // SAFETY: as the caller promises.
        let string = unsafe { Owned::from_borrowed(python, string) }?;
        let mut length = 0;
        // SAFETY: the object is alive; the function checks its type.
        let bytes = unsafe { (python.api.string_utf8)(string.as_ptr(), &raw mut length) };
        if !bytes.is_null() {
            return Self::new(bytes, length, string);
        }
        python.clear();
        // SAFETY: the object is alive; the function checks its type.
        let encoded = unsafe {
            let encoded = (python.api.string_encode)(string.as_ptr(), c"utf-8".as_ptr(), c"replace".as_ptr());
            Owned::from_new(python, encoded)
        };
        let Some(encoded) = encoded else {
            python.clear();
            return None;
        };
        let mut data: *mut c_char = ptr::null_mut();
        // SAFETY: the object is alive; the function checks its type.
        if unsafe { (python.api.bytes_data)(encoded.as_ptr(), &raw mut data, &raw mut length) } != 0 {
            python.clear();
            return None;
        }
        Self::new(data, length, encoded)
    }

    fn new(bytes: *const c_char, length: isize, owner: Owned<'gil>) -> Option<Self> {
        Some(Self { bytes: bytes.cast(), length: usize::try_from(length).ok()?, _owner: owner })
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        // SAFETY: the owner keeps the bytes; Python's strings and its encoder never make anything but UTF-8 of them.
        unsafe { str::from_utf8_unchecked(slice::from_raw_parts(self.bytes, self.length)) }
    }
}
