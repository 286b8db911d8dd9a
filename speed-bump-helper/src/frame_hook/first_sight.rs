//! Judges code that the survey did not find, at its first call.
//!
//! From 3.11 on that is easy, since code holds its qualified name. Before, only code that makes functions
//! holds their names. So when code that defines functions starts (a module, a class, a text passed to exec),
//! we read it, and judge the functions that it will define before they are called. For all other code we
//! search for a function that has this code, and read its qualified name.

use core::{
    ops::ControlFlow,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use speed_bump_abi::control_block::notice;

use super::{
    evaluator::Frame,
    frame,
    stack::{self, Key},
};
use crate::{
    block::Block,
    fault::Fault,
    judge::{self, Judge, Verdict},
    life,
    python::{
        code::Code,
        frozen::Frozen,
        gil::Python,
        made::made_functions,
        object::{Object, Owned},
        text::Utf8,
    },
    survey::said_qualname,
};

/// How many levels of nested functions we judge.
const DEPTH: u32 = 20;
/// How often we search for functions with one selector. Each search walks all objects, which takes some
/// milliseconds.
const SEARCHES: u32 = 200;
/// This many frozen objects count as another search: to walk them takes some milliseconds.
const FROZEN_A_SEARCH: usize = 100_000;

/// The module `gc`.
static GC: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());
static SEARCHED: AtomicU32 = AtomicU32::new(0);

/// Prepares for a selector.
///
/// # Errors
/// [`Failure::Python`](speed_bump_abi::control_block::Failure::Python).
pub(crate) fn prepare(python: Python<'_>) -> Result<(), Fault> {
    SEARCHED.store(0, Ordering::Relaxed);
    if !python.api.code.has_qualname() && GC.load(Ordering::Acquire).is_null() {
        let gc = python.import(c"gc").ok_or_else(|| python.fault(&["import gc: "]))?;
        GC.store(gc.keep(), Ordering::Release);
    }
    Ok(())
}

/// The verdict on the code of a frame that is about to start. `None`: we cannot judge it now.
pub(crate) fn judge(
    block: Block,
    judge: &Judge,
    code: Code<'_>,
    frame: *mut Frame,
    key: Key,
) -> Option<Verdict> {
    if !stack::suffices_to_judge(key) {
        block.notice(notice::STACK_SHORT);
        return None;
    }
    if code.knows_its_qualname() {
        return Some(judge.judge(block, code, None));
    }
    let file = code.file()?;
    if judge.concerns_nothing_in(file.text()) {
        let unselected = judge::of_unselected(code);
        judge.remember(code, unselected);
        return Some(unselected);
    }
    let verdict = judge_nameless(block, judge, code, file.text(), frame)?;
    look_into(block, judge, code, DEPTH);
    Some(verdict)
}

/// The verdict up to 3.10.
fn judge_nameless(
    block: Block,
    judge: &Judge,
    code: Code<'_>,
    file: &str,
    frame: *mut Frame,
) -> Option<Verdict> {
    let name = code.name()?;
    if !code.is_function() && name.text() == "<module>" {
        return Some(judge.judge(block, code, Some(name.text())));
    }
    let unselected = judge::of_unselected(code);
    if !judge.may_concern(file, name.text()) {
        judge.remember(code, unselected);
        return Some(unselected);
    }
    let generation = block.head().generation.load(Ordering::Relaxed);
    let is_applied = block.head().applied_generation.load(Ordering::Relaxed) == generation;
    if !is_applied && life::is_claimed() {
        // The survey will judge it. A forked child has no survey.
        return None;
    }
    // We do this before we run anything that could call it again.
    judge.remember(code, unselected);
    // SAFETY: the frame is about to be evaluated.
    let found = unsafe { name_of_generator(code, frame) }.or_else(|| search(code));
    if found.is_none() {
        block.notice(notice::NAME_UNSURE);
    }
    let qualname = found.as_ref().map_or(name.text(), Utf8::text);
    Some(judge.judge(block, code, Some(qualname)))
}

/// Judges the functions that the code makes, and those that they make.
pub(crate) fn look_into(block: Block, judge: &Judge, code: Code<'_>, depth: u32) {
    made_functions(code, &mut |made, qualname| {
        if judge.known(made).is_none() {
            judge.judge(block, made, Some(qualname));
            if depth > 0 {
                look_into(block, judge, made, depth - 1);
            }
        }
    });
}

/// # Safety
/// A frame of the code, about to be evaluated.
unsafe fn name_of_generator<'gil>(code: Code<'gil>, frame: *mut Frame) -> Option<Utf8<'gil>> {
    // SAFETY: as the caller promises; a frame does not outlive the generator that it names.
    unsafe { said_qualname(code.python(), NonNull::new(frame::generator(frame))?, code) }
}

/// The qualified name of a function that has the code: found by `gc.get_referrers`, and among frozen objects.
pub(super) fn search<'gil>(code: Code<'gil>) -> Option<Utf8<'gil>> {
    let gc = NonNull::new(GC.load(Ordering::Acquire))?;
    if SEARCHED.fetch_add(1, Ordering::Relaxed) >= SEARCHES {
        SEARCHED.store(SEARCHES, Ordering::Relaxed);
        return None;
    }
    by_referrers(code, gc).or_else(|| among_frozen(code, gc))
}

fn by_referrers<'gil>(code: Code<'gil>, gc: NonNull<Object>) -> Option<Utf8<'gil>> {
    let python = code.python();
    // SAFETY: the module stays alive; the argument is what the format says; the GIL is held.
    let holders = unsafe {
        let (method, format) = (c"get_referrers".as_ptr(), c"(O)".as_ptr());
        Owned::from_new(python, (python.api.call_method)(gc.as_ptr(), method, format, code.as_ptr()))
    };
    let Some(holders) = holders else {
        python.clear();
        return None;
    };
    // SAFETY: an object; the function checks that it is a list.
    let count = unsafe { (python.api.list_size)(holders.as_ptr()) };
    (0..count).find_map(|number| {
        // SAFETY: in the list, which only we hold and which keeps its items alive.
        let holder = unsafe { NonNull::new((python.api.list_item)(holders.as_ptr(), number))? };
        // SAFETY: a living object.
        unsafe { is_function_of(code, holder).then(|| said_qualname(python, holder, code)).flatten() }
    })
}

/// `gc.get_referrers` does not search frozen objects.
fn among_frozen<'gil>(code: Code<'gil>, gc: NonNull<Object>) -> Option<Utf8<'gil>> {
    let python = code.python();
    let Frozen::Known(chain) = Frozen::find(python, gc) else { return None };
    let mut function = None;
    let walked = chain.each(|object| {
        // SAFETY: an object of the chain, which lives as long as no Python code runs.
        if unsafe { is_function_of(code, object) } {
            // SAFETY: as above.
            function = unsafe { Owned::from_borrowed(python, object.as_ptr()) };
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    SEARCHED.fetch_add((walked / FROZEN_A_SEARCH).try_into().unwrap_or(SEARCHES), Ordering::Relaxed);
    let function = function?;
    // SAFETY: a function, which stays alive until the end of this.
    unsafe { said_qualname(python, NonNull::new(function.as_ptr())?, code) }
}

/// # Safety
/// A living object.
unsafe fn is_function_of(code: Code<'_>, holder: NonNull<Object>) -> bool {
    let api = code.python().api;
    // SAFETY: as the caller promises; a function has a code.
    unsafe {
        crate::python::code::type_of(api, holder) == api.function_type.as_ptr()
            && (api.function_code)(holder.as_ptr()) == code.as_ptr()
    }
}
