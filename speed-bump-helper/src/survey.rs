//! Finds the selected functions that are loaded, called or not.
//!
//! Functions are objects that the garbage collector knows, except those that the program has hidden from it
//! (`gc.freeze()`), which we find too. Inner functions, comprehensions and classes may not exist as objects
//! yet; their code is a constant of the outer function's. While we judge, we give the GIL away now and then,
//! so that a large program does not stand still.

use core::{
    ffi::{c_int, c_void},
    ops::ControlFlow,
    ptr::{self, NonNull},
    sync::atomic::Ordering,
};

use speed_bump_abi::control_block::{Failure, notice, unlisted};

use crate::{
    block::Block,
    fault::Fault,
    judge::Judge,
    list::Objects,
    python::{
        code::{Code, type_of},
        frozen::Frozen,
        gil::{Gil, Python},
        made::made_functions,
        object::{Object, Owned},
        text::Utf8,
    },
    subinterpreters,
};

/// How many functions we judge before other threads may have the GIL: some milliseconds.
const AT_A_TIME: usize = 1000;
/// With thousands of patterns, judging a function may take long. So once in this many functions we also read
/// the clock, which takes a system call.
const LOOK_EVERY: usize = 4;
/// After this time we let other threads have the GIL.
const KEPT_NS: u64 = 2_000_000;
/// The most levels of nested functions that the survey follows.
const DEPTH: u32 = 50;

/// What one pass over the functions judges.
#[derive(Clone, Copy)]
enum Pass {
    /// The functions themselves. Before 3.11 they hold their qualified name, and their code does not.
    Functions,
    /// The code nested in them.
    Nested,
    /// Functions that do not hold their own name, and are not nested in any other.
    Rest,
}

/// Judges all functions that are loaded. Calls `proceed` in between; returns whether it agreed to the end.
///
/// # Errors
/// [`Failure::Python`]: Python could not list its objects.
pub(crate) fn survey(
    gil: &mut Gil,
    block: Block,
    judge: &Judge,
    mut proceed: impl FnMut() -> bool,
) -> Result<bool, Fault> {
    let (functions, is_complete) = functions(gil.python())?;
    tell_what_is_missing(gil.python(), block, is_complete);
    let mut agreed = true;
    for pass in [Pass::Functions, Pass::Nested, Pass::Rest] {
        for number in 0..functions.len() {
            let is_long = number % LOOK_EVERY == LOOK_EVERY - 1 && gil.is_kept_for(KEPT_NS);
            if is_long || number % AT_A_TIME == AT_A_TIME - 1 {
                gil.pause();
                agreed = agreed && proceed();
            }
            if !agreed {
                break;
            }
            if let Some(function) = functions.get(number) {
                // SAFETY: a function that the list keeps alive.
                unsafe { look_at(gil.python(), block, judge, function, pass) };
            }
        }
    }
    for number in 0..functions.len() {
        if let Some(function) = functions.get(number) {
            // SAFETY: the reference that was taken when the list was made.
            unsafe { (gil.python().api.decrement)(function.as_ptr()) };
        }
    }
    Ok(agreed)
}

/// Notifies the user of reasons why some functions may not be listed.
fn tell_what_is_missing(python: Python<'_>, block: Block, shows_frozen: bool) {
    let all = [
        (!shows_frozen, unlisted::FROZEN),
        (subinterpreters::there_are_some(python.api), unlisted::ELSEWHERE),
        (python.api.version.free_threaded, unlisted::WITHOUT_GIL),
    ];
    let bits = all.into_iter().filter(|(is_so, _)| *is_so).fold(0, |bits, (_, bit)| bits | bit);
    block.head().unlisted.fetch_or(bits, Ordering::AcqRel);
}

/// # Safety
/// A living function.
unsafe fn look_at(python: Python<'_>, block: Block, judge: &Judge, function: NonNull<Object>, pass: Pass) {
    // SAFETY: as the caller promises.
    let Some(code) = (unsafe { code_of(python, function) }) else { return };
    match pass {
        Pass::Nested => look_into(block, judge, code, DEPTH),
        Pass::Rest if judge.known(code).is_some() => {}
        Pass::Rest => consider_by_plain_name(block, judge, code),
        Pass::Functions if code.knows_its_qualname() => consider(block, judge, code, None),
        Pass::Functions => {
            // SAFETY: as the caller promises.
            if let Some(said) = unsafe { said_qualname(python, function, code) } {
                consider(block, judge, code, Some(said.text()));
            }
        }
    }
}

/// A function's code; the function keeps it alive as long as no Python code runs.
///
/// # Safety
/// A living function, and no Python code runs while the result is used.
unsafe fn code_of<'gil>(python: Python<'gil>, function: NonNull<Object>) -> Option<Code<'gil>> {
    // SAFETY: as the caller promises.
    unsafe {
        let code = NonNull::new((python.api.function_code)(function.as_ptr()));
        code.and_then(|code| Code::from_object(python, code))
    }
}

/// Judges a function by its plain name (before 3.11): the function has been given another function's name,
/// and the code that made the function no longer exists.
fn consider_by_plain_name(block: Block, judge: &Judge, code: Code<'_>) {
    let (Some(file), Some(name)) = (code.file(), code.name()) else { return };
    if judge.may_concern(file.text(), name.text()) {
        block.notice(notice::NAME_UNSURE);
    }
    consider(block, judge, code, Some(name.text()));
}

fn look_into(block: Block, judge: &Judge, code: Code<'_>, depth: u32) {
    let consider_all = |inner, qualname: Option<&str>| {
        consider(block, judge, inner, qualname);
        if depth > 0 {
            look_into(block, judge, inner, depth - 1);
        }
    };
    if code.knows_its_qualname() {
        code.nested().for_each(|inner| consider_all(inner, None));
    } else {
        made_functions(code, &mut |inner, qualname| consider_all(inner, Some(qualname)));
    }
}

/// Judges the code, unless that was done. Before 3.11, the caller must give the qualified name.
fn consider(block: Block, judge: &Judge, code: Code<'_>, qualname: Option<&str>) {
    if judge.known(code).is_none() {
        judge.judge(block, code, qualname);
        block.head().surveyed.fetch_add(1, Ordering::Relaxed);
    }
}

/// `function.__qualname__`, if it ends in the name of the code: `functools.wraps` gives a function the name
/// of another one.
///
/// # Safety
/// A living function or generator.
pub(crate) unsafe fn said_qualname<'gil>(
    python: Python<'gil>,
    function: NonNull<Object>,
    code: Code<'gil>,
) -> Option<Utf8<'gil>> {
    // SAFETY: as the caller promises.
    let said = unsafe {
        Owned::from_borrowed(python, function.as_ptr())
            .and_then(|function| function.attribute(c"__qualname__"))
            .and_then(|said| Utf8::from_string(python, said.as_ptr()))
    };
    let Some(said) = said else {
        python.clear();
        return None;
    };
    let name = code.name()?;
    let before = said.text().as_bytes().strip_suffix(name.text().as_bytes())?;
    matches!(before.last(), None | Some(b'.')).then_some(said)
}

/// Calls `show` for all functions, with their code. Python code must not run meanwhile.
///
/// # Errors
/// [`Failure::Python`]: Python could not list its objects.
pub(crate) fn each_function(
    python: Python<'_>,
    mut show: impl FnMut(NonNull<Object>, Code<'_>),
) -> Result<(), Fault> {
    let (functions, _) = functions(python)?;
    for function in (0..functions.len()).filter_map(|number| functions.get(number)) {
        // SAFETY: a function that the list keeps alive.
        if let Some(code) = unsafe { code_of(python, function) } {
            show(function, code);
        }
        // SAFETY: the reference that was taken when the list was made.
        unsafe { (python.api.decrement)(function.as_ptr()) };
    }
    Ok(())
}

/// All functions that the garbage collector knows, each with a reference; and whether these are all, or the
/// program has frozen some that Python does not show.
fn functions(python: Python<'_>) -> Result<(Objects, bool), Fault> {
    let mut visited = Visited { python, found: Objects::new(), complete: true };
    match python.api.visit_objects {
        Some(visit) => {
            // SAFETY: the GIL is held, the visitor does what it may, and `visited` outlives the call.
            unsafe { visit(visitor, ptr::from_mut(&mut visited).cast()) };
        }
        None => {
            let gc = python.import(c"gc").ok_or_else(|| python.fault(&["import gc: "]))?;
            listed(&gc, &mut visited)?;
        }
    }
    let is_complete = add_frozen(&mut visited);
    if visited.complete {
        Ok((visited.found, is_complete))
    } else {
        Err(Fault::new(Failure::NoMemory, &["a list of the functions that are loaded"]))
    }
}

/// Adds the frozen functions that were not visited. `false`: there are some that we cannot find.
fn add_frozen(visited: &mut Visited<'_>) -> bool {
    /// The first version in which all releases with a GIL visit frozen objects.
    const VISITS_THEM: (u8, u8) = (3, 14);
    let version = visited.python.api.version;
    if version.minor() >= VISITS_THEM && !version.free_threaded {
        return true;
    }
    // A program that has not imported `gc` has frozen nothing.
    let gc = visited.python.imported(c"gc");
    let Some(gc) = gc.as_ref().and_then(|gc| NonNull::new(gc.as_ptr())) else { return true };
    match Frozen::find(visited.python, gc) {
        Frozen::Nothing => true,
        Frozen::Hidden => false,
        Frozen::Known(chain) => {
            chain.each(|object| {
                // SAFETY: an object of the chain, which lives as long as no Python code runs.
                unsafe { visited.visit(object) };
                if visited.complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            true
        }
    }
}

struct Visited<'gil> {
    python: Python<'gil>,
    found: Objects,
    complete: bool,
}

impl Visited<'_> {
    /// # Safety
    /// A living object.
    unsafe fn visit(&mut self, object: NonNull<Object>) {
        let api = self.python.api;
        // SAFETY: as the caller promises.
        if unsafe { type_of(api, object) } == api.function_type.as_ptr() {
            if self.found.push(object.as_ptr()) {
                // SAFETY: as the caller promises.
                unsafe { (api.increment)(object.as_ptr()) };
            } else {
                self.complete = false;
            }
        }
    }
}

/// Must neither make nor free objects (Include/cpython/objimpl.h).
unsafe extern "C" fn visitor(object: *mut Object, visited: *mut c_void) -> c_int {
    // SAFETY: passed by `functions`, and no other code uses it meanwhile.
    let visited = unsafe { &mut *visited.cast::<Visited<'_>>() };
    if let Some(object) = NonNull::new(object) {
        // SAFETY: an object that the garbage collector knows is alive.
        unsafe { visited.visit(object) };
    }
    c_int::from(visited.complete)
}

/// Lists the functions before 3.12, by `gc.get_objects()`.
fn listed(gc: &Owned<'_>, visited: &mut Visited<'_>) -> Result<(), Fault> {
    let python = visited.python;
    // SAFETY: the module is alive, the GIL held, and the call has no arguments.
    let objects = unsafe {
        let listed = (python.api.call_method)(gc.as_ptr(), c"get_objects".as_ptr(), ptr::null());
        Owned::from_new(python, listed)
    };
    let Some(objects) = objects else { return Err(python.fault(&["gc.get_objects(): "])) };
    // SAFETY: an object; the function checks that it is a list.
    let count = unsafe { (python.api.list_size)(objects.as_ptr()) };
    for number in 0..count {
        // SAFETY: in the list, which only we hold and which keeps its items alive.
        unsafe {
            if let Some(object) = NonNull::new((python.api.list_item)(objects.as_ptr(), number)) {
                visited.visit(object);
            }
        }
    }
    python.clear();
    Ok(())
}
