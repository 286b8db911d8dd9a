//! The layout of the structures in CPython that lead to stacks.
//!
//! 3.13 and later describe their layout at the start of `_PyRuntime` (`_Py_DebugOffsets`,
//! Include/internal/pycore_debug_offsets.h). For 3.8 to 3.12, the numbers here are the results of `offsetof`
//! with the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1 on 64-bit machines. The headers are
//! Include/internal/pycore_runtime.h (`_PyRuntimeState`), Include/cpython/pystate.h (`PyThreadState`),
//! Include/cpython/frameobject.h (`PyFrameObject`), Include/internal/pycore_frame.h (`_PyInterpreterFrame`),
//! and Include/code.h or Include/cpython/code.h (`PyCodeObject`). The numbers are the same in all releases of
//! a version.

use crate::python::version::PythonVersion;

/// The most bytes of any structure that we read.
const LARGEST: u64 = 4 << 20;
/// The most bytes of a frame or code object. We read each in one piece, up to the last field that we need.
const LARGEST_OBJECT: u64 = 1 << 10;
/// The number of words at the start of `_PyRuntime` that we read.
pub(super) const DEBUG_WORDS: usize = 104;

/// Offsets in bytes, each from the beginning of its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// `_PyRuntimeState.interpreters.head`
    pub(super) interpreters: u64,
    /// `PyInterpreterState.next`
    pub(super) next_interpreter: u64,
    /// `PyInterpreterState.threads.head`
    pub(super) threads: u64,
    pub(super) thread: ThreadLayout,
    pub(super) frame: FrameLayout,
    pub(super) code: CodeLayout,
    pub(super) text: TextLayout,
}

/// `PyThreadState`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadLayout {
    pub(super) next: u64,
    /// `cframe`, or the frame itself if `in_cframe` is `None`.
    pub(super) frame: u64,
    /// `_PyCFrame.current_frame` (3.11 and 3.12).
    pub(super) in_cframe: Option<u64>,
    /// `thread_id`: the address of the C library's descriptor for the thread.
    pub(super) description: u64,
    /// `native_thread_id`: the kernel's thread id (3.11). If a child was forked without Python's knowledge,
    /// this field still has the id in the parent.
    pub(super) number: Option<u64>,
}

/// `_PyInterpreterFrame`; `PyFrameObject` before 3.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameLayout {
    pub(super) previous: u64,
    pub(super) code: u64,
    /// The owner of the frame (3.11). If this value is above 2, the frame has no Python code.
    pub(super) owner: Option<u64>,
}

/// `PyCodeObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeLayout {
    pub(super) kind: u64,
    pub(super) file: u64,
    /// `co_qualname`, or `co_name` before 3.11.
    pub(super) name: u64,
    pub(super) line: u64,
    /// `PyTypeObject.tp_name`
    pub(super) kind_name: u64,
}

/// `PyUnicodeObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextLayout {
    pub(super) length: u64,
    pub(super) state: u64,
    /// The offset of the characters if all are ASCII.
    pub(super) ascii: u64,
    /// The offset of the characters otherwise.
    pub(super) other: u64,
}

impl FrameLayout {
    /// The size in bytes, up to the last field.
    pub(super) fn size(&self) -> usize {
        (self.previous.max(self.code).max(self.owner.unwrap_or(0)) + 8) as usize
    }
}

impl CodeLayout {
    /// Whether names are qualified. Code objects before 3.11 have no qualified names.
    pub(super) fn is_qualified(&self) -> bool {
        *self != OLD_CODE
    }

    /// The size in bytes, up to the last field.
    pub(super) fn size(&self) -> usize {
        (self.kind.max(self.file).max(self.name).max(self.line) + 8) as usize
    }
}

/// Code objects before 3.11.
const OLD_CODE: CodeLayout = CodeLayout { kind: 8, file: 104, name: 112, line: 40, kind_name: 24 };
/// Strings before 3.12.
const OLD_TEXT: TextLayout = TextLayout { length: 16, state: 32, ascii: 48, other: 72 };
/// Strings since 3.12.
const TEXT: TextLayout = TextLayout { length: 16, state: 32, ascii: 40, other: 56 };

impl Layout {
    /// The layout of a version that does not describe itself; `None` for a version that we do not know.
    pub(super) fn for_version(version: PythonVersion) -> Option<Self> {
        let old = Self {
            interpreters: 32,
            next_interpreter: 0,
            threads: 8,
            thread: ThreadLayout { next: 8, frame: 24, in_cframe: None, description: 176, number: None },
            frame: FrameLayout { previous: 24, code: 32, owner: None },
            code: OLD_CODE,
            text: OLD_TEXT,
        };
        match (version.major, version.minor) {
            (3, 8..=10) => Some(old),
            (3, 11) => Some(Self {
                interpreters: 40,
                threads: 16,
                thread: ThreadLayout {
                    next: 8,
                    frame: 56,
                    in_cframe: Some(8),
                    description: 152,
                    number: Some(160),
                },
                frame: FrameLayout { previous: 48, code: 32, owner: Some(69) },
                code: CodeLayout { file: 112, name: 128, line: 72, ..OLD_CODE },
                ..old
            }),
            (3, 12) => Some(Self {
                interpreters: 40,
                threads: 72,
                thread: ThreadLayout {
                    next: 8,
                    frame: 56,
                    in_cframe: Some(0),
                    description: 136,
                    number: Some(144),
                },
                frame: FrameLayout { previous: 8, code: 0, owner: Some(70) },
                code: CodeLayout { file: 112, name: 128, line: 68, ..OLD_CODE },
                text: TEXT,
                ..old
            }),
            _ => None,
        }
    }

    /// The layout that the start of `_PyRuntime` describes. `None` if there is no description, if we do not
    /// know its version, or if it is impossible.
    pub(super) fn described(words: &[u64]) -> Option<Self> {
        let cookie = u64::from_le_bytes(*b"xdebugpy");
        let (found, version) = (words.first()?, words.get(1)?);
        (*found == cookie).then_some(())?;
        let version = PythonVersion::from_hex(u32::try_from(*version).ok()?)?;
        // The offsets of the parts of the description, and the offsets of the thread's fields within its
        // part. The offsets differ between versions, because the parts grow.
        let (thread, ids, frame, code, object, kind, text) = match (version.major, version.minor) {
            (3, 13) => (19, 24, 28, 34, 44, 46, 67),
            (3, 14) => (22, 27, 31, 39, 50, 52, 77),
            (3, 15) => (22, 30, 39, 47, 58, 60, 89),
            _ => return None,
        };
        let at = |index: usize| words.get(index).copied().filter(|offset| *offset < LARGEST);
        let near = |index: usize| at(index).filter(|offset| *offset < LARGEST_OBJECT);
        let ascii = near(text + 3)?;
        Some(Self {
            interpreters: at(5)?,
            next_interpreter: at(8)?,
            threads: at(9)?,
            thread: ThreadLayout {
                next: near(thread + 2)?,
                frame: near(thread + 4)?,
                in_cframe: None,
                description: near(ids)?,
                number: Some(near(ids + 1)?),
            },
            frame: FrameLayout {
                previous: near(frame + 1)?,
                code: near(frame + 2)?,
                owner: Some(near(frame + 5)?),
            },
            code: CodeLayout {
                kind: near(object + 1)?,
                file: near(code + 1)?,
                name: near(code + 3)?,
                line: near(code + 5)?,
                kind_name: near(kind + 1)?,
            },
            text: TextLayout {
                length: near(text + 2)?,
                state: near(text + 1)?,
                ascii,
                // The fields `utf8_length` and `utf8` are in between.
                other: ascii + 16,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_that_describe_themselves_are_in_no_table() {
        for minor in 8..=12 {
            assert!(Layout::for_version(PythonVersion::new(3, minor)).is_some());
        }
        for minor in [7, 13, 14, 15] {
            assert!(Layout::for_version(PythonVersion::new(3, minor)).is_none());
        }
    }

    proptest! {
        /// Whatever `_PyRuntime` contains, the structures that we read by it stay small.
        #[test]
        fn no_description_makes_structures_large(
            mut words in prop::collection::vec(prop_oneof![0..512_u64, any::<u64>()], 0..DEBUG_WORDS),
            minor in 13..16_u64,
        ) {
            if let [cookie, version, ..] = &mut words[..] {
                (*cookie, *version) = (u64::from_le_bytes(*b"xdebugpy"), 0x0300_00f0 + (minor << 16));
            }
            if let Some(layout) = Layout::described(&words) {
                prop_assert!(layout.frame.size() <= 2_048 && layout.code.size() <= 2_048);
            }
        }
    }
}
