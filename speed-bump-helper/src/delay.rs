//! The engine `helper`: counts calls, decides on delays and spins, here and without a trap.
//!
//! A delay starts when the helper hears of the call, and is shortened by the time of the round trip from the
//! caller to here and back. So the caller loses the requested time.

use core::{
    hint,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use speed_bump_abi::{
    Control, FunctionEntry, Gaps, Histogram, NotDelayed, Policy,
    control_block::{Calls, Clock, Turns},
    policy::decide,
};

use crate::{
    arch,
    block::{Block, BlockDelays},
    buckets, clock,
    cold::{self, ReportedBy},
    life,
    locks::Lock,
    python::api::Api,
    stub::Ticks,
    sys,
};

/// After this long a spinning thread gives up the interpreter's lock, as Python code does when another thread
/// asks for it (`sys.getswitchinterval`, 5 ms unless the program changes it), in ns.
const SWITCH_INTERVAL_NS: u64 = 5_000_000;
/// In builds without the lock, after this long a spinning thread lets others stop it, in ns: they may wait
/// until all threads stop, for a garbage collection for example. Python code stops between two instructions.
const STOPS_INTERVAL_NS: u64 = 50_000;
/// How long the thread gives the lock up, in ns: long enough for a waiting thread to wake up. Otherwise this
/// thread would take the lock back each time.
const GIVEN_UP_NS: u32 = 100_000;
/// With less than this left of a spin, in ns, the thread keeps the lock: taking it back may take a little
/// longer.
const NOT_GIVEN_UP_NS: u64 = 1_000_000;
/// With less than this left of a spin, in ns, the thread does not execute the processor's pause instruction,
/// which takes long.
const LAST_NS: u64 = 500;
/// The longest time for the round trip that we accept. A longer one was interrupted.
const LONGEST_ROUND_TRIP_NS: u64 = 1_000;

/// The time that a call loses besides the part that can be measured without calling Python code, in ns:
/// Python's own steps to the helper, and counting a finished delay. The minimum on 3.8 to 3.15, from calls
/// with a delay of 2 us: 24 to 100.
const UNSEEN_NS: u64 = 25;

/// The time of the round trip, in ticks of the processor's counter. 0: not measured.
static ROUND_TRIP: AtomicUsize = AtomicUsize::new(0);

/// For this many more calls, the helper reads the counter first of all, because a delay starts at that time.
/// Reading the counter takes as long as all the rest of a call without a delay.
static AT_ONCE: AtomicU32 = AtomicU32::new(AT_ONCE_AFTER_DELAY);
/// After this many calls in a row without a delay, we expect that the next one has no delay either.
const AT_ONCE_AFTER_DELAY: u32 = 64;

/// Times of windows that a reading of the clock has already passed, in units of the clock.
struct Known {
    /// The start of a window that has started.
    begun: AtomicU64,
    /// The end of a window that has ended.
    ended: AtomicU64,
}

static KNOWN: Known = Known { begun: AtomicU64::new(0), ended: AtomicU64::new(0) };

/// How often the round trip is measured; the smallest result counts.
const MEASUREMENTS: u32 = 64;

/// Starts a session: forgets all about its calls except how Python reports them.
pub(crate) fn begin(reported_by: ReportedBy) {
    cold::begin(reported_by);
    buckets::begin();
    if Api::found().is_some_and(|api| !api.version.free_threaded) {
        life::count_alone();
    }
    AT_ONCE.store(AT_ONCE_AFTER_DELAY, Ordering::Relaxed);
    KNOWN.begun.store(0, Ordering::Relaxed);
    KNOWN.ended.store(0, Ordering::Relaxed);
}

/// Measures the round trip from the caller to here and back; `walk` makes it once.
pub(crate) fn measure_round_trip(block: Block, mut walk: impl FnMut()) {
    let Some(delays) = block.delays() else { return };
    let mut least = u64::MAX;
    for _ in 0..MEASUREMENTS {
        let began = arch::ticks();
        walk();
        least = least.min(arch::ticks().wrapping_sub(began));
    }
    // Each reading of the counter takes time itself; the round trip contains one reading.
    let mut reading = u64::MAX;
    for _ in 0..MEASUREMENTS {
        let began = arch::ticks();
        reading = reading.min(arch::ticks().wrapping_sub(began));
    }
    let round_trip = least.saturating_sub(reading).saturating_add(delays.units(UNSEEN_NS));
    // If the clock is not the counter, the measurement does not apply.
    let is_known = delays.clock() == Clock::Counter && round_trip <= delays.units(LONGEST_ROUND_TRIP_NS);
    ROUND_TRIP.store(if is_known { usize::try_from(round_trip).unwrap_or(0) } else { 0 }, Ordering::Relaxed);
    block.head().floor.store(u32::try_from(round_trip).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// Whether to read the counter as soon as the helper hears of a call.
#[inline]
pub(crate) fn is_likely() -> bool {
    AT_ONCE.load(Ordering::Relaxed) != 0
}

/// Counts a call of a function, and delays it if its policy says so. `began`: when the helper heard of it, if
/// it read the counter. Returns whether it delayed.
#[inline]
pub(crate) fn visit(
    block: Block,
    delays: BlockDelays,
    function: u32,
    target: u32,
    began: Option<Ticks>,
    lock: Lock,
) -> bool {
    let alone = lock == Lock::Main && life::counts_alone();
    if !alone && !delays.in_children() && !life::is_claimed() {
        return false;
    }
    let Some(calls) = delays.calls(function) else { return false };
    if alone {
        count_on(&calls.own_calls);
    } else {
        calls.calls.fetch_add(1, Ordering::Relaxed);
    }
    calls.thread.store(arch::thread_pointer() as u64, Ordering::Relaxed);
    let number = FunctionEntry::from_word(calls.entry.load(Ordering::Relaxed)).policy_or(target);
    let heard = || match (delays.clock(), began) {
        (Clock::Counter, Some(began)) => began.count(),
        (Clock::Counter, None) => arch::ticks(),
        (Clock::Monotonic, _) => clock::now_ns(),
    };
    let decided = decide(
        number,
        || is_open(&control(block), &KNOWN, heard),
        || in_force(block, delays, number),
        || delays.turns(number).map(|turns| next(turns, alone)),
        |delay_ns| {
            let bound = control(block).bound;
            !bound.is_set() || buckets::have_room(bound, delays.units(delay_ns), heard())
        },
    );
    match decided {
        Ok(policy) => {
            delay(block, delays, function, calls, policy.delay_ns, heard());
            true
        }
        Err(why) => {
            if why == Some(NotDelayed::Bound) {
                calls.bounded.fetch_add(1, Ordering::Relaxed);
            }
            let at_once = AT_ONCE.load(Ordering::Relaxed);
            if at_once != 0 {
                AT_ONCE.store(at_once - 1, Ordering::Relaxed);
            }
            false
        }
    }
}

/// Adds one without an atomic operation, for a counter with a single writer. Returns the count before.
#[inline]
fn count_on(count: &AtomicU64) -> u64 {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}

/// The number of turns before this one, here and in forked children. A call there at the same time may get
/// the same number; then the next number is skipped.
#[inline]
fn next(turns: &Turns, alone: bool) -> u64 {
    if alone {
        count_on(&turns.own).wrapping_add(turns.shared.load(Ordering::Relaxed))
    } else {
        turns.shared.fetch_add(1, Ordering::Relaxed).wrapping_add(turns.own.load(Ordering::Relaxed))
    }
}

/// Whether the window is open. Does not read the clock if the answer is known without it. In that case we
/// check before a delay whether the doses have expired.
#[inline]
fn is_open(control: &Control, known: &Known, heard: impl FnOnce() -> u64) -> bool {
    // The window is stopped, over, or starts only after the doses expire.
    let is_closed = control.stop != 0
        || control.start_ns >= control.expires_ns
        || control.end_ns == known.ended.load(Ordering::Relaxed);
    if is_closed {
        return false;
    }
    // The window does not end before the doses expire.
    if control.start_ns == known.begun.load(Ordering::Relaxed) && control.end_ns >= control.expires_ns {
        return true;
    }
    let now = heard();
    let is_open = control.is_open(now);
    if is_open {
        known.begun.store(control.start_ns, Ordering::Relaxed);
    } else if now >= control.end_ns {
        known.ended.store(control.end_ns, Ordering::Relaxed);
    }
    is_open
}

/// The block's window, at this moment.
#[inline]
fn control(block: Block) -> Control {
    let words = &block.head().control;
    Control::from_words(words.each_ref().map(|word| word.load(Ordering::Relaxed)))
}

/// The row in force. If the loader switches rows meanwhile, this returns the new row.
#[inline]
fn in_force(block: Block, delays: BlockDelays, number: u32) -> Option<Policy> {
    let generation = &block.head().control[Control::GENERATION];
    let before = generation.load(Ordering::Acquire);
    let policy = delays.policy(number, before)?;
    let after = generation.load(Ordering::Acquire);
    if before == after { Some(policy) } else { delays.policy(number, after) }
}

#[inline(never)]
fn delay(block: Block, delays: BlockDelays, function: u32, calls: &Calls, delay_ns: u64, began: u64) {
    AT_ONCE.store(AT_ONCE_AFTER_DELAY, Ordering::Relaxed);
    if began >= control(block).expires_ns {
        return;
    }
    let round_trip = (ROUND_TRIP.load(Ordering::Relaxed) as u64).saturating_add(cold::lost(began));
    let requested = delays.units(delay_ns);
    let interrupted_above = requested.saturating_add(delays.units(Histogram::interrupted_above_ns(delay_ns)));
    let Spun { units: spun, locked_out } = spin(block, delays, requested.saturating_sub(round_trip), began);
    cold::ended(began.wrapping_add(spun));
    // A thread that gave up the interpreter's lock may come back in another session.
    if block.is_current() {
        calls.delayed.fetch_add(1, Ordering::Relaxed);
        calls.requested_ns.fetch_add(delay_ns, Ordering::Relaxed);
        let delivered = spun.wrapping_add(round_trip);
        calls.delivered.fetch_add(delivered, Ordering::Relaxed);
        let Some(counts) = delays.delay_counts(function) else { return };
        let count = |position: usize| counts.get(position).map(|count| count.fetch_add(1, Ordering::Relaxed));
        count(Histogram::position(delivered, requested));
        if delivered > interrupted_above {
            count(Histogram::INTERRUPTED);
            if locked_out {
                count(Histogram::LOCKED_OUT);
            }
        }
    }
}

/// A finished spin.
struct Spun {
    /// How long it was.
    units: u64,
    /// Whether it ended while the thread waited for the interpreter's lock.
    locked_out: bool,
}

/// Spins until the thread has spent `units` since `began`, or delays are over. Time in which it was preempted
/// or had given up the lock does not count: a slower function would still have all its work to do.
fn spin(block: Block, delays: BlockDelays, units: u64, began: u64) -> Spun {
    let now = || match delays.clock() {
        Clock::Counter => arch::ticks(),
        Clock::Monotonic => clock::now_ns(),
    };
    let last = delays.units(LAST_NS);
    let pause = Pause::new(delays);
    let mut give_up_after = pause.interval;
    let mut locked_out = false;
    let (mut gaps, allowance) = (Gaps::NEW, delays.units(Gaps::ALLOWANCE_NS));
    let (mut last_reading, mut not_spent) = (began, 0_u64);
    loop {
        let now = now();
        let passed = now.wrapping_sub(began);
        // A counter that was set back would make this last for ever.
        if passed.cast_signed() < 0 {
            return Spun { units, locked_out };
        }
        let step = now.saturating_sub(last_reading);
        last_reading = now;
        if gaps.is_gap(step, allowance) {
            not_spent = not_spent.saturating_add(step);
        }
        let left = units.saturating_sub(passed.saturating_sub(not_spent));
        if left == 0 {
            return Spun { units: passed, locked_out };
        }
        let control = control(block);
        if control.stop != 0 || now >= control.expires_ns {
            return Spun { units: passed, locked_out };
        }
        locked_out = false;
        if passed >= give_up_after && left >= pause.not_within {
            pause.take();
            if !block.is_current() {
                return Spun { units: passed, locked_out };
            }
            // We assume that the spin ended meanwhile, until the clock says that some of it is left.
            locked_out = true;
            give_up_after = passed.saturating_add(pause.interval);
        }
        if left > last {
            hint::spin_loop();
        }
    }
}

/// How a thread lets others run in the middle of a spin.
struct Pause {
    api: Option<&'static Api>,
    /// Whether there is a lock to give up.
    has_lock: bool,
    /// Time between two pauses, in units of the clock.
    interval: u64,
    /// With fewer units left than this, there is no pause.
    not_within: u64,
}

impl Pause {
    fn new(delays: BlockDelays) -> Self {
        let api = Api::found();
        let has_lock = api.is_some_and(|api| !api.version.free_threaded);
        let (interval_ns, not_within_ns) =
            if has_lock { (SWITCH_INTERVAL_NS, NOT_GIVEN_UP_NS) } else { (STOPS_INTERVAL_NS, 0) };
        Self { api, has_lock, interval: delays.units(interval_ns), not_within: delays.units(not_within_ns) }
    }

    fn take(&self) {
        if let Some(api) = self.api {
            // SAFETY: Python called the helper, so this thread has the interpreter's lock, or in builds
            // without one an attached thread state.
            let state = unsafe { (api.save_thread)() };
            if self.has_lock {
                sys::sleep(GIVEN_UP_NS);
            }
            // SAFETY: the state that was detached above.
            unsafe { (api.restore_thread)(state) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_where_it_decides() {
        let at = |time: u64, looks: &mut u32, control: &Control, known: &Known| {
            is_open(control, known, || {
                *looks += 1;
                time
            })
        };
        let known = Known { begun: AtomicU64::new(0), ended: AtomicU64::new(0) };
        let mut looks = 0;
        let endless = Control { start_ns: 10, end_ns: u64::MAX, expires_ns: 100, ..Control::default() };
        assert!(!at(9, &mut looks, &endless, &known));
        assert!(at(10, &mut looks, &endless, &known));
        assert_eq!(looks, 2);
        assert!(at(11, &mut looks, &endless, &known));
        let ends_later = Control { end_ns: 150, ..endless };
        assert!(at(11, &mut looks, &ends_later, &known));
        assert_eq!(looks, 2, "what is known needs no clock");
        // The loader renews the doses.
        let ends = Control { expires_ns: 200, ..ends_later };
        assert!(at(149, &mut looks, &ends, &known));
        assert!(!at(150, &mut looks, &ends, &known));
        assert_eq!(looks, 4);
        assert!(!at(151, &mut looks, &ends, &known));
        assert!(!at(11, &mut looks, &Control { stop: 1, ..endless }, &known));
        let begins_later = Control { start_ns: 100, ..endless };
        assert!(!at(99, &mut looks, &begins_later, &known));
        assert_eq!(looks, 4, "what is over, stopped or far away needs no clock");
        let another = Control { start_ns: 20, ..endless };
        assert!(!at(19, &mut looks, &another, &known));
        assert!(at(20, &mut looks, &another, &known));
        assert_eq!(looks, 6);
    }
}
