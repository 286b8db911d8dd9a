#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use speed_bump_abi::Bound;

use super::*;

/// A switch with files in place of maps, and the file with the control words.
fn switch(policies: u32) -> (PolicySwitch, File) {
    let words = |length: usize| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * length as u64).unwrap();
        (MappedWords::of_array(&file, length).unwrap(), file)
    };
    let (control, file) = words(CONTROL_WORDS);
    let rows = (policies * Policy::ROWS) as usize;
    (PolicySwitch::new(control, words(rows * Policy::WORDS).0), file)
}

fn policy(delay_ns: u64) -> Policy {
    Policy { delay_ns, frequency: 1, signal: 2, or_spin: 3, signal_ns: delay_ns }
}

#[test]
fn a_policy_holds_until_another_is_set() {
    let (switch, _) = switch(3);
    let before = now();
    let first = switch.set(&[(0, policy(10)), (2, policy(30))]).unwrap();
    let second = switch.set(&[(1, policy(20))]).unwrap();
    assert!(before <= first && first <= second && second <= now());
    switch.set(&[(0, policy(11)), (0, policy(12))]).unwrap();
    assert_eq!(switch.longest(), Nanos(30), "also of what was set before");
    let held = |switch: &PolicySwitch| [0, 1, 2].map(|number| switch.policy(number).unwrap());
    assert_eq!(held(&switch), [12, 20, 30].map(policy));
    switch.set(&[]).unwrap();
    assert_eq!(held(&switch), [12, 20, 30].map(policy));
    for number in [3, 4, u32::MAX] {
        assert_eq!(switch.policy(number), None);
        let error = switch.set(&[(1, policy(99)), (number, policy(1))]).unwrap_err();
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
    assert_eq!(held(&switch), [12, 20, 30].map(policy));
}

#[test]
fn the_words_are_those_that_the_programs_read() {
    let (switch, file) = switch(1);
    switch.open(Nanos(5), Nanos(7));
    switch.renew(Nanos(6));
    let control = || {
        let mut bytes = [0; 8 * CONTROL_WORDS];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let mut words = bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let mut word = || words.next().unwrap();
        Control::from_words(std::array::from_fn(|_| word()))
    };
    let open = Control { start_ns: 5, end_ns: 7, expires_ns: 6, ..Control::default() };
    assert_eq!(control(), open);
    let bound = DelayBound::new(0.5, Duration::from_millis(1)).unwrap();
    switch.set_bound(bound);
    let open = Control { bound: Bound::new(Bound::ONE / 2, 1_000_000), ..open };
    assert_eq!(control(), open);
    switch.stop();
    switch.open(Nanos(5), Nanos(7));
    switch.set(&[]).unwrap();
    assert_eq!(control(), Control { stop: 1, generation: 1, ..open }, "a stop is for good");
}

/// Reads a policy in the same way as a BPF program.
fn read(switch: &PolicySwitch, number: u32) -> Policy {
    let row = |generation| {
        let mut words = [0; Policy::WORDS];
        for (word, from) in words.iter_mut().zip(switch.row(number, generation).unwrap()) {
            *word = from.load(Ordering::Acquire);
        }
        Policy::from_words(words)
    };
    loop {
        let generation = || switch.word(GENERATION).load(Ordering::Acquire);
        let before = generation();
        let policy = row(before);
        if generation() == before {
            return policy;
        }
    }
}

#[test]
fn who_reads_meanwhile_finds_no_half_of_a_policy() {
    let (switch, _) = switch(2);
    let switch = Arc::new(switch);
    switch.set(&[(0, policy(0)), (1, policy(0))]).unwrap();
    let (reader, is_over) = (Arc::clone(&switch), Arc::new(AtomicBool::new(false)));
    let goes_on = Arc::clone(&is_over);
    let reading = thread::spawn(move || {
        let mut last = 0;
        while !goes_on.load(Ordering::Relaxed) {
            let read = read(&reader, 0);
            assert_eq!(read.delay_ns, read.signal_ns);
            assert!(read.delay_ns >= last, "{} after {last}", read.delay_ns);
            last = read.delay_ns;
        }
        last
    });
    for delay in 1..=100_000 {
        switch.set(&[(delay as u32 % 2, policy(delay))]).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(reading.join().unwrap() <= 100_000);
}

/// Some of five policies, with their delays.
fn some() -> impl Strategy<Value = Vec<(u32, u64)>> {
    prop::collection::vec((0_u32..5, 1_u64..9), 0..4)
}

/// Takes the place of a helper's block.
#[derive(Debug, Default)]
struct Copy {
    rows: Mutex<BTreeMap<u32, Policy>>,
    control: Mutex<Control>,
}

impl Mirror for Copy {
    fn write_policy(&self, number: u32, generation: u64, policy: Policy) -> io::Result<()> {
        self.rows.lock().unwrap().insert(Policy::row(number, generation), policy);
        Ok(())
    }

    fn write_control(&self, control: Control) -> io::Result<()> {
        *self.control.lock().unwrap() = control;
        Ok(())
    }
}

impl Copy {
    fn policy(&self, number: u32) -> Option<Policy> {
        let generation = self.control.lock().unwrap().generation;
        self.rows.lock().unwrap().get(&Policy::row(number, generation)).copied()
    }
}

#[test]
fn a_mirror_has_all_that_was_set_before_and_after_it_came() {
    let (switch, _) = switch(3);
    switch.set(&[(0, policy(10)), (2, policy(30))]).unwrap();
    switch.open(Nanos(5), Nanos(7));
    let copy = Arc::new(Copy::default());
    let (weak, all): (Weak<Copy>, _) = (Arc::downgrade(&copy), Arc::clone(&copy));
    switch.add_mirror(weak).unwrap();
    let held = || [0, 1, 2].map(|number| all.policy(number));
    assert_eq!(held(), [Some(policy(10)), None, Some(policy(30))]);
    switch.set(&[(1, policy(20))]).unwrap();
    assert_eq!(held(), [10, 20, 30].map(|delay| Some(policy(delay))));
    switch.set(&[(0, policy(11))]).unwrap();
    switch.renew(Nanos(6));
    switch.stop();
    assert_eq!(held(), [11, 20, 30].map(|delay| Some(policy(delay))));
    let bound = DelayBound::new(0.25, Duration::from_micros(1)).unwrap();
    switch.set_bound(bound);
    let control =
        Control { start_ns: 5, end_ns: 7, stop: 1, expires_ns: 6, generation: 3, bound: bound.to_words() };
    assert_eq!(*all.control.lock().unwrap(), control);
}

#[test]
fn without_programs_mirrors_hear_of_everything() {
    let switch = PolicySwitch::without_programs(2).unwrap();
    let copy = Arc::new(Copy::default());
    let weak: Weak<Copy> = Arc::downgrade(&copy);
    switch.add_mirror(weak).unwrap();
    assert_eq!(switch.policy(1), Some(Policy::default()));
    switch.set(&[(1, policy(20))]).unwrap();
    switch.open(Nanos(5), Nanos(7));
    switch.renew(Nanos(6));
    assert_eq!((switch.policy(1), copy.policy(1)), (Some(policy(20)), Some(policy(20))));
    let open = Control { start_ns: 5, end_ns: 7, expires_ns: 6, generation: 1, ..Control::default() };
    assert_eq!(*copy.control.lock().unwrap(), open);
    assert!(switch.set(&[(2, policy(1))]).is_err());
}

proptest! {
    #[test]
    fn whatever_is_set_holds(sets in prop::collection::vec(some(), 0..12)) {
        let (switch, _) = switch(5);
        let mut expected = [Policy::default(); 5];
        for set in sets {
            let set: Vec<_> = set.into_iter().map(|(number, delay)| (number, policy(delay))).collect();
            for (number, policy) in &set {
                expected[*number as usize] = *policy;
            }
            switch.set(&set).unwrap();
            for (number, policy) in (0..).zip(expected) {
                prop_assert_eq!(switch.policy(number), Some(policy));
            }
        }
    }
}
