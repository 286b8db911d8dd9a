//! The control block in this process: at addresses that stay reserved for ever.
//!
//! A callback may still read the block of a session that is over, or the block of the process that forked
//! this one. So every session maps its block over the same addresses, and between sessions zeroed memory is
//! mapped there: a late reader finds [`State::Fresh`], and never faults.
//!
//! We reserve addresses as needed, since a process may have a limit on them. A block that is larger than
//! those before gets new addresses, at least twice as many; the old ones stay reserved.
//!
//! We read offsets and lengths once, when the block is mapped, and check them against its size. Later changes
//! to them have no effect, except for the selector's, which are checked again for each generation.

mod callers;
mod delays;
mod times;

pub(crate) use callers::BlockCallers;
pub(crate) use delays::BlockDelays;
pub(crate) use times::BlockTimes;

use core::{
    cell::UnsafeCell,
    mem::{align_of, size_of},
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};

use speed_bump_abi::control_block::{
    Branch, ControlBlock, Delays, FAILURE_TEXT_BYTES, Failure, FunctionRecord, HelperCommand, LARGEST_BLOCK,
    MAGIC, State, StubForm, VERSION,
};

use self::{callers::CallersLayout, delays::DelayLayout, times::TimesLayout};
use crate::{
    fault::{Fault, not_mapped},
    life, sys,
};

/// The fewest bytes that we reserve.
const MIN_RESERVED: usize = 1 << 20;

static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// How many bytes are reserved there.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
/// How many of the reserved bytes have ever been mapped to a block.
static EXTENT: AtomicUsize = AtomicUsize::new(0);

/// The checked offsets of a block's parts.
#[derive(Clone, Copy, Debug)]
struct Layout {
    base: NonNull<u8>,
    size: usize,
    functions: usize,
    functions_capacity: u32,
    branches: usize,
    index: usize,
    index_slots: u32,
    names: usize,
    names_capacity: usize,
    stub_form: StubForm,
    number: u32,
    /// The part for delays; absent if the helper does not delay.
    delays: Option<DelayLayout>,
    /// The part for times; absent if the helper does not time calls.
    times: Option<TimesLayout>,
    /// The part for callers; absent if the helper does not record them.
    callers: Option<CallersLayout>,
}

/// Two layouts, used in turn: a thread that still reads one while the next session starts finds it intact.
struct Layouts([UnsafeCell<Option<Layout>>; 2]);

// SAFETY: a layout is written only while `CURRENT` does not point to it.
unsafe impl Sync for Layouts {}

static LAYOUTS: Layouts = Layouts([UnsafeCell::new(None), UnsafeCell::new(None)]);
static CURRENT: AtomicPtr<Option<Layout>> = AtomicPtr::new(ptr::null_mut());

/// A session's block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block(&'static Layout);

impl Block {
    /// The block that was mapped last, if any.
    pub(crate) fn current() -> Option<Self> {
        // SAFETY: null, or a layout that is not written while it is the current one.
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }?.as_ref().map(Self)
    }

    /// Maps a new block over the last one.
    ///
    /// # Errors
    /// [`Failure::BadBlock`]: not a block, one of another version, or one that does not fit;
    /// [`Failure::NoMemory`], [`Failure::NotMapped`].
    pub(crate) fn map(fd: i32) -> Result<Self, Failure> {
        let file_size = sys::file_size(fd).map_err(|_| Failure::BadBlock)?;
        let size = usize::try_from(file_size).map_err(|_| Failure::BadBlock)?;
        if !(size_of::<ControlBlock>()..=LARGEST_BLOCK).contains(&size) {
            return Err(Failure::BadBlock);
        }
        let base = base(size).map_err(not_mapped)?;
        let extent = EXTENT.load(Ordering::Acquire);
        // SAFETY: the addresses are reserved for blocks alone; readers accept any content.
        unsafe {
            sys::map_file_over(base, size, fd).map_err(not_mapped)?;
        }
        EXTENT.fetch_max(round_up(size), Ordering::AcqRel);
        if extent > round_up(size) {
            // SAFETY: as above, and inside the reservation; `EXTENT` never exceeds it.
            let rest = unsafe { base.add(round_up(size)) };
            // SAFETY: as above.
            unsafe { sys::map_zeroes_over(rest, extent - round_up(size)).map_err(not_mapped)? };
        }
        let Some(layout) = Layout::read(base, size) else {
            Self::forget(base);
            return Err(Failure::BadBlock);
        };
        let current = CURRENT.load(Ordering::Acquire);
        let place =
            if ptr::eq(current, LAYOUTS.0[0].get()) { LAYOUTS.0[1].get() } else { LAYOUTS.0[0].get() };
        // SAFETY: not the current layout, and only the owner of the process's claim gets here.
        unsafe { *place = Some(layout) };
        CURRENT.store(place, Ordering::Release);
        life::block_is_mapped();
        Self::current().ok_or(Failure::BadBlock)
    }

    /// Ends the session: maps zeroed memory in the block's place, then calls `between`, and then publishes
    /// the state. So a loader that reads the state can start a new session at once.
    pub(crate) fn leave(self, state: State, between: impl FnOnce()) {
        let alias = sys::alias(self.0.base, sys::PAGE);
        Self::forget(self.0.base);
        between();
        let Ok(alias) = alias else { return };
        // SAFETY: the beginning of the block that was mapped until now; only this function unmaps it.
        let head = unsafe { alias.cast::<ControlBlock>().as_ref() };
        head.state.store(state as u32, Ordering::Release);
        sys::wake(&head.state);
        // SAFETY: `head` is no longer used.
        unsafe { sys::free(alias, sys::PAGE) };
    }

    fn forget(base: NonNull<u8>) {
        // SAFETY: the addresses are reserved for blocks alone; readers accept zeroes. If this fails, the old
        // block stays readable.
        let _ = unsafe { sys::map_zeroes_over(base, EXTENT.load(Ordering::Acquire)) };
    }

    /// The head; the loader may change it at any time.
    pub(crate) fn head(self) -> &'static ControlBlock {
        // SAFETY: the mapping is at least this long, aligned to pages, and never unmapped, and all fields are
        // atomics.
        unsafe { self.0.base.cast().as_ref() }
    }

    /// The loader's command. [`Block::waits_for_python`] tells when it starts to apply.
    pub(crate) fn command(self) -> HelperCommand {
        match self.head().command.load(Ordering::Acquire) {
            run if run == HelperCommand::Run as u32 || run == HelperCommand::RunFromStart as u32 => {
                HelperCommand::Run
            }
            survey if survey == HelperCommand::Survey as u32 => HelperCommand::Survey,
            signals if signals == HelperCommand::HandleSignals as u32 => HelperCommand::HandleSignals,
            // No loader of this version writes another one.
            _ => HelperCommand::Leave,
        }
    }

    /// Whether the session starts when Python does.
    pub(crate) fn waits_for_python(self) -> bool {
        self.head().command.load(Ordering::Acquire) == HelperCommand::RunFromStart as u32
    }

    /// The number that the helper passes to the stub.
    pub(crate) fn number(self) -> u32 {
        self.0.number
    }

    /// Which stub to call.
    pub(crate) fn stub_form(self) -> StubForm {
        self.0.stub_form
    }

    /// Whether a session runs or starts.
    #[inline]
    pub(crate) fn has_session(self) -> bool {
        let state = self.head().state.load(Ordering::Relaxed);
        state == State::Active as u32 || state == State::Waiting as u32
    }

    /// Publishes the helper's state.
    pub(crate) fn set_state(self, state: State) {
        self.head().state.store(state as u32, Ordering::Release);
        sys::wake(&self.head().state);
    }

    /// Adds notices for the user.
    pub(crate) fn notice(self, bits: u32) {
        if bits & !self.head().notices.load(Ordering::Relaxed) != 0 {
            self.head().notices.fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// Writes why the helper fails, before the state is set to failed.
    pub(crate) fn describe(self, fault: &Fault) {
        let text: &[u8; FAILURE_TEXT_BYTES] = fault.text.padded();
        for (place, byte) in self.head().failure_text.0.iter().zip(text) {
            place.store(*byte, Ordering::Relaxed);
        }
        self.head().failure.store(fault.failure as u32, Ordering::Release);
    }

    /// The start and the length of the current selector.
    pub(crate) fn selector(self) -> Option<(NonNull<u8>, usize)> {
        let offset = usize::try_from(self.head().selector_offset.load(Ordering::Acquire)).ok()?;
        let length = usize::try_from(self.head().selector_length.load(Ordering::Acquire)).ok()?;
        if !fits(self.0.size, offset, length, 1) {
            return None;
        }
        // SAFETY: inside the block.
        Some((unsafe { self.0.base.add(offset) }, length))
    }

    /// The number of records that fit.
    pub(crate) fn capacity(self) -> u32 {
        self.0.functions_capacity
    }

    /// A record by its number.
    pub(crate) fn record(self, number: u32) -> Option<&'static FunctionRecord> {
        // SAFETY: that many fit (`Layout::read`), and all fields are atomics.
        unsafe { self.row(self.0.functions, number, self.0.functions_capacity) }
    }

    /// The calls that a record is for, by the number of the record.
    pub(crate) fn branch(self, number: u32) -> Option<&'static Branch> {
        // SAFETY: that many fit (`Layout::read`), and all fields are atomics.
        unsafe { self.row(self.0.branches, number, self.0.functions_capacity) }
    }

    /// The row with this number, of `capacity` rows from an offset on; `None` if there is no such row.
    ///
    /// # Safety
    /// That many rows are in the block, aligned; this was checked when it was mapped. All fields are atomics.
    #[inline(always)]
    unsafe fn row<T>(self, first: usize, number: u32, capacity: u32) -> Option<&'static T> {
        let offset = first + number as usize * size_of::<T>();
        // SAFETY: as the caller promises.
        (number < capacity).then(|| unsafe { self.0.base.add(offset).cast().as_ref() })
    }

    /// Whether this is the block that was mapped last.
    pub(crate) fn is_current(self) -> bool {
        Self::current().is_some_and(|current| ptr::eq(current.0, self.0))
    }

    /// The number of slots of the index: a power of two.
    pub(crate) fn slots(self) -> u32 {
        self.0.index_slots
    }

    /// A slot of the index; the number wraps around.
    pub(crate) fn slot(self, number: u32) -> &'static AtomicU32 {
        let number = number & (self.0.index_slots - 1);
        let offset = self.0.index + number as usize * size_of::<AtomicU32>();
        // SAFETY: inside the block (checked when it was mapped), aligned, an atomic.
        unsafe { self.0.base.add(offset).cast().as_ref() }
    }

    /// The capacity for names, in bytes.
    pub(crate) fn names_capacity(self) -> usize {
        self.0.names_capacity
    }

    /// The address of a name, for a probe that reads it. It is inside the names for any offset.
    #[inline]
    pub(crate) fn name_address(self, offset: u32) -> *const u8 {
        let offset = (offset as usize).min(self.0.names_capacity);
        self.0.base.as_ptr().wrapping_add(self.0.names + offset)
    }

    /// Whether the bytes at this offset are `expected`; false outside the names. Another process that maps
    /// the block may change them at any time, so they are only compared.
    pub(crate) fn name_is(self, offset: u32, length: u32, expected: &[u8]) -> bool {
        let (offset, length) = (offset as usize, length as usize);
        length == expected.len()
            && fits(self.0.names_capacity, offset, length, 1)
            && expected.iter().enumerate().all(|(i, byte)| {
                // SAFETY: inside the names; volatile, as others may write.
                unsafe { self.0.base.add(self.0.names + offset + i).read_volatile() == *byte }
            })
    }

    /// Writes a name and its NUL to the place that was allocated for it. `false`: the place is not in the
    /// names.
    pub(crate) fn write_name(self, offset: usize, name: &[u8]) -> bool {
        if !fits(self.0.names_capacity, offset, name.len() + 1, 1) {
            return false;
        }
        let start = self.0.base.as_ptr().wrapping_add(self.0.names + offset);
        // SAFETY: inside the names, and no other writer was given this place.
        unsafe {
            ptr::copy_nonoverlapping(name.as_ptr(), start, name.len());
            start.add(name.len()).write(0);
        }
        true
    }
}

impl Layout {
    fn read(base: NonNull<u8>, file_size: usize) -> Option<Self> {
        // SAFETY: mapped and at least so long; all fields are atomics.
        let head: &ControlBlock = unsafe { base.cast().as_ref() };
        let long = |value: u64| usize::try_from(value).ok();
        let size = long(head.size.load(Ordering::Acquire))?;
        let layout = Self {
            base,
            size,
            functions: long(head.functions_offset.load(Ordering::Acquire))?,
            functions_capacity: head.functions_capacity.load(Ordering::Acquire),
            branches: long(head.branches_offset.load(Ordering::Acquire))?,
            index: long(head.index_offset.load(Ordering::Acquire))?,
            index_slots: head.index_slots.load(Ordering::Acquire),
            names: long(head.names_offset.load(Ordering::Acquire))?,
            names_capacity: long(head.names_capacity.load(Ordering::Acquire))?,
            delays: match head.delays.load(Ordering::Acquire) {
                at_stub if at_stub == Delays::AtStub as u32 => None,
                in_place if in_place == Delays::InPlace as u32 => Some(DelayLayout::read(head)?),
                _ => return None,
            },
            times: TimesLayout::read(head, size, head.functions_capacity.load(Ordering::Acquire)).ok()?,
            callers: CallersLayout::read(head, size).ok()?,
            stub_form: match head.stub_form.load(Ordering::Acquire) {
                nop if nop == StubForm::Nop as u32 => StubForm::Nop,
                nop5 if nop5 == StubForm::Nop5 as u32 => StubForm::Nop5,
                _ => return None,
            },
            number: head.number.load(Ordering::Acquire),
        };
        let functions = (layout.functions_capacity as usize).checked_mul(size_of::<FunctionRecord>())?;
        let branches = (layout.functions_capacity as usize).checked_mul(size_of::<Branch>())?;
        let index = (layout.index_slots as usize).checked_mul(size_of::<AtomicU32>())?;
        let head_matches = head.magic.load(Ordering::Acquire) == MAGIC
            && head.version.load(Ordering::Acquire) == VERSION
            && (size_of::<ControlBlock>()..=file_size).contains(&size);
        let index_suffices = layout.index_slots.is_power_of_two()
            && layout.index_slots as usize >= 2 * layout.functions_capacity as usize;
        let parts_fit = fits(size, layout.functions, functions, align_of::<FunctionRecord>())
            && fits(size, layout.branches, branches, align_of::<Branch>())
            && fits(size, layout.index, index, align_of::<AtomicU32>())
            && fits(size, layout.names, layout.names_capacity, 1)
            && u32::try_from(layout.names_capacity).is_ok()
            && layout.delays.is_none_or(|delays| delays.fits(size, layout.functions_capacity));
        (head_matches && index_suffices && parts_fit).then_some(layout)
    }
}

/// Whether a range lies in the block, aligned, for any numbers.
fn fits(whole: usize, offset: usize, length: usize, alignment: usize) -> bool {
    offset.is_multiple_of(alignment) && offset.checked_add(length).is_some_and(|end| end <= whole)
}

fn round_up(size: usize) -> usize {
    size.next_multiple_of(sys::PAGE)
}

/// The address to map a block of this size at. Only the owner of the process's claim calls this.
fn base(size: usize) -> Result<NonNull<u8>, sys::Errno> {
    if let Some(base) = NonNull::new(BASE.load(Ordering::Acquire))
        && size <= RESERVED.load(Ordering::Acquire)
    {
        return Ok(base);
    }
    let length = size.next_power_of_two().max(MIN_RESERVED);
    let base = sys::reserve(length)?;
    EXTENT.store(0, Ordering::Release);
    RESERVED.store(length, Ordering::Release);
    BASE.store(base.as_ptr(), Ordering::Release);
    Ok(base)
}
