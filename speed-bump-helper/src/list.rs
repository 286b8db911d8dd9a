//! A growing list with memory of its own, for code that must not call the C library's allocator or Python's.

use core::{mem::size_of, ptr::NonNull};

use crate::{python::object::Object, sys};

/// A list of objects, by address.
pub(crate) struct Objects {
    items: Option<NonNull<*mut Object>>,
    length: usize,
    capacity: usize,
}

impl Objects {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self { items: None, length: 0, capacity: 0 }
    }

    /// Adds an object. `false`: there is no memory.
    pub(crate) fn push(&mut self, object: *mut Object) -> bool {
        if self.length == self.capacity && !self.grow() {
            return false;
        }
        let Some(items) = self.items else { return false };
        // SAFETY: below the capacity.
        unsafe { items.add(self.length).write(object) };
        self.length += 1;
        true
    }

    fn grow(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(sys::PAGE / size_of::<*mut Object>());
        let bytes = |items: usize| items * size_of::<*mut Object>();
        let memory = match self.items {
            // SAFETY: allocated with this length, and replaced below.
            Some(items) => unsafe { sys::grow(items.cast(), bytes(self.capacity), bytes(capacity)) },
            None => sys::allocate(bytes(capacity)),
        };
        let Ok(memory) = memory else { return false };
        (self.items, self.capacity) = (Some(memory.cast()), capacity);
        true
    }

    fn free(&mut self) {
        if let Some(items) = self.items.take() {
            // SAFETY: mapped with this length, and no longer used.
            unsafe { sys::free(items.cast(), self.capacity * size_of::<*mut Object>()) };
        }
    }

    /// An object by its position.
    pub(crate) fn get(&self, number: usize) -> Option<NonNull<Object>> {
        let items = self.items.filter(|_| number < self.length)?;
        // SAFETY: below the length.
        NonNull::new(unsafe { items.add(number).read() })
    }

    /// How many objects the list has.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.free();
    }
}
