//! The services that are simulated, whose true sensitivities are known.

use speed_bump_experiment::chips::{
    design::Asked,
    sweep::{Plan, RULES},
    world::{Heavy, OpenLoop, Pace, Recorded, Recording, Requests, Service, Simulation, World},
};

use crate::recordings::RECORDINGS;

/// Requests a second of the open loop.
const RATE: f64 = 20.0;
/// How long a request takes, in seconds.
const LATENCY: f64 = 0.0112;
/// Requests a second of the services whose quantiles are compared.
const REQUESTS: f64 = 200.0;
/// What its true sensitivities are measured over, in seconds.
const LONG: f64 = 20_000.0;

/// A service, and how long it is swept.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) asked: Vec<Asked>,
    /// The true sensitivities.
    pub(crate) truth: Vec<f64>,
    pub(crate) plan: Plan,
    /// One run in so many is done.
    pub(crate) one_in: u64,
    kind: Kind,
}

enum Kind {
    /// With each of the paces.
    Closed(Box<Service>, &'static [Pace]),
    OpenLoop,
    Recorded(Recording),
    /// With each of the paces, where doses are shares of so many seconds.
    Requests(f64, &'static [Pace]),
}

const ALL: &[Pace] = &[Pace::Steady, Pace::TwoSpeeds, Pace::Flicker, Pace::Bursts, Pace::Wander, Pace::Drift];
const TWO_SPEEDS: &[Pace] = &[Pace::TwoSpeeds];
const STEADY: &[Pace] = &[Pace::Steady];
const BURSTS: &[Pace] = &[Pace::Bursts];

impl Case {
    /// The paces of the machine that it is tried with.
    pub(crate) fn paces(&self) -> &'static [Pace] {
        match &self.kind {
            Kind::Closed(_, paces) | Kind::Requests(_, paces) => paces,
            Kind::OpenLoop => TWO_SPEEDS,
            Kind::Recorded(_) => &[Pace::Steady],
        }
    }

    /// The service before a sweep.
    pub(crate) fn service(&self, pace: Pace, seed: u64) -> Box<dyn Simulation> {
        match &self.kind {
            Kind::Closed(service, _) => {
                let service = Service { pace, ..Service::clone(service) };
                Box::new(World::new(service, self.plan.total, seed))
            }
            Kind::OpenLoop => Box::new(OpenLoop::new(RATE, seed)),
            Kind::Recorded(recording) => Box::new(Recorded::new(recording.clone(), self.truth.clone(), seed)),
            Kind::Requests(unit, _) => {
                Box::new(Requests::new(REQUESTS, *unit, pace, self.plan.total + 10.0, seed))
            }
        }
    }

    /// Whether a function is worth enough.
    pub(crate) fn matters(&self, function: usize) -> bool {
        self.truth[function] * self.asked[function].share.unwrap_or_default() >= RULES.worth
    }

    fn closed(name: &'static str, service: Service, total: f64, paces: &'static [Pace]) -> Self {
        // Of functions that take more than all of a unit's time, some run beside each other.
        let threads = service.own.iter().sum::<f64>().ceil().max(1.0) as usize;
        let asked = service.own.iter().enumerate().map(|(at, &share)| Asked {
            share: Some(share),
            thread: u32::try_from(at % threads).unwrap_or_default(),
            is_first: true,
        });
        Self {
            name,
            asked: asked.collect(),
            truth: service.sensitivities.clone(),
            plan: Plan::new(service.unit, total),
            one_in: 1,
            kind: Kind::Closed(Box::new(service), paces),
        }
    }

    fn one_in(self, one_in: u64) -> Self {
        Self { one_in, ..self }
    }
}

/// Units of 10 ms that vary by 10 %; as many functions matter as there are values, and the others do not.
fn service(matter: &[f64], others: &[f64]) -> Service {
    Service {
        sensitivities: [vec![1.0; matter.len()], vec![0.0; others.len()]].concat(),
        own: [matter, others].concat(),
        unit: 0.010,
        deviation: 0.10,
        carry_over: 0.5,
        pace: Pace::Steady,
        slack: None,
        heavy: None,
    }
}

/// Five functions, one of which matters.
fn five() -> Service {
    service(&[0.10], &[0.05; 4])
}

/// Of so many functions three matter.
fn three_of(count: usize) -> Service {
    service(&[0.05; 3], &vec![0.02; count - 3])
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let closed = Case::closed;
    let twenty = service(&[0.10, 0.05, 0.03], &[vec![0.05; 9], vec![0.02; 8]].concat());
    let saturated = [
        0.2, 0.17, 0.09, 0.08, 0.075, 0.065, 0.055, 0.05, 0.05, 0.035, 0.033, 0.028, 0.02, 0.017, 0.015,
        0.015, 0.013, 0.013,
    ];
    let slack = Service { slack: Some((vec![0.0, 1.0, 1.0, 1.0, 1.0], 0.6)), ..five() };
    // Every fifth request takes three times as long as the mean, and of two functions has all calls.
    let heavy = Heavy { share: 0.2, times: 3.0, calls: vec![0.6, 0.6, 0.6, 1.0, 1.0] };
    let mix = Service {
        sensitivities: vec![1.0, 0.0, 0.0, 1.0, 0.0],
        own: vec![0.1, 0.05, 0.05, 0.1, 0.05],
        heavy: Some(heavy),
        ..five()
    };
    let carried = |units: f64| Service { carry_over: units, ..five() };
    let units = |unit: f64, deviation: f64| Service { unit, deviation, ..five() };
    vec![
        closed("5 functions, one matters", five(), 480.0, ALL),
        closed("20 functions, three matter", twenty, 480.0, ALL),
        closed("20 functions without effect", service(&[], &[0.05; 20]), 480.0, ALL),
        closed("18 of one saturated thread", service(&saturated, &[]), 480.0, ALL),
        closed("5 functions, four share slack", slack, 480.0, ALL),
        closed("two kinds of requests", mix, 480.0, ALL),
        closed("carry-over of 3 units", carried(3.0), 480.0, ALL),
        closed("carry-over of 6 units", carried(6.0), 480.0, ALL),
        closed("units of 1 ms", units(0.001, 0.2), 480.0, ALL),
        closed("units of 0.1 s", units(0.1, 0.1), 1_200.0, ALL),
        closed("units of 1 s", units(1.0, 0.1), 4_800.0, ALL),
        closed("units of 5 s", units(5.0, 0.1), 4_800.0, ALL),
        open_loop(),
        quantile("p50 of requests", 0.5, STEADY),
        quantile("p99 of requests", 0.99, STEADY),
        quantile("p99 of requests, two speeds", 0.99, TWO_SPEEDS),
        quantile("p99 of requests, bursts", 0.99, BURSTS),
        closed("200 functions, three matter", three_of(200), 480.0, ALL).one_in(10),
        closed("1,000 functions, three matter", three_of(1_000), 1_200.0, TWO_SPEEDS).one_in(50),
    ]
}

/// The services whose noise `recordings` has.
pub(crate) fn recorded() -> Vec<Case> {
    let case = |(name, text): (&'static str, &str)| {
        let recording = Recording::parse(text).unwrap();
        let plan = Plan { census: 3.0, chip: recording.chip, ..Plan::new(0.01, 120.0) };
        Case { name, plan, kind: Kind::Recorded(recording), ..Case::closed(name, five(), 120.0, &[]) }
    };
    RECORDINGS.into_iter().map(case).collect()
}

/// Latencies of 8 ms, and of 20 ms each fiftieth time, 200 requests a second.
fn quantile(name: &'static str, share: f64, paces: &'static [Pace]) -> Case {
    let unit = Requests::quantile(share, 1.0, paces[0], &[], LONG);
    let own = [0.1, 0.3, 0.1, 0.1];
    Case {
        name,
        asked: own.iter().map(|&own| Asked { share: Some(own), thread: 0, is_first: true }).collect(),
        truth: (0..3)
            .map(|at| Requests::sensitivity(share, unit, paces[0], at, 0.1, LONG))
            .chain([0.0])
            .collect(),
        plan: Plan {
            quantile: Some((share, unit * 1e9)),
            latency: Some(unit),
            // As the tool has it: four times the quantile.
            chip: (4.0 * unit).max(8.0 / REQUESTS),
            ..Plan::new(1.0 / REQUESTS, 480.0)
        },
        one_in: 1,
        kind: Kind::Requests(unit, paces),
    }
}

/// Latencies of 11 ms, 20 requests a second.
fn open_loop() -> Case {
    let own = [0.031, 0.3, 0.3, 0.1];
    let thread = |at: usize| u32::from(at > 1);
    Case {
        name: "open loop, 20 requests a second",
        asked: own
            .iter()
            .enumerate()
            .map(|(at, &own)| Asked { share: Some(own), thread: thread(at), is_first: true })
            .collect(),
        truth: (0..own.len()).map(|at| OpenLoop::sensitivity(RATE, at, 0.1, LONG)).collect(),
        plan: Plan { latency: Some(LATENCY), ..Plan::new(1.0 / RATE, 480.0) },
        one_in: 1,
        kind: Kind::OpenLoop,
    }
}
