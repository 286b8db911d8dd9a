//! Text from Python strings.

use core::{ffi::c_char, ptr, slice};

use super::{
    gil::Python,
    object::{Object, Owned},
};

/// The UTF-8 of a Python string.
pub(crate) struct Utf8<'gil> {
    bytes: *const u8,
    length: usize,
    /// The object that owns the bytes.
    _owner: Owned<'gil>,
}

impl<'gil> Utf8<'gil> {
    /// The text of a string. Lone surrogates, as in file names that are not UTF-8, become U+FFFD, as in the
    /// loader. `None`: not a string, or no memory.
    ///
    /// # Safety
    /// Null, or a living object.
    pub(crate) unsafe fn from_string(python: Python<'gil>, string: *mut Object) -> Option<Self> {
        // SAFETY: as the caller promises.
        let string = unsafe { Owned::from_borrowed(python, string) }?;
        let mut length = 0;
        // SAFETY: the object is alive; the function checks its type.
        let bytes = unsafe { (python.api.string_utf8)(string.as_ptr(), &raw mut length) };
        if !bytes.is_null() {
            return Some(Self { bytes: bytes.cast(), length: usize::try_from(length).ok()?, _owner: string });
        }
        python.clear();
        // SAFETY: the object is alive; the function checks its type.
        let encoded = unsafe {
            let encoded =
                (python.api.string_encode)(string.as_ptr(), c"utf-8".as_ptr(), c"surrogatepass".as_ptr());
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
        let length = usize::try_from(length).ok()?;
        // SAFETY: the bytes of an object that was just made and that no other code has.
        replace_surrogates(unsafe { slice::from_raw_parts_mut(data.cast(), length) });
        Some(Self { bytes: data.cast(), length, _owner: encoded })
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        // SAFETY: the owner keeps the bytes alive, and Python's strings and its encoder only make UTF-8.
        unsafe { str::from_utf8_unchecked(slice::from_raw_parts(self.bytes, self.length)) }
    }
}

/// Writes U+FFFD over surrogates, which have three bytes as well: `ED A0 80` to `ED BF BF`.
fn replace_surrogates(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        match after {
            [second @ 0xa0..=0xbf, third, ..] if *first == 0xed => {
                (*first, *second, *third) = (0xef, 0xbf, 0xbd);
            }
            _ => {}
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::replace_surrogates;

    #[test]
    fn surrogates_become_replacement_characters() {
        // "a", U+DC80, "é", U+D7FF (no surrogate), U+DFFF
        let mut bytes = *b"a\xed\xb2\x80\xc3\xa9\xed\x9f\xbf\xed\xbf\xbf";
        replace_surrogates(&mut bytes);
        assert_eq!(core::str::from_utf8(&bytes), Ok("a\u{fffd}\u{e9}\u{d7ff}\u{fffd}"));
    }
}
