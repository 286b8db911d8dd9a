//! Offsets of the fields of a C type's objects, from its `tp_members`, which makes `code.co_filename` work in
//! Python.

use core::{
    ffi::{CStr, c_char, c_int},
    ptr::NonNull,
};

use super::object::Object;

/// `PyMemberDef` (Include/structmember.h, since 3.12 Include/descrobject.h).
#[repr(C)]
struct Member {
    name: *const c_char,
    kind: c_int,
    offset: isize,
    flags: c_int,
    documentation: *const c_char,
}

// Kinds of members (the same headers).
pub(crate) const INT: c_int = 1;
pub(crate) const OBJECT: c_int = 6;
pub(crate) const OBJECT_OR_ERROR: c_int = 16;
pub(crate) const BOOL: c_int = 14;

/// From `ob_type` to `tp_members` in a type (Include/cpython/object.h; the same from 3.8 to 3.15).
const TYPE_TO_MEMBERS: usize = 232;
/// From `ob_type` to `tp_basicsize`.
const TYPE_TO_SIZE: usize = 24;
/// More members than any type has that we read.
const COUNT: usize = 64;

/// The members of one type.
pub(crate) struct Members {
    first: NonNull<Member>,
    size: usize,
}

impl Members {
    /// The members of a type whose `ob_type` is at this offset. `None`: it has none.
    pub(crate) fn for_type(its_type: NonNull<Object>, object_type: usize) -> Option<Self> {
        let start = its_type.as_ptr().cast::<u8>();
        // SAFETY: a type object whose `ob_type` is there has its members and its size there.
        let (members, size) = unsafe {
            (
                start.add(object_type + TYPE_TO_MEMBERS).cast::<*mut Member>().read(),
                start.add(object_type + TYPE_TO_SIZE).cast::<usize>().read(),
            )
        };
        Some(Self { first: NonNull::new(members)?, size })
    }

    /// Bytes of an object, without any items.
    pub(crate) fn object_size(&self) -> usize {
        self.size
    }

    /// Offset of the member with this name and one of these kinds, in bytes from the object's start.
    pub(crate) fn find(&self, wanted: &CStr, kinds: &[c_int]) -> Option<usize> {
        (0..COUNT)
            // SAFETY: the members end with one without a name, and nothing is read beyond it.
            .map(|i| unsafe { self.first.add(i).as_ref() })
            .take_while(|member| !member.name.is_null())
            // SAFETY: names of members are static C strings.
            .find(|member| unsafe { is_text(member.name, wanted) })
            .filter(|member| kinds.contains(&member.kind))
            .and_then(|member| usize::try_from(member.offset).ok())
    }
}

/// # Safety
/// A text that ends with NUL.
unsafe fn is_text(text: *const c_char, wanted: &CStr) -> bool {
    let wanted = wanted.to_bytes_with_nul().iter().enumerate();
    // SAFETY: nothing is read beyond the first difference, and a NUL is one, unless it is the last byte.
    wanted.into_iter().all(|(i, byte)| unsafe { text.add(i).cast::<u8>().read() } == *byte)
}
