//! Which functions are selected, and what is remembered of it.
//!
//! The verdict on a code object lies in its `co_extra`, so that it dies with the code object: an address that
//! is used again has none. It is a number, not memory: the epoch that it was found in, and the function's
//! number. Every selector begins a new epoch in the process, in whichever session; verdicts of older epochs
//! count nothing.

use core::{
    cell::UnsafeCell,
    ffi::c_void,
    hint::spin_loop,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use speed_bump_abi::control_block::Failure;
use speed_bump_selector::{Selector, SelectorError};

use crate::{
    block::Block,
    fault::Fault,
    python::{
        code::Code,
        gil::Python,
        object::{Object, Owned},
    },
    table::{self, Function},
};

/// What is known of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing happens when it is called.
    Unselected,
    /// Its number in the table.
    Function(u32),
}

/// One selector at work.
#[derive(Clone, Copy)]
pub(crate) struct Judge {
    selector: Selector<'static>,
    epoch: u32,
    /// The generation of the block that it is of.
    pub(crate) generation: u32,
}

/// Places used in turn, so many that nobody still reads one when its turn comes again.
struct Judges([UnsafeCell<Option<Judge>>; 8]);

// SAFETY: a place is written by one thread at a time (`ADOPTING`), and only when it is not the current one.
unsafe impl Sync for Judges {}

static JUDGES: Judges = Judges([const { UnsafeCell::new(None) }; 8]);
static CURRENT: AtomicPtr<Option<Judge>> = AtomicPtr::new(ptr::null_mut());
static EPOCH: AtomicU32 = AtomicU32::new(0);
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// What the `co_extra` of unselected code is in the current epoch, and the generation of it: what is asked
/// most.
static UNSELECTED: AtomicU64 = AtomicU64::new(u64::MAX);
static GENERATION: AtomicU32 = AtomicU32::new(0);

const NO_INDEX: isize = -1;
/// Our index into `co_extra`, once there is one.
static INDEX: AtomicIsize = AtomicIsize::new(NO_INDEX);
/// Where `co_extra` lies in a code object, if it is read in place; else 0.
static IN_PLACE: AtomicUsize = AtomicUsize::new(0);
/// Held while a verdict is written in a free-threaded build: two threads must not make room in one code
/// object.
static WRITING: AtomicBool = AtomicBool::new(false);
/// How often it is tried. A forked child may inherit it locked by a thread that it does not have; it finds
/// its verdicts anew each time then, until it gets a session of its own.
const PATIENCE: u32 = 100_000;

impl Judge {
    /// The one that is at work.
    #[inline]
    pub(crate) fn current() -> Option<&'static Self> {
        // SAFETY: null, or a place that is not written as long as it is the current one.
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?.as_ref()
    }

    /// At the beginning of a session: in a forked child, nobody is left who held a lock.
    pub(crate) fn unlock() {
        ADOPTING.store(false, Ordering::Release);
        WRITING.store(false, Ordering::Release);
    }

    /// Puts the block's selector to work. `Ok(None)`: another thread is at it.
    ///
    /// # Errors
    /// [`Failure::BadSelector`].
    pub(crate) fn adopt(block: Block, generation: u32) -> Result<Option<&'static Self>, Fault> {
        if ADOPTING.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let adopted = Self::read(block, generation).map(|judge| {
            let place = JUDGES.0[judge.epoch as usize % JUDGES.0.len()].get();
            // SAFETY: not the current place, as the epoch is one more, and nobody else adopts.
            unsafe { *place = Some(judge) };
            CURRENT.store(place, Ordering::Release);
            UNSELECTED.store(u64::from(judge.epoch) << 32, Ordering::Release);
            GENERATION.store(judge.generation, Ordering::Release);
            Self::current()
        });
        ADOPTING.store(false, Ordering::Release);
        adopted
    }

    fn read(block: Block, generation: u32) -> Result<Self, Fault> {
        let bad = |why| Fault::new(Failure::BadSelector, &[why]);
        let (start, length) = block.selector().ok_or_else(|| bad("it does not lie in the control block"))?;
        // SAFETY: in the block, which stays mapped for ever. The loader does not change a selector in use,
        // and where other bytes come to lie there after the session, the selector gives wrong answers at
        // worst.
        let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), length) };
        let selector = Selector::new(bytes).map_err(|error| {
            bad(match error {
                SelectorError::NotASelector => "it does not begin as a selector does",
                SelectorError::Version { .. } => "it was compiled for another version of the helper",
                SelectorError::Length { .. } => "its length is wrong",
                SelectorError::Checksum => "its checksum is wrong",
                SelectorError::Pattern(_) => "a pattern in it is corrupt",
                SelectorError::Module(_) => "a module in it is corrupt",
                SelectorError::Line(_) => "a line in it is corrupt",
                SelectorError::TargetLines { .. } => "it has more targets than lines",
            })
        })?;
        // 0 is never an epoch: code objects without a verdict have it.
        let epoch = EPOCH.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        Ok(Self { selector, epoch, generation })
    }

    /// The verdict that was found in this epoch, if any.
    #[inline]
    pub(crate) fn known(&self, code: Code<'_>) -> Option<Verdict> {
        let index = INDEX.load(Ordering::Relaxed);
        let in_place = IN_PLACE.load(Ordering::Relaxed);
        if in_place != 0 {
            // SAFETY: a living code object, whose `co_extra` lies there; the GIL is held.
            return self.read_bits(unsafe { ExtraList::read(code.as_ptr(), in_place, index) });
        }
        let mut extra: *mut c_void = ptr::null_mut();
        // SAFETY: a living code object, the GIL is held. It fails for other objects only, and sets nothing
        // then.
        unsafe {
            (code.python().api.get_extra)(code.as_ptr(), index, &raw mut extra);
        }
        self.read_bits(extra as u64)
    }

    #[inline]
    fn read_bits(&self, bits: u64) -> Option<Verdict> {
        if bits >> 32 != u64::from(self.epoch) {
            return None;
        }
        Some(match (bits as u32).checked_sub(1) {
            None => Verdict::Unselected,
            Some(number) => Verdict::Function(number),
        })
    }

    /// Whether a function in this file whose plain name is `name` may be selected.
    pub(crate) fn may_select(&self, file: &str, name: &str) -> bool {
        self.selector.may_select(file, name)
    }

    /// Whether no function of the file can be selected.
    pub(crate) fn selects_nothing_in(&self, file: &str) -> bool {
        self.selector.selects_nothing_in(file)
    }

    /// Finds the verdict and remembers it. Before 3.11 the qualified name must be given, as code objects do
    /// not know it.
    pub(crate) fn judge(&self, block: Block, code: Code<'_>, qualname: Option<&str>) -> Verdict {
        let verdict = self.find(block, code, qualname).map_or(Verdict::Unselected, Verdict::Function);
        self.remember(code, verdict);
        verdict
    }

    fn find(&self, block: Block, code: Code<'_>, qualname: Option<&str>) -> Option<u32> {
        let file = code.file()?;
        let own = if qualname.is_none() { code.qualname() } else { None };
        let qualname = qualname.or_else(|| own.as_ref().map(|name| name.text()))?;
        let target = self.selector.select(file.text(), qualname)?;
        let function = Function {
            target,
            file: file.text().as_bytes(),
            qualname: qualname.as_bytes(),
            line: code.line(),
            generation: self.generation,
        };
        table::intern(block, &function)
    }

    /// Remembers a verdict.
    pub(crate) fn remember(&self, code: Code<'_>, verdict: Verdict) {
        let number = match verdict {
            Verdict::Unselected => 0,
            Verdict::Function(number) => u64::from(number) + 1,
        };
        let bits = u64::from(self.epoch) << 32 | number;
        let python = code.python();
        let lock = python.api.version.free_threaded;
        if lock && !(0..PATIENCE).any(|_| lock_writing()) {
            return;
        }
        // SAFETY: a living code object, the GIL is held, the index is ours.
        let result = unsafe {
            (python.api.set_extra)(code.as_ptr(), INDEX.load(Ordering::Relaxed), bits as *mut c_void)
        };
        if lock {
            WRITING.store(false, Ordering::Release);
        }
        if result != 0 {
            // Without memory it is found again the next time.
            python.clear();
        }
    }
}

/// Whether nothing happens when the code is called, as far as that is known at once.
///
/// # Safety
/// A living code object, whose `co_extra` lies at the offset; the GIL is held.
#[inline]
pub(crate) unsafe fn is_unselected(code: *mut Object, extra_offset: usize, generation: u32) -> bool {
    // SAFETY: as the caller promises.
    let bits = unsafe { ExtraList::read(code, extra_offset, INDEX.load(Ordering::Relaxed)) };
    bits == UNSELECTED.load(Ordering::Relaxed) && generation == GENERATION.load(Ordering::Relaxed)
}

/// `_PyCodeObjectExtra` (Objects/codeobject.c), to which `co_extra` points unless it is null.
#[repr(C)]
struct ExtraList {
    count: isize,
    first: [u64; 0],
}

impl ExtraList {
    /// What has this index; 0 if nothing has.
    ///
    /// # Safety
    /// `co_extra` lies at the offset, and nobody writes it meanwhile.
    #[inline]
    unsafe fn read(code: *mut Object, offset: usize, index: isize) -> u64 {
        // SAFETY: as the caller promises.
        let Some(list) = NonNull::new(unsafe { code.wrapping_byte_add(offset).cast::<*mut Self>().read() })
        else {
            return 0;
        };
        // SAFETY: as the caller promises; the list has `count` items.
        unsafe {
            if !(0..(*list.as_ptr()).count).contains(&index) {
                return 0;
            }
            (&raw const (*list.as_ptr()).first).cast::<u64>().offset(index).read()
        }
    }
}

/// Has verdicts read in place from now on, where the GIL keeps others from writing them meanwhile: asking
/// Python takes as long as the rest of a look.
pub(crate) fn read_in_place(python: Python<'_>) {
    if IN_PLACE.load(Ordering::Relaxed) == 0 && !python.api.version.free_threaded {
        IN_PLACE.store(find_extra(python).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Where `co_extra` lies. `None`: that cannot be found out.
pub(crate) fn find_extra(python: Python<'_>) -> Option<usize> {
    let make = python.api.empty_code?;
    // SAFETY: the arguments are texts; the GIL is held.
    let made = unsafe { Owned::from_new(python, make(c"".as_ptr(), c"".as_ptr(), 1)) };
    let Some(made) = made else {
        python.clear();
        return None;
    };
    // SAFETY: a living code object, which outlives this.
    let code = unsafe { Code::assume(python, NonNull::new(made.as_ptr())?) };
    extra_offset(code, python.api.code.size)
}

/// Where `co_extra` lies, found out on a code object of one's own: it is the one word that setting a value
/// changes. `None`: no such word.
fn extra_offset(code: Code<'_>, object_size: usize) -> Option<usize> {
    /// Large and odd, so that nothing else is likely to look so.
    const VALUE: u64 = 0x5bed_b09b_5bed_b09b;
    let index = INDEX.load(Ordering::Relaxed);
    let start = code.as_ptr().cast::<u64>();
    let set = |value: u64| {
        // SAFETY: a living code object, the GIL is held, the index is ours.
        unsafe { (code.python().api.set_extra)(code.as_ptr(), index, value as *mut c_void) }
    };
    let mut before = [0_u64; 64];
    for (i, word) in before.iter_mut().enumerate().take(object_size / 8) {
        // SAFETY: inside the object.
        *word = unsafe { start.add(i).read() };
    }
    if set(VALUE) != 0 {
        code.python().clear();
        return None;
    }
    let mut changed = before.iter().enumerate().take(object_size / 8).filter(|(i, word)| {
        // SAFETY: inside the object.
        **word != unsafe { start.add(*i).read() }
    });
    let offset = match (changed.next(), changed.next()) {
        (Some((i, 0)), None) => Some(i * 8),
        _ => None,
    };
    // SAFETY: the word has just become a pointer that Python set.
    let found = offset.filter(|offset| unsafe { ExtraList::read(code.as_ptr(), *offset, index) } == VALUE);
    set(0);
    found
}

fn lock_writing() -> bool {
    let locked = !WRITING.swap(true, Ordering::Acquire);
    if !locked {
        spin_loop();
    }
    locked
}

/// Has Python set a place aside in all code objects, once a process.
///
/// # Errors
/// [`Failure::Python`]: none is left.
pub(crate) fn prepare(python: Python<'_>) -> Result<(), Fault> {
    if INDEX.load(Ordering::Relaxed) != NO_INDEX {
        return Ok(());
    }
    // SAFETY: the GIL is held. What is stored is a number, which nothing need free.
    let index = unsafe { (python.api.request_extra)(None) };
    if index < 0 {
        python.clear();
        return Err(Fault::new(Failure::Python, &["every place in code objects (co_extra) is taken"]));
    }
    INDEX.store(index, Ordering::Relaxed);
    Ok(())
}
