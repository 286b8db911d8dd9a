//! The running interpreter's module `sys.monitoring`, and the calls that the helper makes.

use core::{
    ffi::{c_int, c_long},
    ptr,
};

use speed_bump_abi::control_block::Failure;

use super::{NO_TOOL, PY_START, TOOL_IDS, is_fresh, timed};
use crate::{
    fault::Fault,
    python::{
        gil::Python,
        object::{Object, Owned},
    },
};

/// The module `sys.monitoring`.
pub(super) struct Monitoring<'gil> {
    pub(super) module: Owned<'gil>,
    pub(super) python: Python<'gil>,
}

impl<'gil> Monitoring<'gil> {
    pub(super) fn find(python: Python<'gil>) -> Result<Self, Fault> {
        // SAFETY: the GIL is held; `sys` keeps the object alive until we have a reference.
        let module = unsafe { Owned::from_borrowed(python, (python.api.sys_object)(c"monitoring".as_ptr())) };
        match module {
            Some(module) => Ok(Self { module, python }),
            None => {
                python.clear();
                Err(Fault::new(Failure::Unsupported, &["the interpreter has no sys.monitoring"]))
            }
        }
    }

    /// The result of a call, or the exception as a failure.
    fn done(&self, what: &str, result: *mut Object) -> Result<Owned<'gil>, Fault> {
        // SAFETY: a new reference or null, as all calls of methods return.
        let result = unsafe { Owned::from_new(self.python, result) };
        result.ok_or_else(|| self.python.fault(&["sys.monitoring.", what, ": "]))
    }

    /// Takes a free id, preferably a fresh one, given the ids that were ours.
    pub(super) fn take_id(&self, name: *mut Object, used: u32) -> Result<c_int, Fault> {
        let fresh = TOOL_IDS.into_iter().filter(|id| is_fresh(*id, used));
        let others = TOOL_IDS.into_iter().filter(|id| !is_fresh(*id, used));
        self.take_one(name, fresh.chain(others))
    }

    /// Takes the first of these ids that is free.
    pub(super) fn take_one(
        &self,
        name: *mut Object,
        ids: impl IntoIterator<Item = c_int>,
    ) -> Result<c_int, Fault> {
        for id in ids {
            let holder = self.holder(id)?;
            if holder.as_ptr() != self.python.api.none.as_ptr() {
                continue;
            }
            // SAFETY: the arguments match the format; the objects are alive and the GIL is held.
            let result = unsafe {
                let (method, format) = (c"use_tool_id".as_ptr(), c"iO".as_ptr());
                (self.python.api.call_method)(self.module.as_ptr(), method, format, id, name)
            };
            // In a free-threaded build another tool may take it in between.
            if self.done("use_tool_id", result).is_ok() {
                return Ok(id);
            }
        }
        Err(Fault::new(Failure::NoToolId, &["all six tool ids of sys.monitoring are in use"]))
    }

    /// The name of the tool that has the id, or Python's `None`.
    fn holder(&self, id: c_int) -> Result<Owned<'gil>, Fault> {
        // SAFETY: the argument is what the format says; the GIL is held.
        let result = unsafe {
            let (method, format) = (c"get_tool".as_ptr(), c"i".as_ptr());
            (self.python.api.call_method)(self.module.as_ptr(), method, format, id)
        };
        self.done("get_tool", result)
    }

    /// Whether there are tools besides the one with the id.
    pub(super) fn has_others(&self, tool: c_int) -> bool {
        let none = self.python.api.none.as_ptr();
        let is_others = |id: c_int| id != tool && self.holder(id).is_ok_and(|holder| holder.as_ptr() != none);
        let has_others = TOOL_IDS.into_iter().any(is_others);
        self.python.clear();
        has_others
    }

    /// Whether the id's tool was registered with this very object as its name.
    pub(super) fn is_named(&self, id: c_int, name: *mut Object) -> bool {
        id != NO_TOOL && !name.is_null() && self.holder(id).is_ok_and(|holder| holder.as_ptr() == name)
    }

    pub(super) fn register(&self, id: c_int, event: c_int, callback: *mut Object) -> Result<(), Fault> {
        // SAFETY: the arguments are those that the format says; the objects are alive and the GIL held.
        let result = unsafe {
            let (method, format) = (c"register_callback".as_ptr(), c"iiO".as_ptr());
            (self.python.api.call_method)(self.module.as_ptr(), method, format, id, event, callback)
        };
        self.done("register_callback", result).map(drop)
    }

    pub(super) fn listen(&self, id: c_int, events: c_int) -> Result<(), Fault> {
        // SAFETY: the arguments are those that the format says; the GIL is held.
        let result = unsafe {
            let (method, format) = (c"set_events".as_ptr(), c"ii".as_ptr());
            (self.python.api.call_method)(self.module.as_ptr(), method, format, id, events)
        };
        self.done("set_events", result).map(drop)
    }

    pub(super) fn listens(&self, id: c_int, events: c_int) -> bool {
        // SAFETY: the argument is what the format says; the GIL is held.
        let result = unsafe {
            let (method, format) = (c"get_events".as_ptr(), c"i".as_ptr());
            (self.python.api.call_method)(self.module.as_ptr(), method, format, id)
        };
        let listened: Option<c_long> = self.done("get_events", result).ok().and_then(|set| set.integer());
        self.python.clear();
        listened.is_some_and(|set| set & c_long::from(events) != 0)
    }

    pub(super) fn restart(&self) -> Result<(), Fault> {
        // SAFETY: no arguments; the GIL is held.
        let result = unsafe {
            let method = c"restart_events".as_ptr();
            (self.python.api.call_method)(self.module.as_ptr(), method, ptr::null())
        };
        self.done("restart_events", result).map(drop)
    }

    /// Turns events off, removes the callback and frees the id. A failure of one does not stop the others.
    pub(super) fn give_back(&self, id: c_int) {
        let _ = self.listen(id, 0);
        let none = self.python.api.none.as_ptr();
        let _ = self.register(id, PY_START, none);
        timed::forget(self, id);
        // SAFETY: the argument is what the format says; the GIL is held.
        let result = unsafe {
            let (method, format) = (c"free_tool_id".as_ptr(), c"i".as_ptr());
            (self.python.api.call_method)(self.module.as_ptr(), method, format, id)
        };
        let _ = self.done("free_tool_id", result);
    }
}
