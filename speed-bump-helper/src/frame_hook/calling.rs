//! Which thread calls a hook, and for whose frame.

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use speed_bump_abi::control_block::notice;

use super::{
    evaluator::Frame,
    first_sight, frame,
    raised::Raised,
    stack::{self, Key},
};
use crate::{
    block::Block,
    judge::{Judge, branches},
    python::{
        api::{Api, Interpreter, ThreadState},
        code::Code,
        gil::Python,
        object::Object,
    },
};

/// The context of a hook's call: on 3.11, the thread state and its number.
#[derive(Clone, Copy)]
pub(super) struct Calling(Option<(*mut ThreadState, Key)>);

impl Calling {
    /// On 3.8 to 3.10, where frames hold what we need.
    pub(super) const OLD: Self = Self(None);

    pub(super) fn of_311(thread: *mut ThreadState, key: Key) -> Self {
        Self(Some((thread, key)))
    }

    pub(super) fn is_311(self) -> bool {
        self.0.is_some()
    }

    pub(super) fn key(self) -> Key {
        self.0.map_or_else(Key::of_this_thread, |(_, key)| key)
    }

    /// The number of the function that calls a frame.
    ///
    /// # Safety
    /// The frame is about to be evaluated, with the GIL.
    pub(super) unsafe fn caller(self, python: Python<'_>, block: Block, frame: *mut Frame) -> Option<u32> {
        // SAFETY: as the caller promises.
        let code = unsafe { self.code_of_caller(frame) };
        let Some(code) = code else {
            block.leave_out_caller();
            return None;
        };
        // SAFETY: null, or the code of a frame that is evaluated, which keeps it.
        let code = unsafe { Code::from_object(python, NonNull::new(code)?) }?;
        let judge = Judge::current()?;
        judge.known_caller(code).or_else(|| self.name_caller(block, judge, code))
    }

    /// The number that a call of a frame counts for, where the targets of its function are for some callers
    /// alone. `first`: the first of its numbers. `None`: no target is for this call.
    ///
    /// # Safety
    /// As [`Calling::caller`].
    #[inline(never)]
    pub(super) unsafe fn branch(
        self,
        python: Python<'_>,
        block: Block,
        frame: *mut Frame,
        first: u32,
    ) -> Option<u32> {
        // SAFETY: as the caller promises.
        let code = unsafe { self.code_of_caller(frame) };
        if code.is_none() {
            block.notice(notice::CALLER_UNKNOWN);
        }
        let callers = code.and_then(NonNull::new).and_then(|code| {
            // SAFETY: the code of a frame that is evaluated, which keeps it.
            let code = unsafe { Code::from_object(python, code) }?;
            let judge = Judge::current()?;
            judge.known_as_caller(code).or_else(|| self.judge_as_caller(block, judge, code))
        });
        branches::find(block, first, callers.unwrap_or(0))
    }

    /// The code of the frame that calls; null if there is none. `None`: this build has an unknown layout.
    ///
    /// # Safety
    /// As [`Calling::caller`].
    #[inline]
    unsafe fn code_of_caller(self, frame: *mut Frame) -> Option<*mut Object> {
        // SAFETY: as the caller promises.
        unsafe {
            match self.0 {
                Some((thread, _)) => frame::calling_code_311(thread),
                None => Some(frame::calling_code(frame)),
            }
        }
    }

    /// Gives the code of a caller a number, if it has none yet.
    #[cold]
    #[inline(never)]
    fn name_caller(self, block: Block, judge: &Judge, code: Code<'_>) -> Option<u32> {
        if !stack::suffices_to_judge(self.key()) {
            block.leave_out_caller();
            return None;
        }
        let _raised = Raised::set_aside(code.python());
        judge.name_caller(block, code)
    }

    /// Which callers that targets name (`caller=`) this code is, a bit for each caller. For code that was not
    /// judged before.
    #[cold]
    #[inline(never)]
    fn judge_as_caller(self, block: Block, judge: &Judge, code: Code<'_>) -> Option<u32> {
        if !stack::suffices_to_judge(self.key()) {
            block.notice(notice::STACK_SHORT);
            return None;
        }
        let _raised = Raised::set_aside(code.python());
        Some(judge.judge_as_caller(block, code, first_sight::search))
    }
}

/// `interp` of a thread state, after `prev` and `next` (Include/cpython/pystate.h of 3.11).
const INTERPRETER: usize = 16;

/// The main interpreter, if thread states hold their interpreter at that offset; else null.
static MAIN: AtomicPtr<Interpreter> = AtomicPtr::new(ptr::null_mut());

/// Sets [`MAIN`], if thread states hold their interpreter at [`INTERPRETER`].
pub(super) fn prepare(python: Python<'_>) {
    let (Some(running), Some(interpreter)) = (python.api.thread_state, python.api.thread_interpreter) else {
        return;
    };
    // SAFETY: the GIL is held, so there is a thread state, and it is larger than that.
    unsafe {
        let thread = running();
        let main = interpreter(thread);
        if thread.wrapping_byte_add(INTERPRETER).cast::<*mut Interpreter>().read() == main {
            MAIN.store(main, Ordering::Release);
        }
    }
}

/// The key for a thread state, from the state's number, which is unique in its interpreter.
#[inline]
pub(super) fn key(thread: *mut ThreadState) -> Key {
    let Some((api, number)) = Api::found().and_then(|api| Some((api, api.thread_id?))) else {
        return Key::of_this_thread();
    };
    // SAFETY: the thread state that Python gave the hook.
    let (number, interpreter) =
        unsafe { (number(thread), thread.wrapping_byte_add(INTERPRETER).cast::<*mut Interpreter>().read()) };
    if interpreter == MAIN.load(Ordering::Relaxed) {
        return Key::of_thread_state(number, 0);
    }
    // SAFETY: as above, and the interpreter that it runs in.
    let interpreter = api.thread_interpreter.map_or(0, |of| unsafe { (api.interpreter_id)(of(thread)) });
    Key::of_thread_state(number, interpreter)
}
