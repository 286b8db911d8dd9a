//! Decides which functions are selected and which call them, and remembers the verdicts.
//!
//! The verdict on a code object is stored in its `co_extra`, so that it vanishes with the code object: a
//! reused address has none. It is a number, not memory: the epoch in which it was found, and the function's
//! number. Functions that call selected ones get a number too, if callers are recorded. Every selector starts
//! a new epoch in the process, also across sessions; verdicts of older epochs do not count.
//!
//! Where targets are for some callers alone (`caller=`), a function has a number for each of them
//! ([`branches`]), and code objects have a second value that says which callers of targets they are.

pub(crate) mod branches;
mod extra;

use core::{
    cell::UnsafeCell,
    ptr, slice,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
};

use speed_bump_abi::{callers::NO_TARGET, control_block::Failure};
use speed_bump_selector::{Candidate, Selector, SelectorError};

use self::extra::Place;
pub(crate) use self::extra::{find as find_extra, prepare, prepare_here, read_in_place};
use crate::{
    block::Block,
    fault::Fault,
    python::{code::Code, object::Object},
    table::{self, Function},
};

/// The verdict on a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing happens when it is called.
    Unselected,
    /// Selected: its number in the table.
    Function(u32),
    /// Selected by targets that are for some callers alone: the first of its numbers.
    ByCaller(u32),
    /// Not selected, but starts modules, so its calls must be visible.
    Loader,
}

/// One selector in use.
#[derive(Clone, Copy)]
pub(crate) struct Judge {
    selector: Selector<'static>,
    epoch: u32,
    /// The generation of the block that it belongs to.
    pub(crate) generation: u32,
}

/// Judges used in turn: enough that no thread still reads one when its turn comes again.
struct Judges([UnsafeCell<Option<Judge>>; 8]);

// SAFETY: one thread at a time writes a judge (`ADOPTING`), and only if it is not the current one.
unsafe impl Sync for Judges {}

static JUDGES: Judges = Judges([const { UnsafeCell::new(None) }; 8]);
static CURRENT: AtomicPtr<Option<Judge>> = AtomicPtr::new(ptr::null_mut());
static EPOCH: AtomicU32 = AtomicU32::new(0);
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// The `co_extra` of unselected code in the current epoch, and its generation: for the most frequent check.
static UNSELECTED: AtomicU64 = AtomicU64::new(u64::MAX);
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A bit in the low half of the value in `co_extra`: the code belongs to a function that is not selected and
/// calls selected ones. The other bits are the number of the function in the table.
const CALLS_SELECTED: u32 = 1 << 31;
/// The low half of that value for [`Verdict::Loader`]: larger than any number in the table.
const LOADER: u32 = CALLS_SELECTED - 1;
/// The bit of that value for [`Verdict::ByCaller`]: larger than any number in the table, whose bits are below
/// it.
const BY_CALLER: u32 = 1 << 30;
/// The files and the name of functions that start modules: each `exec_module` of importlib (3.8 to 3.15).
/// They run when the module is in `sys.modules`. Two of them start modules written in C.
const LOADERS: (&str, &str) = ("<frozen importlib._bootstrap", "exec_module");

impl Judge {
    /// The judge in use.
    #[inline]
    pub(crate) fn current() -> Option<&'static Self> {
        // SAFETY: null, or a judge that is not written while it is the current one.
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?.as_ref()
    }

    /// A number that no other selector of the process has.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Must be called when a session starts: in a forked child, the holder of a lock may not exist.
    pub(crate) fn unlock() {
        ADOPTING.store(false, Ordering::Release);
        extra::unlock();
    }

    /// Puts the block's selector to use. `Ok(None)`: another thread is doing so.
    ///
    /// # Errors
    /// [`Failure::BadSelector`].
    pub(crate) fn adopt(block: Block, generation: u32) -> Result<Option<&'static Self>, Fault> {
        if ADOPTING.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let adopted = Self::read(block, generation).map(|judge| {
            let place = JUDGES.0[judge.epoch as usize % JUDGES.0.len()].get();
            // SAFETY: not the current one, as the epoch is one more, and no other thread adopts.
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
        // SAFETY: in the block, which stays mapped for ever. The loader does not change a selector in use. If
        // other bytes replace it after the session, the selector at worst gives wrong answers.
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
        // 0 is never an epoch: it means that a code object has no verdict.
        let epoch = EPOCH.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        Ok(Self { selector, epoch, generation })
    }

    /// The verdict from this epoch, if any.
    #[inline]
    pub(crate) fn known(&self, code: Code<'_>) -> Option<Verdict> {
        Some(match self.noted(code)? {
            number @ 1..BY_CALLER => Verdict::Function(number - 1),
            0 | CALLS_SELECTED.. => Verdict::Unselected,
            LOADER => Verdict::Loader,
            first => Verdict::ByCaller(first & !BY_CALLER),
        })
    }

    /// The number of a calling frame's function, if it has one.
    #[inline]
    pub(crate) fn known_caller(&self, code: Code<'_>) -> Option<u32> {
        match self.noted(code)? {
            0 | LOADER => None,
            number @ CALLS_SELECTED.. => Some(number & !CALLS_SELECTED),
            first @ BY_CALLER.. => Some(first & !BY_CALLER),
            number => Some(number - 1),
        }
    }

    /// The low half of the value in `co_extra`, if it is from this epoch.
    #[inline]
    fn noted(&self, code: Code<'_>) -> Option<u32> {
        self.noted_at(Place::Verdict, code)
    }

    #[inline]
    fn noted_at(&self, place: Place, code: Code<'_>) -> Option<u32> {
        let bits = extra::read(place, code);
        (bits >> 32 == u64::from(self.epoch)).then_some(bits as u32)
    }

    /// Gives a calling frame's function a number, even if it is not selected. `None`: its names are not
    /// certain, or there is no room for them, which is counted. May clear the exception that is set.
    #[cold]
    pub(crate) fn name_caller(&self, block: Block, code: Code<'_>) -> Option<u32> {
        let number = self.number_of_caller(block, code);
        if number.is_none() {
            block.leave_out_caller();
        }
        number
    }

    fn number_of_caller(&self, block: Block, code: Code<'_>) -> Option<u32> {
        let (file, name) = (code.file()?, code.name()?);
        let verdict = self.known(code).or_else(|| {
            if code.knows_its_qualname() {
                return Some(self.judge(block, code, None));
            }
            if !code.is_function() && name.text() == "<module>" {
                return Some(self.judge(block, code, Some(name.text())));
            }
            // Its qualified name may select it: that will be decided when it is called.
            (!self.may_concern(file.text(), name.text())).then_some(Verdict::Unselected)
        });
        if let Verdict::Function(number) | Verdict::ByCaller(number) = verdict? {
            return Some(number);
        }
        let own = code.qualname();
        let qualname = own.as_ref().map_or(name.text(), |qualname| qualname.text());
        if !table::has_room_for_caller(block, [file.text(), qualname]) {
            return None;
        }
        let function = Function {
            target: NO_TARGET,
            file: file.text().as_bytes(),
            qualname: qualname.as_bytes(),
            line: code.line(),
            generation: self.generation,
        };
        let number = table::intern(block, &function).filter(|number| *number < LOADER)?;
        self.note(code, CALLS_SELECTED | number);
        Some(number)
    }

    /// Whether a function in this file with the plain name `name` may be selected, or be a caller of targets.
    pub(crate) fn may_concern(&self, file: &str, name: &str) -> bool {
        self.selector.may_concern(file, name)
    }

    /// Whether no function of the file can be selected, or be a caller of targets.
    pub(crate) fn concerns_nothing_in(&self, file: &str) -> bool {
        self.selector.concerns_nothing_in(file)
    }

    /// Decides, and remembers the verdict. Before 3.11 the caller must give the qualified name, as code
    /// objects do not hold it.
    pub(crate) fn judge(&self, block: Block, code: Code<'_>, qualname: Option<&str>) -> Verdict {
        let verdict = self.find(block, code, qualname).unwrap_or_else(|| of_unselected(code));
        self.remember(code, verdict);
        verdict
    }

    fn find(&self, block: Block, code: Code<'_>, qualname: Option<&str>) -> Option<Verdict> {
        let file = code.file()?;
        let own = if qualname.is_none() { code.qualname() } else { None };
        let qualname = qualname.or_else(|| own.as_ref().map(|name| name.text()))?;
        let module = self.selector.in_module(file.text());
        if self.selector.has_callers() {
            self.note_as_caller(block, code, module.as_caller(qualname));
        }
        let function = |target| Function {
            target,
            file: file.text().as_bytes(),
            qualname: qualname.as_bytes(),
            line: code.line(),
            generation: self.generation,
        };
        let mut candidates = module.candidates(qualname);
        let first = candidates.next()?;
        let number = table::intern(block, &function(first.target))?;
        if first.caller == 0 {
            return Some(Verdict::Function(number));
        }
        let mut callers = 0_u64;
        // Of several targets for one caller, the first counts.
        let is_first = |candidate: &Candidate| {
            let bit = 1 << (candidate.caller & 63);
            let is_new = callers & bit == 0;
            callers |= bit;
            is_new
        };
        let others = core::iter::once(first).chain(candidates).filter(is_first).skip(1);
        let others = others.map(|other| (table::intern(block, &function(other.target)), other.caller));
        branches::link(block, (number, first.caller), others);
        Some(Verdict::ByCaller(number))
    }

    /// Remembers a verdict.
    pub(crate) fn remember(&self, code: Code<'_>, verdict: Verdict) {
        self.note(
            code,
            match verdict {
                Verdict::Unselected => 0,
                Verdict::Function(number) => number + 1,
                Verdict::ByCaller(first) => BY_CALLER | first,
                Verdict::Loader => LOADER,
            },
        );
    }

    fn note(&self, code: Code<'_>, low: u32) {
        self.note_at(Place::Verdict, code, low);
    }

    fn note_at(&self, place: Place, code: Code<'_>, low: u32) {
        extra::write(place, code, u64::from(self.epoch) << 32 | u64::from(low));
    }
}

/// The verdict on code that is not selected.
pub(crate) fn of_unselected(code: Code<'_>) -> Verdict {
    let is_loader = code.name().is_some_and(|name| name.text() == LOADERS.1)
        && code.file().is_some_and(|file| file.text().starts_with(LOADERS.0));
    if is_loader { Verdict::Loader } else { Verdict::Unselected }
}

/// Whether the code is already known to be unselected.
///
/// # Safety
/// A living code object, whose `co_extra` lies at the offset; the GIL is held.
#[inline]
pub(crate) unsafe fn is_unselected(code: *mut Object, extra_offset: usize, generation: u32) -> bool {
    // SAFETY: as the caller promises.
    let bits = unsafe { extra::read_at(Place::Verdict, code, extra_offset) };
    let beyond = bits.wrapping_sub(UNSELECTED.load(Ordering::Relaxed));
    let is_unselected = beyond == 0 || beyond >> 31 == 1;
    is_unselected && generation == GENERATION.load(Ordering::Relaxed)
}
