//! Code objects, read in place.
//!
//! The offsets of their fields differ between versions. We read the offsets from the type's `tp_members`,
//! which makes `code.co_filename` work in Python. Python never changes these fields of a code object.

use core::{
    ffi::c_int,
    ptr::{self, NonNull},
    slice,
};

use speed_bump_abi::control_block::Failure;

use super::{
    api::Api,
    gil::Python,
    members::{INT, Members, OBJECT, OBJECT_OR_ERROR},
    object::Object,
    text::Utf8,
};
use crate::fault::Fault;

/// Offsets of the fields of code objects, in bytes from the object's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeLayout {
    /// The pointer to the type, in any object.
    pub(crate) object_type: usize,
    filename: usize,
    name: usize,
    /// From 3.11 on.
    qualname: Option<usize>,
    first_line: usize,
    flags: usize,
    constants: usize,
    /// Up to 3.10.
    instructions: Option<usize>,
    /// Bytes of a code object.
    pub(crate) size: usize,
}

/// Offset of `ob_type`: after the reference count, or after the fields of free-threaded builds
/// (Include/object.h).
const OBJECT_TYPES: [usize; 2] = [8, 24];

impl CodeLayout {
    /// Reads the offsets from the type.
    ///
    /// # Errors
    /// [`Failure::Unsupported`]: types have another layout than in any CPython that the helper knows.
    pub(crate) fn read(code_type: NonNull<Object>, type_type: NonNull<Object>) -> Result<Self, Fault> {
        Self::try_read(code_type, type_type).ok_or_else(|| {
            Fault::new(Failure::Unsupported, &["code objects of this build are laid out in an unknown way"])
        })
    }

    fn try_read(code_type: NonNull<Object>, type_type: NonNull<Object>) -> Option<Self> {
        let start = code_type.as_ptr().cast::<u8>();
        let object_type = OBJECT_TYPES.into_iter().find(|offset| {
            // SAFETY: a type object is larger than that, and aligned.
            unsafe { start.add(*offset).cast::<*mut Object>().read() == type_type.as_ptr() }
        })?;
        let members = Members::for_type(code_type, object_type)?;
        let find = |wanted, kinds| members.find(wanted, kinds);
        let object = |wanted| find(wanted, &[OBJECT, OBJECT_OR_ERROR]);
        Some(Self {
            object_type,
            filename: object(c"co_filename")?,
            name: object(c"co_name")?,
            qualname: object(c"co_qualname"),
            first_line: find(c"co_firstlineno", &[INT])?,
            flags: find(c"co_flags", &[INT])?,
            constants: object(c"co_consts")?,
            instructions: object(c"co_code"),
            size: members.object_size(),
        })
    }
}

impl CodeLayout {
    /// Whether code objects hold their qualified name.
    pub(crate) fn has_qualname(&self) -> bool {
        self.qualname.is_some()
    }
}

/// A living code object.
#[derive(Clone, Copy)]
pub(crate) struct Code<'gil> {
    object: NonNull<Object>,
    python: Python<'gil>,
}

impl<'gil> Code<'gil> {
    /// The object as a code object, if it is one.
    ///
    /// # Safety
    /// The object is alive, and outlives the result.
    pub(crate) unsafe fn from_object(python: Python<'gil>, object: NonNull<Object>) -> Option<Self> {
        // SAFETY: as the caller promises.
        let its_type = unsafe { type_of(python.api, object) };
        (its_type == python.api.code_type.as_ptr()).then_some(Self { object, python })
    }

    /// The object as a code object, without a check.
    ///
    /// # Safety
    /// A living code object, which outlives the result.
    pub(crate) unsafe fn assume(python: Python<'gil>, object: NonNull<Object>) -> Self {
        Self { object, python }
    }

    /// The object.
    pub(crate) fn as_ptr(self) -> *mut Object {
        self.object.as_ptr()
    }

    /// The right to call Python, which the caller gave together with the object.
    pub(crate) fn python(self) -> Python<'gil> {
        self.python
    }

    /// `co_filename`.
    pub(crate) fn file(self) -> Option<Utf8<'gil>> {
        // SAFETY: a living code object.
        unsafe { Utf8::from_string(self.python, self.member(self.python.api.code.filename)) }
    }

    /// `co_name`.
    pub(crate) fn name(self) -> Option<Utf8<'gil>> {
        // SAFETY: a living code object.
        unsafe { Utf8::from_string(self.python, self.member(self.python.api.code.name)) }
    }

    /// Whether its `co_name` is this interned string.
    #[inline]
    pub(crate) fn is_named(self, name: *mut Object) -> bool {
        // SAFETY: a living code object.
        unsafe { self.member(self.python.api.code.name) == name }
    }

    /// `co_qualname`, from 3.11 on.
    pub(crate) fn qualname(self) -> Option<Utf8<'gil>> {
        let offset = self.python.api.code.qualname?;
        // SAFETY: a living code object.
        unsafe { Utf8::from_string(self.python, self.member(offset)) }
    }

    /// Whether it has a `co_qualname`.
    pub(crate) fn knows_its_qualname(self) -> bool {
        self.python.api.code.qualname.is_some()
    }

    /// `co_firstlineno`.
    pub(crate) fn line(self) -> u32 {
        u32::try_from(self.integer(self.python.api.code.first_line)).unwrap_or(0)
    }

    /// `co_flags`.
    #[inline]
    pub(crate) fn flags(self) -> c_int {
        self.integer(self.python.api.code.flags)
    }

    /// Whether it belongs to a function, a lambda, a comprehension or the like, and not to a class or module.
    pub(crate) fn is_function(self) -> bool {
        /// Include/cpython/code.h, before 3.9 Include/code.h.
        const CO_OPTIMIZED: c_int = 1;
        self.flags() & CO_OPTIMIZED != 0
    }

    fn integer(self, offset: usize) -> c_int {
        // SAFETY: an int lies there, says the type.
        unsafe { self.object.as_ptr().wrapping_byte_add(offset).cast::<c_int>().read() }
    }

    /// One of its constants.
    pub(crate) fn constant(self, number: usize) -> Option<NonNull<Object>> {
        // SAFETY: a living code object, whose constants live as long as it does.
        let constants = NonNull::new(unsafe { self.member(self.python.api.code.constants) })?;
        let number = isize::try_from(number).ok()?;
        // SAFETY: an object; the function checks that it is a tuple.
        if number >= unsafe { (self.python.api.tuple_size)(constants.as_ptr()) } {
            return None;
        }
        // SAFETY: in the tuple.
        NonNull::new(unsafe { (self.python.api.tuple_item)(constants.as_ptr(), number) })
    }

    /// `co_code`, if code objects hold it as an object: up to 3.10.
    pub(crate) fn instructions(self) -> &'gil [u8] {
        let Some(offset) = self.python.api.code.instructions else { return &[] };
        let (mut data, mut length) = (ptr::null_mut(), 0);
        // SAFETY: a living code object; the function checks that its code is a bytes object, which never
        // changes.
        unsafe {
            if (self.python.api.bytes_data)(self.member(offset), &raw mut data, &raw mut length) != 0 {
                self.python.clear();
                return &[];
            }
            slice::from_raw_parts(data.cast(), usize::try_from(length).unwrap_or(0))
        }
    }

    /// The code objects among its constants: its functions, classes and comprehensions.
    pub(crate) fn nested(self) -> impl Iterator<Item = Code<'gil>> {
        // SAFETY: a living code object, whose constants live as long as it does.
        let constants = unsafe { self.member(self.python.api.code.constants) };
        let python = self.python;
        // SAFETY: an object or null; the function checks that it is a tuple.
        let count = if constants.is_null() { 0 } else { unsafe { (python.api.tuple_size)(constants) } };
        (0..count).filter_map(move |i| {
            // SAFETY: in the tuple, which keeps its items.
            unsafe { Code::from_object(python, NonNull::new((python.api.tuple_item)(constants, i))?) }
        })
    }

    /// # Safety
    /// The field at this offset is a pointer to an object, or null.
    unsafe fn member(self, offset: usize) -> *mut Object {
        // SAFETY: as the caller promises.
        unsafe { self.object.as_ptr().wrapping_byte_add(offset).cast::<*mut Object>().read() }
    }
}

/// The type of an object.
///
/// # Safety
/// A living object.
pub(crate) unsafe fn type_of(api: &Api, object: NonNull<Object>) -> *mut Object {
    // SAFETY: as the caller promises; every object has its type there.
    unsafe { object.as_ptr().wrapping_byte_add(api.code.object_type).cast::<*mut Object>().read() }
}
