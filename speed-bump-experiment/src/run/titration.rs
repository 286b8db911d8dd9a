//! Everything at once, with delays that double until the service reacts: how much delay it takes for that,
//! or that there is none.

use super::{Runner, Stop, slices::GUARDS};
use crate::{
    analysis::{estimate::MIN_BLOCKS, faster, findings, outliers::median, untried::together},
    record::{By, Mark, PhaseKind, Slice, Treatment},
    schedule::call_dose,
    units::Nanos,
};

/// The service reacts when a unit takes so much longer.
const REACTS: f64 = 0.05;
/// And that by so many standard errors.
const BELIEVED: f64 = 2.5;
/// The standard error of a median over that of a mean, of normal values.
const OF_MEDIAN: f64 = 1.25;
/// Without a unit under way for more than this share of the time, a service waits for requests.
const IDLE: f64 = 0.1;
/// The first doses, all together, as a share of a unit's time.
const FIRST: f64 = 0.08;
/// The last: so much for each function.
const LAST: f64 = 1.0;
/// Slices with delays of each dose, and as many without, at least.
const PAIRS: u32 = 2;
/// Where noise asks for more, they may take this part of the phase.
const OF_PHASE: u64 = 8;
/// Blocks of the largest doses, where those did nothing.
const BOUNDING: u32 = 2 * MIN_BLOCKS as u32;

/// How the service reacts to all delays together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Titrated {
    /// With this share of a unit's time for each function, a unit takes `up` more.
    Reacts {
        /// The share.
        share: f64,
        /// The share that came on top.
        up: f64,
    },
    /// The largest doses did nothing.
    DoesNotReact,
}

/// By what share units of slices took longer than those of the ones before them.
fn more(by: By, with: &[Slice], without: &[Slice]) -> f64 {
    let pair = |(with, without): (&Slice, &Slice)| with.time_per_unit(by) / without.time_per_unit(by) - 1.0;
    median(&mut with.iter().zip(without).map(pair).collect::<Vec<f64>>())
}

impl Runner<'_> {
    /// See above.
    pub(super) fn titrate(&mut self, arms: &[Treatment]) -> Result<Titrated, Stop> {
        self.begin_phase(PhaseKind::Titrate, self.times.titrate);
        let mut share = FIRST / arms.len() as f64;
        let mut block = 0;
        let (usual, mut is_checked) = (self.pairs(), false);
        loop {
            let doses = self.doses(arms, share);
            let at_last = share >= LAST || doses.iter().all(|(_, dose)| *dose == self.options.longest_call);
            let (mut with, mut without, mut guards) = (Vec::new(), Vec::new(), 0);
            let pairs = if at_last || is_checked { usual.max(BOUNDING) } else { usual };
            for _ in 0..pairs {
                without.push(self.slice(block, Treatment::Control, &[])?);
                let slice = self.slice(block, Treatment::Several, &doses)?;
                guards += usize::from(self.was_too_slow(&slice));
                with.push(slice);
                block += 1;
                // Once may be the service's own doing.
                if guards >= GUARDS {
                    break;
                }
            }
            let guarded = guards >= GUARDS;
            let error = OF_MEDIAN * self.noise * (2.0 / f64::from(pairs)).sqrt();
            let reacts = |up: &f64| *up >= REACTS && *up > BELIEVED * error;
            let by = self.measured.by;
            self.leave_out_without_load(&mut with, &mut without);
            let up = more(by, &with, &without);
            // Where requests come when they like, their latency reacts, and their number does not.
            let is_idle = findings::idle(&self.measured).is_some_and(|share| share > IDLE);
            if by == By::Throughput && is_idle && !reacts(&up) {
                let up = more(By::Latency, &with, &without);
                if reacts(&up) {
                    self.measured.by = By::Latency;
                    self.learn_unit(PhaseKind::Census);
                    self.noise = self.noise(PhaseKind::Census).max(self.noise);
                    self.end_phase(&format!(
                        "requests come when they like, so latency counts: all functions together, {:.1} % of \
                         its time each, make it {:.0} % longer",
                        share * self.pace / self.unit * 100.0,
                        up * 100.0
                    ));
                    return Ok(Titrated::Reacts { share: share * self.pace / self.unit, up });
                }
            }
            // What ended early says less of how much than that it is more than allowed.
            let up = if guarded { up.max(self.measured.rules.max_slowdown) } else { up };
            if guarded || reacts(&up) {
                self.end_phase(&format!(
                    "all functions together, {:.1} % of a unit's time each: a unit takes {:.0} % more",
                    share * 100.0,
                    up * 100.0
                ));
                return Ok(Titrated::Reacts { share, up });
            }
            // More of the same dose tells whether units really come faster.
            let more_units = 1.0 / (1.0 + up).max(f64::EPSILON) - 1.0;
            if reacts(&more_units) && pairs < BOUNDING {
                is_checked = true;
                continue;
            }
            if faster::is_faster(&together(&self.measured), self.measured.rules.threshold) {
                return Err(Stop::Invalid(faster::said("all functions at once")));
            }
            is_checked = false;
            if at_last {
                self.end_phase("the largest delays of all functions together change nothing");
                return Ok(Titrated::DoesNotReact);
            }
            share = (share * 2.0).min(LAST);
        }
    }

    /// Leaves out pairs of slices of which one was found not to be under the load, later on.
    fn leave_out_without_load(&self, with: &mut Vec<Slice>, without: &mut Vec<Slice>) {
        let slices = self.measured.slices.iter().filter(|slice| slice.marks.contains(&Mark::Load));
        let out: Vec<Nanos> = slices.map(|slice| slice.start_ns).collect();
        let is_in = |slice: &Slice| !out.contains(&slice.start_ns);
        let pairs = std::mem::take(with).into_iter().zip(std::mem::take(without));
        (*with, *without) = pairs.filter(|(one, other)| is_in(one) && is_in(other)).unzip();
    }

    /// How many pairs of slices it takes to believe that units take [`REACTS`] longer, as far as there is
    /// time.
    fn pairs(&self) -> u32 {
        let wanted = 2.0 * (OF_MEDIAN * self.noise * BELIEVED / REACTS).powi(2);
        let most = self.times.slices_in(Nanos(self.times.titrate.0 / OF_PHASE)) / 2;
        (wanted.ceil() as u32).min(most).max(PAIRS)
    }

    /// Doses that make each of these functions slower by this share of a unit's time, and each of these
    /// groups as a whole.
    pub(super) fn doses(&self, arms: &[Treatment], share: f64) -> Vec<(u32, Nanos)> {
        arms.iter().flat_map(|arm| self.doses_of(&self.measured.members(*arm), share)).collect()
    }

    /// Doses that make these functions together slower by this share of a unit's time, each by what it takes
    /// itself of their time.
    fn doses_of(&self, members: &[u32], share: f64) -> Vec<(u32, Nanos)> {
        let own: Option<Vec<f64>> = members.iter().map(|of| self.measured.own_of(*of)).collect();
        let sum: f64 = own.iter().flatten().sum();
        let parts = match own {
            Some(own) if sum > 0.0 => own.into_iter().map(|own| own / sum).collect(),
            Some(_) | None => vec![1.0 / members.len() as f64; members.len()],
        };
        let dose = |(number, part): (&u32, f64)| {
            let candidate = self.measured.candidates.get(*number as usize)?;
            let calls = self.measured.calls_per_unit(candidate);
            let delay = part * share * self.unit;
            Some((*number, call_dose(delay, calls, candidate.floor_ns, self.options.longest_call)))
        };
        members.iter().zip(parts).filter_map(dose).filter(|(_, dose)| dose.0 > 0).collect()
    }
}
