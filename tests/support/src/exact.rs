//! Exactness: what a call of a fixture's function really loses, and the assertion about it.
//!
//! The fixtures `exact.c` and `exact.py` time each call of a function that works for a given time. Of many
//! calls we take the shortest, since other users of the processors can only add time: so a delay that is too
//! long shows. A delay that is too short shows if it is shorter by more than the function's own work, a
//! twentieth of a short delay. The calibration may be wrong by that much, in either direction.

use std::{fmt, ops::RangeInclusive, process::Command};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    Attached, Fixture, PythonBuild, Service, places,
    session::{Ended, obstacle_to_long_spins},
};

/// By how much a delay may be exceeded: one part in this many.
const MAX_OVER: u64 = 10;
/// The function's own work: one part in this many of a delay of microseconds.
const OWN_PART: u64 = 20;
/// And of one of milliseconds, beside which the calibration is nothing. On a processor that is slow for a
/// moment the function takes twice as long.
const OWN_PART_OF_LONG: u64 = 50;
/// The short delay, in traps: where the cost of a trap is not subtracted, the call takes more than is
/// allowed.
const TRAPS: u64 = 12;
/// And at least so many calls that do nothing, which are the function's own part of it.
const OWN_CALLS: u64 = OWN_PART;
/// The short delay with the engine `signal`. Up to 25 us no signal is sent; a signal costs some 2 us.
const SIGNALLED_NS: u64 = 27_000;
/// Where a trap takes longer, the processor is emulated. A signal takes as long there, and leaves nothing of
/// so short a delay.
const EMULATED_TRAP_NS: u64 = 3_000;
/// What programs for kernels before 5.17 spin at most.
const OLD_KERNELS_MAX_NS: u64 = 25_000;
/// Sessions with a delay, of which the one in the middle counts. Each calibrates anew, and one in some ten is
/// off where the machine is busy.
const SESSIONS: usize = 3;
/// Where the one in the middle is off, the middle of so many times as many tells whether it is the tool.
const TIMES_AS_MANY: usize = 3;
/// The processor has the same speed where the same work takes the same time: but for one part in so many. By
/// that much of a trap, a short delay's twelfth, the correction may be off then: by less than is allowed. On
/// a busy virtual machine the same work takes a fifth less right after a session, time and again.
const SAME_SPEED_WITHIN: u64 = 3;
/// How often something is measured whose parts belong together: the speed of the processor may change
/// between them.
const TRIES: usize = 20;

fn most_ns(delay_ns: u64) -> u64 {
    delay_ns + delay_ns / MAX_OVER
}

/// The most that the shortest of many delayed calls may take.
fn allowed(delay_ns: u64, slack_ns: u64) -> RangeInclusive<u64> {
    delay_ns.saturating_sub(slack_ns)..=most_ns(delay_ns) + slack_ns
}

/// Asserts that a delay is exact: the least of many delayed calls lies between the delay and a tenth more.
#[track_caller]
pub fn exact(what: &str, delay_ns: u64, least_ns: u64) {
    exact_within(what, delay_ns, 0, least_ns);
}

/// The same with some slack on either side.
#[track_caller]
fn exact_within(what: &str, delay_ns: u64, slack_ns: u64, least_ns: u64) {
    let allowed = allowed(delay_ns, slack_ns);
    let (least_allowed, most_allowed) = (allowed.start(), allowed.end());
    assert!(
        allowed.contains(&least_ns),
        "{what}: the least of many calls with a delay of {delay_ns} ns took {least_ns} ns, \
         not {least_allowed} to {most_allowed} ns"
    );
}

/// Asserts that what a report says was delivered is not less than what it says was requested, and at most a
/// tenth more than the calls took.
#[track_caller]
pub fn delivered(target: &Value, took_ns: u64) {
    let (delivered, requested) = (target["delivered_ns"].as_u64(), requested_ns(target));
    assert!(
        requested > Some(0) && delivered >= requested && delivered <= Some(most_ns(took_ns)),
        "{requested:?} ns were requested and {delivered:?} ns delivered in calls that took {took_ns} ns: \
         {target}"
    );
}

/// The sum over a target's functions.
fn requested_ns(target: &Value) -> Option<u64> {
    let functions = target["functions"].as_array()?;
    functions.iter().map(|function| function["requested_ns"].as_u64()).sum()
}

/// Which calls are timed together.
#[derive(Clone, Copy, Debug)]
struct Groups {
    count: u64,
    size: u64,
    /// What the function's own work is of the delay: one part in so many.
    own_part: u64,
    /// Sessions with such calls.
    sessions: usize,
}

impl Groups {
    /// For calls of microseconds. The program takes one in a thousand, after an interrupt, for colder than it
    /// is. So the median of a few stands for a call.
    const SHORT: Self = Self { count: 400, size: 5, own_part: OWN_PART, sessions: SESSIONS };
    /// For calls of microseconds that vary: on an emulated processor, and to find out whether it is one.
    const STEADY: Self = Self { count: 20, size: 101, own_part: OWN_PART, sessions: SESSIONS };
    /// For calls of milliseconds, many of which interrupts and other virtual machines spoil: each stands for
    /// itself. So many that they outlast a slow moment of the processor.
    const LONG: Self = Self { count: 180, size: 1, own_part: OWN_PART_OF_LONG, sessions: 1 };

    fn calls(self) -> u64 {
        self.count * self.size
    }
}

/// What calls took, as their caller measured it.
#[derive(Clone, Copy, Debug)]
struct Times {
    least_ns: u64,
    total_ns: u64,
}

/// What the function does itself.
#[derive(Clone, Copy, Debug)]
struct Work {
    rounds: u64,
    /// What a call with so many takes without the tool.
    ns: u64,
}

/// No number of rounds takes as long as a function's own work should.
#[derive(Debug)]
struct NoWork {
    allowed: RangeInclusive<u64>,
    /// Rounds, and what they took in ns.
    tried: Vec<(u64, u64)>,
}

impl fmt::Display for NoWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowed, tried } = self;
        write!(f, "no number of rounds takes {allowed:?} ns: rounds and what they took in ns: {tried:?}")
    }
}

impl std::error::Error for NoWork {}

/// What a call takes that does nothing.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Without the tool.
    own_ns: u64,
    /// More where it is counted and not delayed.
    trap_ns: u64,
}

/// The compiled fixture and it running.
pub fn start() -> Result<(Fixture, Service)> {
    let fixture = Fixture::compile(&places::fixtures().join("exact.c"), &["-O2"])?;
    let service = Service::start(&mut Command::new(fixture.program()))?;
    Ok((fixture, service))
}

/// The fixture running under an interpreter with these options (`-X`, `perf`).
pub fn start_python(python: &PythonBuild, options: &[&str]) -> Result<Service> {
    let mut command = python.command_with(options, &places::fixtures().join("exact.py"));
    // Perf trampolines and the JIT exclude each other, and probes miss compiled calls.
    command.env("PYTHON_JIT", "0").env_remove("PYTHONPERFSUPPORT");
    Service::start(&mut command)
}

/// A function of a running fixture, and how the tool attaches to it alone.
pub struct Subject<'a, A> {
    /// The fixture.
    pub service: &'a mut Service,
    /// The function.
    pub function: &'a str,
    /// Attaches with a value for `--delay`. From then on every call is to be delayed.
    pub attach: A,
}

/// The result of sessions with one delay.
#[derive(Debug)]
pub struct Measured {
    delay_ns: u64,
    /// The least call without the tool, with the function's own work.
    own_ns: u64,
    /// What the least may be off by on either side.
    slack_ns: u64,
    calls: u64,
    times: Times,
    /// Its report.
    pub ended: Ended,
}

impl Measured {
    /// Whether the processor is emulated. A function of CPython's takes another time there at each call.
    pub fn is_emulated(&self) -> bool {
        self.slack_ns > 0
    }

    fn is_exact(&self) -> bool {
        allowed(self.delay_ns, self.slack_ns).contains(&self.times.least_ns)
    }

    /// Asserts that the delay was exact, and that the report says so of each of the calls.
    #[track_caller]
    pub fn assert_exact(&self, what: &str) {
        let target = self.ended.target(0);
        assert_eq!(target["delayed"], self.calls, "{what}: {target}");
        let Self { delay_ns, own_ns, slack_ns, times, .. } = self;
        let what = &format!("{what}, {own_ns} ns without, {times:?}, {target}");
        exact_within(what, *delay_ns, *slack_ns, times.least_ns);
        delivered(target, self.times.total_ns);
    }
}

impl<A: Fn(&mut Service, &str) -> Result<Attached>> Subject<'_, A> {
    /// A delay that is so short that the trap shows if its cost is not subtracted: the session in the middle
    /// of several.
    pub fn short(&mut self) -> Result<Measured> {
        // On a processor that has become slower since the delay was chosen, the function alone may take more
        // than its part of it. Then a longer one is.
        match self.chosen_short() {
            Err(error) if error.is::<NoWork>() => self.chosen_short(),
            measured => measured,
        }
    }

    fn chosen_short(&mut self) -> Result<Measured> {
        let most_ns = obstacle_to_long_spins().map_or(u64::MAX, |_| OLD_KERNELS_MAX_NS);
        let Costs { own_ns, trap_ns } = self.costs()?;
        let is_emulated = trap_ns > EMULATED_TRAP_NS;
        let groups = if is_emulated { Groups::STEADY } else { Groups::SHORT };
        // Calls of short groups are colder, by as much as the machine makes of it at the moment, and a call
        // is a small part of the delay.
        let cold_ns = self.time(0, groups)?.least_ns * groups.own_part;
        let delay_ns = (trap_ns * TRAPS).max(own_ns * OWN_CALLS).max(cold_ns).min(most_ns);
        // What an emulated trap takes varies by as much as it takes.
        self.middle(delay_ns, groups, if is_emulated { trap_ns } else { 0 })
    }

    /// The same with the engine `signal`, where the signal shows if its cost is not subtracted. `None` on a
    /// machine that is too slow for that.
    pub fn short_with_signal(&mut self) -> Result<Option<Measured>> {
        if self.costs()?.trap_ns > EMULATED_TRAP_NS {
            return Ok(None);
        }
        self.middle(SIGNALLED_NS, Groups::SHORT, 0).map(Some)
    }

    /// A delay of milliseconds.
    pub fn long(&mut self, delay_ns: u64) -> Result<Measured> {
        self.middle(delay_ns, Groups::LONG, 0)
    }

    fn middle(&mut self, delay_ns: u64, groups: Groups, slack_ns: u64) -> Result<Measured> {
        let mut sessions: Vec<Measured> = Vec::new();
        for count in [groups.sessions, groups.sessions * TIMES_AS_MANY] {
            while sessions.len() < count {
                sessions.push(Measured { slack_ns, ..self.steady_session(delay_ns, groups)? });
            }
            sessions.sort_by_key(|session| session.times.least_ns);
            if sessions.get(count / 2).is_some_and(Measured::is_exact) {
                break;
            }
        }
        Ok(sessions.swap_remove(sessions.len() / 2))
    }

    /// The least of several measurements, as a processor that is slow for a moment is not emulated.
    fn costs(&mut self) -> Result<Costs> {
        let mut costs = self.measured_costs()?;
        for _ in 1..SESSIONS {
            if costs.trap_ns <= EMULATED_TRAP_NS {
                break;
            }
            let again = self.measured_costs()?;
            costs = if again.trap_ns < costs.trap_ns { again } else { costs };
        }
        Ok(costs)
    }

    /// Again where the calls without the tool met a slower processor than those with it.
    fn measured_costs(&mut self) -> Result<Costs> {
        let mut tried = Vec::new();
        for _ in 0..TRIES {
            let before_ns = self.time(0, Groups::STEADY)?.least_ns;
            let counted = self.session(0, Work { rounds: 0, ns: before_ns }, Groups::STEADY)?;
            let own_ns = before_ns.min(self.time(0, Groups::STEADY)?.least_ns);
            let counted_ns = counted.times.least_ns;
            if let Some(trap_ns) = counted_ns.checked_sub(own_ns).filter(|ns| *ns > 0) {
                return Ok(Costs { own_ns, trap_ns });
            }
            tried.push((own_ns, counted_ns));
        }
        bail!("probed calls take no longer than others: what both took in ns: {tried:?}")
    }

    /// The part of a delay that is the function's own work: a little more than it should be at most, and much
    /// more where nothing else is to be had.
    fn work(&mut self, delay_ns: u64, groups: Groups) -> Result<Work> {
        const TRIAL: u64 = 1_000;
        let own_ns = delay_ns / groups.own_part;
        let wanted = own_ns / 2..=own_ns * 11 / 10;
        let allowed = own_ns / 2..=own_ns * 3 / 2;
        let (mut tried, mut best) = (Vec::new(), None::<Work>);
        for _ in 0..TRIES {
            let [none, trial] = [0, TRIAL].map(|rounds| self.time(rounds, groups));
            let (none, trial) = (none?.least_ns, trial?.least_ns);
            let rounds = own_ns.saturating_sub(none) * TRIAL / (trial.saturating_sub(none)).max(1);
            let taken = self.time(rounds, groups)?.least_ns;
            let work = Work { rounds, ns: taken };
            if wanted.contains(&taken) {
                return Ok(work);
            }
            if allowed.contains(&taken) && best.is_none_or(|best| taken < best.ns) {
                best = Some(work);
            }
            tried.push((rounds, taken));
        }
        if let Some(best) = best {
            return Ok(best);
        }
        bail!(NoWork { allowed, tried })
    }

    /// A session during which the processor was as fast as before. What the tool measures of the machine when
    /// a session begins holds no longer on one that runs at another speed, as under a hypervisor.
    fn steady_session(&mut self, delay_ns: u64, groups: Groups) -> Result<Measured> {
        let mut tried = Vec::new();
        for _ in 0..TRIES {
            let work = self.work(delay_ns, groups)?;
            let measured = self.session(delay_ns, work, groups)?;
            let after_ns = self.time(work.rounds, groups)?.least_ns;
            if work.ns.abs_diff(after_ns) <= work.ns / SAME_SPEED_WITHIN {
                return Ok(measured);
            }
            tried.push((work.ns, after_ns));
        }
        bail!(
            "the processor's speed changed in every session: ns of the same work before and after: {tried:?}"
        )
    }

    fn session(&mut self, delay_ns: u64, work: Work, groups: Groups) -> Result<Measured> {
        let attached = (self.attach)(self.service, &format!("{delay_ns}ns"))?;
        let times = self.time(work.rounds, groups)?;
        let (own_ns, calls) = (work.ns, groups.calls());
        Ok(Measured { delay_ns, own_ns, slack_ns: 0, calls, times, ended: attached.stop()? })
    }

    fn time(&mut self, rounds: u64, groups: Groups) -> Result<Times> {
        let Groups { count, size, .. } = groups;
        let answer = self.service.ask(&format!("time {} {rounds} {count} {size}", self.function))?;
        let of = |field: &str| answer.first().and_then(|event| event[field].as_u64());
        let times = of("least_ns").zip(of("total_ns"));
        let (least_ns, total_ns) = times.with_context(|| format!("no times but {answer:?}"))?;
        Ok(Times { least_ns, total_ns })
    }
}

#[cfg(test)]
mod tests;
