//! The engine `helper`: calls are counted, decided on and delayed right here, with no trap.
//!
//! The delay counts from the moment when the helper hears of the call, and is shortened by what the way to
//! here and back takes. Whoever calls loses what was asked for.

use core::{
    hint,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use speed_bump_abi::{
    Control, FunctionEntry, Gaps, Histogram, Policy,
    control_block::{Calls, Clock, Turns},
    policy::decide,
};

use crate::{
    arch,
    block::{Block, BlockDelays},
    clock,
    cold::{self, Way},
    life,
    locks::Lock,
    python::api::Api,
    stub::Ticks,
    sys,
};

/// After so long a thread gives the interpreter's lock up, as it does in Python code when another one asks
/// for it (`sys.getswitchinterval`, 5 ms unless the program says otherwise), in ns.
const SWITCH_INTERVAL_NS: u64 = 5_000_000;
/// The same without a lock, where others wait for all threads to stop, as for a garbage collection: Python
/// code does so between two instructions.
const STOPS_INTERVAL_NS: u64 = 50_000;
/// For how long it is given up, in ns. A thread that waits for the lock wakes up in this time; without it,
/// this one would have the lock back first, again and again.
const GIVEN_UP_NS: u32 = 100_000;
/// What is left of a spin where the lock is not given up any more: coming back may take a little longer.
const NOT_GIVEN_UP_NS: u64 = 1_000_000;
/// What is left of a spin where the processor is not told any more that this is one: its pause is long.
const LAST_NS: u64 = 500;
/// The longest way to here and back that is believed. What takes longer was interrupted.
const LONGEST_WAY_NS: u64 = 1_000;

/// What a call loses on the way besides what can be measured without a call of Python code, in ns: Python's
/// own steps to the helper, and counting a delay that is over. The least that was found on 3.8 to 3.15, by
/// calls with a delay of 2 us: 24 to 100.
const UNSEEN_NS: u64 = 25;

/// What the way here and back takes, in ticks of the processor's counter. 0: not measured.
static WAY: AtomicUsize = AtomicUsize::new(0);

/// For how many more calls the counter is read before anything else, as the delay counts from there. Reading
/// it takes as long as all of the rest that a call costs which is not delayed.
static AT_ONCE: AtomicU32 = AtomicU32::new(AT_ONCE_AFTER_DELAY);
/// So many undelayed calls in a row make it likely that the next one is not delayed either.
const AT_ONCE_AFTER_DELAY: u32 = 64;

/// What the clock has said of windows, in units of it.
struct Known {
    /// The start of a window, which has passed.
    begun: AtomicU64,
    /// The end of a window, which has passed.
    ended: AtomicU64,
}

static KNOWN: Known = Known { begun: AtomicU64::new(0), ended: AtomicU64::new(0) };

/// How often the way is measured: the least of these counts.
const MEASUREMENTS: u32 = 64;

/// A session begins: nothing is known of its calls but which way they come.
pub(crate) fn begin(way: Way) {
    cold::begin(way);
    if Api::found().is_some_and(|api| !api.version.free_threaded) {
        life::count_alone();
    }
    AT_ONCE.store(AT_ONCE_AFTER_DELAY, Ordering::Relaxed);
    KNOWN.begun.store(0, Ordering::Relaxed);
    KNOWN.ended.store(0, Ordering::Relaxed);
}

/// Measures the way here and back, which `walk` goes once.
pub(crate) fn measure_way(block: Block, mut walk: impl FnMut()) {
    let Some(delays) = block.delays() else { return };
    let mut least = u64::MAX;
    for _ in 0..MEASUREMENTS {
        let began = arch::ticks();
        walk();
        least = least.min(arch::ticks().wrapping_sub(began));
    }
    // Each reading of the counter takes time itself; one is part of the way.
    let mut reading = u64::MAX;
    for _ in 0..MEASUREMENTS {
        let began = arch::ticks();
        reading = reading.min(arch::ticks().wrapping_sub(began));
    }
    let way = least.saturating_sub(reading).saturating_add(delays.units(UNSEEN_NS));
    // Of another clock than the counter nothing was measured.
    let is_known = delays.clock() == Clock::Counter && way <= delays.units(LONGEST_WAY_NS);
    WAY.store(if is_known { usize::try_from(way).unwrap_or(0) } else { 0 }, Ordering::Relaxed);
    block.head().floor.store(u32::try_from(way).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// Whether the counter is to be read as soon as the helper hears of a call.
#[inline]
pub(crate) fn is_likely() -> bool {
    AT_ONCE.load(Ordering::Relaxed) != 0
}

/// Counts a call of a function, and delays it if its policy says so. `began`: when the helper heard of it, if
/// it looked. Whether it was delayed.
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
    );
    match decided {
        Ok(policy) => {
            delay(block, delays, function, calls, policy.delay_ns, heard());
            true
        }
        Err(_) => {
            let at_once = AT_ONCE.load(Ordering::Relaxed);
            if at_once != 0 {
                AT_ONCE.store(at_once - 1, Ordering::Relaxed);
            }
            false
        }
    }
}

/// Counts on where nobody else does; how many there were before.
#[inline]
fn count_on(count: &AtomicU64) -> u64 {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}

/// How many turns there were before this one, here and in forked children. A call there at the same time may
/// have the same number, and the next number is left out then.
#[inline]
fn next(turns: &Turns, alone: bool) -> u64 {
    if alone {
        count_on(&turns.own).wrapping_add(turns.shared.load(Ordering::Relaxed))
    } else {
        turns.shared.fetch_add(1, Ordering::Relaxed).wrapping_add(turns.own.load(Ordering::Relaxed))
    }
}

/// Whether the window is open, without a look at the clock where that is known. What is over the expiry then
/// is found out when it comes to a delay.
#[inline]
fn is_open(control: &Control, known: &Known, heard: impl FnOnce() -> u64) -> bool {
    // Stopped, beginning only when the doses do not hold any more, or over.
    let is_closed = control.stop != 0
        || control.start_ns >= control.expires_ns
        || control.end_ns == known.ended.load(Ordering::Relaxed);
    if is_closed {
        return false;
    }
    // As long as the doses hold the window does not end.
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

/// The block's window, as it is at this moment.
#[inline]
fn control(block: Block) -> Control {
    let [start, end, stop, expires, generation] = &block.head().control;
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    Control::from_words([read(start), read(end), read(stop), read(expires), read(generation)])
}

/// The row that holds. When the loader has switched meanwhile, the one that it switched to.
#[inline]
fn in_force(block: Block, delays: BlockDelays, number: u32) -> Option<Policy> {
    let [.., generation] = &block.head().control;
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
    let way = (WAY.load(Ordering::Relaxed) as u64).saturating_add(cold::lost(began));
    let requested = delays.units(delay_ns);
    let interrupted_above = requested.saturating_add(delays.units(Histogram::interrupted_above_ns(delay_ns)));
    let Spun { units: spun, locked_out } = spin(block, delays, requested.saturating_sub(way), began);
    cold::ended(began.wrapping_add(spun));
    // Who gave the interpreter's lock up may come back to another session.
    if block.is_current() {
        calls.delayed.fetch_add(1, Ordering::Relaxed);
        calls.requested_ns.fetch_add(delay_ns, Ordering::Relaxed);
        let delivered = spun.wrapping_add(way);
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

/// A spin that is over.
struct Spun {
    /// What has passed.
    units: u64,
    /// Whether it ended while the thread waited for the interpreter's lock.
    locked_out: bool,
}

/// Spins until the thread has spent so many units since `began`, or nothing is delayed any more. A slower
/// function would have as much to do after it was preempted, or had given the lock up, as before.
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
        // A counter that was set back would have this last for ever.
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
            // Until the clock says that there is some left.
            locked_out = true;
            give_up_after = passed.saturating_add(pause.interval);
        }
        if left > last {
            hint::spin_loop();
        }
    }
}

/// How a thread lets others go on in the middle of a spin.
struct Pause {
    api: Option<&'static Api>,
    /// Whether there is a lock to give up.
    has_lock: bool,
    /// How often, in units of the clock.
    interval: u64,
    /// Not within so many units before the end.
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
            // SAFETY: Python called the helper, and so this thread has the interpreter's lock, or in builds
            // without one an attached thread state.
            let state = unsafe { (api.save_thread)() };
            if self.has_lock {
                sys::sleep(GIVEN_UP_NS);
            }
            // SAFETY: the state that was given up.
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
        let endless = Control { start_ns: 10, end_ns: u64::MAX, stop: 0, expires_ns: 100, generation: 0 };
        assert!(!at(9, &mut looks, &endless, &known));
        assert!(at(10, &mut looks, &endless, &known));
        assert_eq!(looks, 2);
        assert!(at(11, &mut looks, &endless, &known));
        let ends_later = Control { end_ns: 150, ..endless };
        assert!(at(11, &mut looks, &ends_later, &known));
        assert_eq!(looks, 2, "what is known needs no clock");
        // The loader moves the expiry on.
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
