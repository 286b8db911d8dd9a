#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt as _;

use speed_bump_testing::{session::obstacle, skip};

use super::*;

#[test]
#[cfg(target_arch = "x86_64")]
fn each_stub_takes_some_time() {
    let costs = costs_ns(&Stub::all(), CALLS);
    assert_eq!(costs.len(), SiteKind::ALL.len());
    // Reading the clock twice takes longer than a nanosecond.
    assert!(costs.iter().all(|cost| *cost > 1), "{costs:?}");
}

#[test]
fn the_median_is_the_upper_one_of_two() {
    for (taken, expected) in [(&[][..], 0), (&[7], 7), (&[2, 9], 9), (&[9, 1, 2], 2), (&[4, 3, 2, 1], 3)] {
        assert_eq!(median(&mut taken.to_vec()), expected, "{taken:?}");
    }
}

#[test]
fn every_cache_line_of_the_working_set_is_touched() {
    let mut memory = Vec::new();
    touch(&mut memory);
    touch(&mut memory);
    assert_eq!(memory.len(), 256 * 1024);
    for (place, byte) in memory.iter().enumerate() {
        assert_eq!(*byte, if place % 64 == 0 { 2 } else { 0 }, "{place}");
    }
}

#[test]
fn every_call_of_a_trial_is_delayed() {
    let Policy { delay_ns, frequency, signal, or_spin, signal_ns } = spun(Nanos(3_000));
    assert_eq!((delay_ns, frequency, signal, or_spin, signal_ns), (3_000, 1, 0, 0, 0));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_stub_lies_in_our_file_where_it_is_said_to() {
    let file = File::open("/proc/self/exe").unwrap();
    let kinds: Vec<_> = Stub::all().iter().map(|stub| stub.kind).collect();
    assert_eq!(kinds.len(), SiteKind::ALL.len());
    let offsets = stubs::file_offsets(&Stub::all()).unwrap();
    for (stub, offset) in Stub::all().into_iter().zip(offsets) {
        stub.call();
        let mut code = [0; 5];
        file.read_exact_at(&mut code, offset.0).unwrap();
        let expected: &[u8] = match stub.kind {
            SiteKind::Nop5 => &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            SiteKind::Nop => &[0x90, 0xc3],
            SiteKind::LongNop => &[0x0f, 0x1f, 0x00, 0xc3],
            SiteKind::Push => &[0x55, 0x5d, 0xc3],
            SiteKind::Jmp => &[0xeb],
            SiteKind::Jcc => &[0x74],
            SiteKind::Call => &[0xe8],
            SiteKind::SingleStep => &[0x31, 0xc0, 0xc3],
        };
        assert!(code.starts_with(expected), "{}: {code:x?}", stub.kind);
        assert!(stub.survives_fork().unwrap(), "{}", stub.kind);
    }
}

#[test]
fn programs_for_older_kernels_count_and_delay_here_too() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for form in [Form::Single, Form::Bounded, Form::Copied] {
        // Measuring also checks the counts of calls and delays.
        let calibration = measure_form(form).unwrap();
        assert_eq!(calibration.form(), form);
        assert!(calibration.cost(SiteKind::SingleStep).floor.0 > 0, "{form:?}");
        // There is one cost for each stub, in the same order.
        let kinds: Vec<_> = calibration.costs().iter().map(|cost| cost.kind).collect();
        assert_eq!(kinds, Stub::all().iter().map(|stub| stub.kind).collect::<Vec<_>>());
        let warm = calibration.coldness().map(|way| way.warm_ns > 0);
        assert_eq!(warm, [true, form.longest_spin().is_none()], "{form:?}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn stubs_are_told_by_what_they_begin_with() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let bench = Bench::new(Form::Single, None, CALLS, |_| true).unwrap();
    let (site, stub, unprobed) = bench.everyday().unwrap();
    assert_eq!((stub.kind, SiteKind::ALL[site as usize]), (EVERYDAY, EVERYDAY));
    assert_eq!(unprobed, bench.unprobed[site as usize]);
    let nop5 = bench.stubs.iter().find(|stub| stub.kind == SiteKind::Nop5).unwrap();
    // If the kernel rewrites the nop, it must have done so before.
    nop5.call();
    assert_eq!(bench.nop5_survives_forks(), nop5.survives_fork().unwrap());
}

#[test]
fn a_signal_takes_some_time() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let mut calibration = measure(&KernelFacts::read()).unwrap();
    assert_eq!(calibration.signal(), None);
    measure_signal(&mut calibration, TaskOffsets::read().unwrap()).unwrap();
    // The way to a handler and back takes hundreds of nanoseconds at least.
    assert!(calibration.signal().is_some_and(|cost| cost > Nanos(0)));
}

#[test]
fn one_link_for_all_sites_sees_all_threads_since_linux_6_10() {
    // Up to 6.9 a link only sees the main thread, so we do not use links.
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if !KernelFacts::read().has_uprobe_multi_pid() {
        return skip!("before Linux 6.10 a link sees the main thread alone");
    }
    assert!(Bench::new(Form::Multi, None, CALLS, |_| true).unwrap().covers_threads().unwrap());
}

#[test]
fn costs_that_no_longer_hold_are_measured_again() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let kernel = KernelFacts::read();
    let mut wrong = measure(&kernel).unwrap();
    let kinds = BTreeSet::from([SiteKind::Push, SiteKind::SingleStep]);
    let overhead = |table: &CostTable, kind| table.cost(kind).overhead;
    // Ten times the cost: no machine is as noisy.
    wrong.costs.iter_mut().for_each(|cost| cost.overhead.0 *= 10);
    let before = wrong.clone();
    assert!(check(&mut wrong, &kinds, None).unwrap());
    for stub in Stub::all() {
        let (old, new) = (overhead(&before, stub.kind), overhead(&wrong, stub.kind));
        // The check did not include the other costs.
        assert_eq!(new < old, kinds.contains(&stub.kind), "{}: {old} {new}", stub.kind);
    }
    assert_eq!((wrong.coldness, wrong.form, wrong.signal), (before.coldness, before.form, None));
    let offsets = TaskOffsets::read().unwrap();
    assert!(check(&mut wrong, &BTreeSet::new(), Some(offsets)).unwrap());
    let signal = wrong.signal.unwrap();
    wrong.signal = Some(Nanos(signal.0 * 10 + 1_000));
    assert!(check(&mut wrong, &BTreeSet::new(), Some(offsets)).unwrap());
    assert!(wrong.signal.unwrap() < Nanos(signal.0 * 10 + 1_000));
}

#[test]
fn noise_is_told_from_another_cost() {
    for (kind, kept, measured, expected) in [
        (SiteKind::Push, 1_600, 3_330, false),
        (SiteKind::Push, 1_600, 3_331, true),
        (SiteKind::Push, 1_600, 1_470, false),
        (SiteKind::Push, 1_600, 1_469, true),
        (SiteKind::Push, 0, 30, false),
        (SiteKind::SingleStep, 10_000, 25_000, false),
        (SiteKind::SingleStep, 10_000, 25_001, true),
        (SiteKind::SingleStep, 10_000, 5_000, false),
        (SiteKind::SingleStep, 10_000, 4_999, true),
    ] {
        assert_eq!(is_off(kind, Nanos(kept), Nanos(measured)), expected, "{kind} {kept} {measured}");
    }
}
