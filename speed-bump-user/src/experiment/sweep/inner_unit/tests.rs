#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::{super::attribution::tests::seen, *};
use crate::{
    sampling::profile::{StackSeen, ThreadOf},
    targets::TargetIndex,
    units::Pid,
};

/// Functions of the session, by number.
const NAMES: [&str; 5] = ["generate", "step", "layer", "heartbeat", "seldom"];
const PER_SECOND: u64 = 50;

/// Counts of a census: units of a second, of which `under_way` are under way at once. A unit has 16 steps, of
/// 4 layers each, in this part of its time. A heartbeat comes 16 times a second.
fn polls(seconds: u64, under_way: u64, part: f64) -> Polls {
    let calls = |poll: u64, in_unit: u64| {
        let of_one = |offset: u64| {
            let at = poll + offset;
            let (units, within) = (at / PER_SECOND, (at % PER_SECOND) as f64 / PER_SECOND as f64);
            units * in_unit + ((within / part).min(1.0) * in_unit as f64) as u64
        };
        (0..under_way).map(|one| of_one(one * PER_SECOND / under_way)).sum::<u64>()
    };
    let poll = |poll: u64| {
        let heartbeats = poll * 16 / PER_SECOND;
        Poll {
            at: Nanos(poll * 1_000_000_000 / PER_SECOND),
            units: (0..under_way).map(|one| (poll + one * PER_SECOND / under_way) / PER_SECOND).sum::<u64>()
                as f64,
            calls: vec![calls(poll, 1), calls(poll, 16), calls(poll, 64), heartbeats, poll / 200],
        }
    };
    Polls((0..=seconds * PER_SECOND).map(poll).collect())
}

/// Steps and layers are in `generate`; the heartbeat is not.
fn profile() -> Profile {
    let process = Pid::new(1).unwrap();
    let stack = |functions: &[u32]| StackSeen {
        thread: ThreadOf { process, thread: process },
        functions: functions.to_vec(),
        works: 20,
        waits: BTreeMap::new(),
    };
    let stacks = [&[2, 1, 0][..], &[1, 0], &[3], &[4, 0]].map(stack).to_vec();
    Profile { functions: NAMES.map(seen).to_vec(), stacks, ..Profile::default() }
}

fn function(name: &str) -> SelectedFunction {
    SelectedFunction { target: TargetIndex(0), name: name.into(), file: "/srv/app.py".into(), line: Some(1) }
}

/// What a sweep of so many seconds would count, with these numbers of functions.
fn chosen(polls: &Polls, numbers: &[usize], unit: Option<&str>, seconds: u64) -> Option<Chosen> {
    let countable = |number: &usize| Countable {
        id: FunctionId(u32::try_from(*number).unwrap()),
        function: function(NAMES[*number]),
        calls: 10,
    };
    let countable: Vec<Countable> = numbers.iter().map(countable).collect();
    let unit = unit.map(function);
    let (name, time) = ("call of generate (app.py)", Duration::from_secs(seconds));
    polls.choose(&countable, &profile(), Longer { name, unit: unit.as_ref(), under_way: Some(1.0), time })
}

fn name(chosen: Option<Chosen>) -> Option<String> {
    chosen.map(|chosen| chosen.function.name)
}

#[test]
fn steps_that_come_evenly_inside_of_units_are_counted() {
    let polls = polls(4, 1, 1.0);
    let found = chosen(&polls, &[0, 1, 2, 3, 4], Some("generate"), 60).unwrap();
    // A chip of 8 steps takes half a second; 8 layers take less than the 0.3 s that are wanted.
    assert_eq!(found.function.name, "layer");
    assert!((found.inner.census.unwrap().in_unit() - 64.0).abs() < 4.0, "{found:?}");
    assert_eq!(name(chosen(&polls, &[1, 3], Some("generate"), 60)).as_deref(), Some("step"));
    assert_eq!(name(chosen(&polls, &[1, 2], Some("generate"), 200)).as_deref(), Some("step"));
}

#[test]
fn short_units_are_counted_themselves() {
    assert_eq!(name(chosen(&polls(4, 1, 1.0), &[1, 2], Some("generate"), 600)), None);
}

/// Its calls have nothing to do with the progress of units.
#[test]
fn calls_outside_of_units_are_no_steps() {
    assert_eq!(name(chosen(&polls(4, 1, 1.0), &[3], Some("generate"), 60)), None);
    assert_eq!(name(chosen(&polls(4, 1, 1.0), &[1, 2], Some("heartbeat"), 60)), None);
}

#[test]
fn a_unit_without_a_function_is_known_by_the_function_that_it_calls_once() {
    let polls = polls(4, 1, 1.0);
    assert_eq!(name(chosen(&polls, &[0, 1], None, 60)).as_deref(), Some("step"));
    assert_eq!(name(chosen(&polls, &[1, 3], None, 60)), None);
}

#[test]
fn steps_that_come_all_at_once_are_not_counted() {
    assert_eq!(name(chosen(&polls(4, 1, 0.4), &[1], Some("generate"), 60)), None);
    assert_eq!(name(chosen(&polls(4, 1, 0.9), &[1], Some("generate"), 60)).as_deref(), Some("step"));
}

#[test]
fn calls_that_differ_from_unit_to_unit_are_no_steps() {
    let mut uneven = polls(6, 1, 1.0);
    for poll in uneven.0.iter_mut().filter(|poll| poll.units >= 3.0) {
        poll.calls[1] = poll.calls[1] * 2 - 48;
    }
    assert_eq!(name(chosen(&uneven, &[1], Some("generate"), 60)), None);
}

/// If units take longer than the census, only the experiment can tell whether each has equally many steps.
#[test]
fn steps_that_come_evenly_are_enough_while_no_whole_unit_was_observed() {
    let mut one = polls(4, 1, 1.0);
    for poll in &mut one.0 {
        poll.units = if poll.units < 3.0 { 0.0 } else { 1.0 };
    }
    assert!(one.need_time());
    let found = chosen(&one, &[1], Some("generate"), 60).unwrap();
    assert_eq!((found.function.name.as_str(), found.inner.census), ("step", None));
    assert!(!polls(4, 1, 1.0).need_time());
}

#[test]
fn units_under_way_at_once_have_their_steps_at_any_time() {
    let several = polls(6, 4, 1.0);
    assert_eq!(name(chosen(&several, &[1], Some("generate"), 20)).as_deref(), Some("step"));
}

#[test]
fn where_requests_come_by_themselves_they_are_regressed() {
    let span = Nanos(4_000_000_000);
    assert!(may_be(By::Throughput, Some(0.0), span, false));
    assert!(may_be(By::Throughput, None, span, false));
    assert!(!may_be(By::Throughput, Some(2e9), span, false));
    assert!(may_be(By::Throughput, Some(2e9), span, true));
    assert!(!may_be(By::Latency, None, span, true));
}
