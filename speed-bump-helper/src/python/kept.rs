//! Objects that we keep in an interpreter's own dictionary (`PyInterpreterState_GetDict`). They are freed
//! with it.

use core::{
    ffi::{CStr, c_char},
    ptr::NonNull,
};

use super::{
    gil::Python,
    object::{Object, Owned},
};

/// The running interpreter's dictionary.
pub(crate) struct Kept<'gil> {
    dict: NonNull<Object>,
    python: Python<'gil>,
}

/// The objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum KeptObject {
    /// Whether code objects have our place in this interpreter: 1 or 0.
    Place = b'0',
    /// The name of our tool.
    ToolName = b'1',
    /// The callbacks: for calls that start, resume, end, resume with an exception, and end with one.
    OnStart = b'2',
    OnResume = b'3',
    OnEnd = b'4',
    OnThrow = b'5',
    OnUnwind = b'6',
    /// The last selector for which functions of this interpreter got versions.
    Versions = b'7',
}

/// A key: a text.
type Key = [u8; 30];

impl<'gil> Kept<'gil> {
    /// The running interpreter's dictionary. `None`: it has none.
    pub(crate) fn here(python: Python<'gil>) -> Option<Self> {
        // SAFETY: the GIL is held, so an interpreter runs; its dictionary lives as long as it does.
        let dict = unsafe { (python.api.interpreter_dict)((python.api.interpreter)()) };
        Some(Self { dict: NonNull::new(dict)?, python })
    }

    /// An object, if it exists. It lives as long as the interpreter.
    pub(crate) fn find(&self, which: KeptObject) -> Option<NonNull<Object>> {
        let key = key(which);
        // SAFETY: a dictionary and a C string; the GIL is held.
        NonNull::new(unsafe { (self.python.api.dict_item)(self.dict.as_ptr(), text(&key)) })
    }

    /// A number, if it exists.
    pub(crate) fn number(&self, which: KeptObject) -> Option<i64> {
        let number = self.find(which)?;
        // SAFETY: an object; the GIL is held.
        Some(unsafe { (self.python.api.long_as_long)(number.as_ptr()) })
    }

    /// Stores a number, in place of the one before. Without memory for it, an exception is set.
    pub(crate) fn keep_number(&self, which: KeptObject, number: i64) {
        let key = key(which);
        // SAFETY: a dictionary, a C string and an object; the GIL is held.
        unsafe {
            if let Some(made) = Owned::from_new(self.python, (self.python.api.long)(number)) {
                (self.python.api.dict_set)(self.dict.as_ptr(), text(&key), made.as_ptr());
            }
        }
    }

    /// An object, made if it does not exist. If it cannot be made, an exception may be set.
    pub(crate) fn find_or_make(
        &self,
        which: KeptObject,
        make: impl FnOnce() -> Option<Owned<'gil>>,
    ) -> Option<NonNull<Object>> {
        self.find(which).or_else(|| {
            let (made, key) = (make()?, key(which));
            // SAFETY: a dictionary, a C string and an object; the GIL is held.
            let done =
                unsafe { (self.python.api.dict_set)(self.dict.as_ptr(), text(&key), made.as_ptr()) } == 0;
            if done { self.find(which) } else { None }
        })
    }
}

/// The key. It names the image too, so that a helper of another version has objects of its own.
fn key(which: KeptObject) -> Key {
    static HERE: u8 = 0;
    let mut key = *b"speed-bump 0000000000000000  \0";
    let address = (&raw const HERE) as usize;
    for (digit, place) in key.iter_mut().skip(11).take(16).enumerate() {
        let value = (address >> (4 * digit) & 15) as u8;
        *place = if value < 10 { b'0' + value } else { b'a' - 10 + value };
    }
    let [.., place, _] = &mut key;
    *place = which as u8;
    key
}

fn text(key: &Key) -> *const c_char {
    CStr::from_bytes_until_nul(key).unwrap_or_default().as_ptr()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_object_has_a_key_of_its_own() {
        let [place, name] = [KeptObject::Place, KeptObject::ToolName].map(key);
        let text = |key: &Key| CStr::from_bytes_with_nul(key).unwrap().to_str().unwrap().to_owned();
        let (place, name) = (text(&place), text(&name));
        assert!(place.starts_with("speed-bump ") && place.ends_with(" 0"), "{place}");
        assert_eq!(place.strip_suffix('0'), name.strip_suffix('1'));
    }
}
