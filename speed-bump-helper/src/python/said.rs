//! Reads an interpreter's version.
//!
//! From 3.11 on it exports the number. Before, there is only `Py_GetVersion`, which writes a text into the
//! one buffer that all callers read (Python/getversion.c). While Python starts, its own thread and the helper
//! could each find the text half written by the other. So on these versions we call it only once Python is
//! initialised, holding the GIL if that is free, and accept the text when a second call gives the same. If a
//! thread has the GIL, it may keep it while it sleeps, and asking for it would do harm
//! ([`turn`](super::turn)); but then no thread initialises Python.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::transmute,
};

use speed_bump_abi::control_block::Failure;

use super::{api::required, version::Version};
use crate::{fault::Fault, host::Library, sys};

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The helper's thread, which does not have the GIL.
    WithoutGil,
    /// The thread that initialises Python, in the middle of it.
    Initialising,
}

/// Versions that the helper knows.
const KNOWN: core::ops::RangeInclusive<(u8, u8)> = (3, 8)..=(3, 15);
/// More than the longest text of `Py_GetVersion`, in bytes.
const TEXT_BYTES: usize = 256;
/// How often we read the text at most, and the pause in between, in ns: other threads may write it now and
/// then.
const READS: u32 = 200;
const BETWEEN_READS_NS: u32 = 500_000;
/// How often in a row it must be the same, if its end does not show that it is complete.
const THE_SAME: u32 = 20;

/// The version. `Ok(None)`: it is not known yet.
///
/// # Errors
/// [`Failure::NoPython`], [`Failure::UnknownVersion`].
pub(super) fn version(library: Library, when: Moment) -> Result<Option<Version>, Fault> {
    if let Some(number) = library.symbol(c"Py_Version") {
        // SAFETY: `const unsigned long Py_Version` (Include/pylifecycle.h, from 3.11 on).
        let number = unsafe { number.cast::<u64>().read() };
        let known = u32::try_from(number).map(Version::from_hex).ok().filter(is_known);
        return known
            .map(Some)
            .ok_or_else(|| Fault::new(Failure::UnknownVersion, &["by its Py_Version, which is not known"]));
    }
    match when {
        Moment::Initialising => text_of(library, said),
        Moment::WithoutGil => initialised(library),
    }
}

fn is_known(version: &Version) -> bool {
    KNOWN.contains(&version.minor())
}

type Says = unsafe extern "C" fn() -> c_int;
type Ensure = unsafe extern "C" fn() -> c_int;
type Release = unsafe extern "C" fn(c_int);
type Holder = unsafe extern "C" fn() -> *mut c_void;
type GetVersion = unsafe extern "C" fn() -> *const c_char;

fn initialised(library: Library) -> Result<Option<Version>, Fault> {
    let find = |names: &[&CStr]| required(library, names).map(core::ptr::NonNull::as_ptr);
    let is_initialized = find(&[c"Py_IsInitialized"])?;
    let is_finalizing = find(&[c"Py_IsFinalizing", c"_Py_IsFinalizing"]).map_err(|_| {
        Fault::new(Failure::UnknownVersion, &["older than 3.7, as it exports no _Py_IsFinalizing"])
    })?;
    let (ensure, release) = (find(&[c"PyGILState_Ensure"])?, find(&[c"PyGILState_Release"])?);
    let holder = find(&[c"_PyThreadState_UncheckedGet"])?;
    // SAFETY: the functions of these names have these signatures in all versions up to 3.10. Those that we
    // call without the GIL need none: the one that returns the holder of the GIL reads a word of `_PyRuntime`
    // (Python/pystate.c).
    unsafe {
        let says = |function: *mut c_void| transmute::<*mut c_void, Says>(function)() != 0;
        if says(is_finalizing) {
            return Err(Fault::new(Failure::Finalizing, &["the interpreter is shutting down"]));
        }
        if !says(is_initialized) {
            return Ok(None);
        }
        if !transmute::<*mut c_void, Holder>(holder)().is_null() {
            return text_of(library, said);
        }
        let state = transmute::<*mut c_void, Ensure>(ensure)();
        let version = text_of(library, said);
        transmute::<*mut c_void, Release>(release)(state);
        version
    }
}

/// Reads the text once.
fn said(function: *mut c_void) -> Text {
    // SAFETY: the function has this signature in every CPython.
    let text = unsafe { transmute::<*mut c_void, GetVersion>(function)() };
    let mut bytes = [0; TEXT_BYTES];
    for (number, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: the buffer ends with a NUL, which we do not pass, no matter which thread writes it; or with
        // its last byte, which is as far away.
        *byte = unsafe { text.wrapping_add(number).cast::<u8>().read_volatile() };
        if *byte == 0 {
            break;
        }
    }
    Text { bytes }
}

/// The text of one reading.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Text {
    bytes: [u8; TEXT_BYTES],
}

impl Text {
    fn bytes(&self) -> &[u8] {
        self.bytes.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether it ends with the compiler, in brackets, as it does unless that is long.
    fn shows_its_end(&self) -> bool {
        self.bytes().ends_with(b"]")
    }
}

fn text_of(library: Library, said: impl Fn(*mut c_void) -> Text) -> Result<Option<Version>, Fault> {
    let function = required(library, &[c"Py_GetVersion"])?.as_ptr();
    believed(|| said(function), || sys::sleep(BETWEEN_READS_NS)).map(Some).map_err(|last| {
        let shown = str::from_utf8(last.bytes()).unwrap_or("(not UTF-8)");
        Fault::new(Failure::UnknownVersion, &[shown])
    })
}

/// The version in a complete text; or the text that was read last.
fn believed(read: impl Fn() -> Text, pause: impl Fn()) -> Result<Version, Text> {
    let mut last = read();
    let mut same = 0;
    for _ in 0..READS {
        let text = read();
        same = if text == last { same + 1 } else { 0 };
        last = text;
        let is_whole = same > 0 && text.shows_its_end() || same >= THE_SAME;
        match Version::parse(text.bytes()).filter(is_known) {
            Some(version) if is_whole => return Ok(version),
            None if same >= THE_SAME && !text.bytes().is_empty() => return Err(text),
            _ => {}
        }
        pause();
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn text(of: &str) -> Text {
        let mut bytes = [0; TEXT_BYTES];
        bytes[..of.len()].copy_from_slice(of.as_bytes());
        Text { bytes }
    }

    /// The version that a sequence of readings gives; the last text repeats.
    fn believed_of(texts: &[&str]) -> Result<u32, String> {
        let left = RefCell::new(texts.iter().rev().copied().collect::<Vec<_>>());
        let read = || {
            let mut left = left.borrow_mut();
            text(if left.len() > 1 { left.pop().unwrap_or_default() } else { left[0] })
        };
        let said = believed(read, || {});
        said.map(|version| version.hex).map_err(|last| String::from_utf8_lossy(last.bytes()).into_owned())
    }

    const WHOLE: &str = "3.10.13 (main, Nov  1 2025, 10:00:00) [GCC 12.2.0]";

    #[test]
    fn a_text_that_somebody_writes_meanwhile_is_read_again() {
        assert_eq!(believed_of(&[WHOLE]), Ok(0x030a_0df0));
        assert_eq!(believed_of(&["", WHOLE]), Ok(0x030a_0df0));
        assert_eq!(believed_of(&["3.1", "3.10.1", "3.10.1", WHOLE]), Ok(0x030a_0df0));
        assert_eq!(believed_of(&[WHOLE, "", "3.10.13 (main", WHOLE, "", WHOLE]), Ok(0x030a_0df0));
    }

    #[test]
    fn a_text_without_its_end_is_believed_when_it_stays() {
        let cut = WHOLE.trim_end_matches(']');
        assert_eq!(believed_of(&["3.10.1", cut]), Ok(0x030a_0df0));
    }

    #[test]
    fn what_is_not_known_is_shown() {
        assert_eq!(believed_of(&["2.7.18 (default) [GCC]"]), Err("2.7.18 (default) [GCC]".to_owned()));
        assert_eq!(believed_of(&[""]), Err(String::new()));
    }
}
