//! Tests with bytes that we change after compiling.

use std::sync::LazyLock;

use proptest::prelude::*;
use speed_bump_selector::{
    SelectorError,
    layout::{LINE_BYTES, MEMBER_BYTES, MODULE_BYTES, PATTERN_BYTES, VERSION},
};

use super::*;

const TEXT: &str = "*/a/*:A.*\njson.decoder:[!a-c]?*é\n*:f delay=1us caller=main\n!*:*.skip\n!x.py:*";

static COMPILED: LazyLock<Vec<u8>> = LazyLock::new(|| compiled(TEXT));

/// Corrects the checksum, so that the changed bytes pass this check.
fn seal(bytes: &mut [u8]) {
    let sum = checksum(bytes).to_le_bytes();
    if let Some(place) = bytes.get_mut(HEADER_BYTES - 8..HEADER_BYTES) {
        place.copy_from_slice(&sum);
    }
}

fn error(bytes: &[u8]) -> SelectorError {
    Selector::new(bytes).expect_err("the bytes are refused")
}

#[test]
fn the_layout_stays_as_it_is() {
    let bytes = compiled(TEXT);
    // Another length or checksum means that the layout has changed: a helper that is already resident cannot
    // read it. Raise `layout::VERSION`, and then change the numbers here.
    assert_eq!(VERSION, 2);
    assert_eq!((bytes.len(), checksum(&bytes)), (886, 13_649_328_514_597_745_532));
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = compiled(TEXT);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x11;
        error(&changed);
    }
}

#[test]
fn every_other_length_is_noticed() {
    let bytes = compiled(TEXT);
    for length in 0..bytes.len() {
        let mut shorter = bytes[..length].to_vec();
        error(&shorter);
        seal(&mut shorter);
        error(&shorter);
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(error(&longer), SelectorError::Length { found: longer.len() });
}

#[test]
fn errors_name_what_is_wrong() {
    let bytes = compiled(TEXT);
    assert_eq!(error(b""), SelectorError::NotASelector);
    assert_eq!(error(&[0; 100]), SelectorError::NotASelector);
    let header = HEADER_BYTES;
    let word = |at: usize| {
        let word = bytes[at..].first_chunk().unwrap();
        u32::from_le_bytes(*word) as usize
    };
    let (patterns, modules, lines) = (word(20), word(24), word(28));
    let modules_at = header + patterns * PATTERN_BYTES;
    let lines_at = modules_at + modules * MODULE_BYTES;
    let members_at = lines_at + lines * LINE_BYTES;
    let programs_at = members_at + lines * MEMBER_BYTES;
    for (at, value, expected) in [
        (8, 3, SelectorError::Version { found: 3 }),
        (12, 0, SelectorError::Length { found: bytes.len() }),
        (16, 2, SelectorError::Line(2)),
        (20, u32::MAX, SelectorError::Length { found: bytes.len() }),
        (32, 99, SelectorError::TargetLines { found: 99 }),
        (44, 99, SelectorError::TargetLines { found: 3 }),
        (header + 32, 1, SelectorError::Pattern(0)),
        (header + 36, u32::MAX, SelectorError::Pattern(0)),
        (header + 40, 1, SelectorError::Pattern(0)),
        (header + 44, 1, SelectorError::Pattern(0)),
        (header + 48, 99, SelectorError::Pattern(0)),
        (modules_at, 99, SelectorError::Module(0)),
        (modules_at + 4, 2, SelectorError::Module(0)),
        (modules_at + 8, u32::MAX, SelectorError::Module(0)),
        (modules_at + 12, 2, SelectorError::Module(0)),
        (lines_at + 4, 99, SelectorError::Line(0)),
        (lines_at + 8, 99, SelectorError::Line(0)),
        (lines_at + 12, 3, SelectorError::Line(0)),
        (lines_at + 16, 33, SelectorError::Line(0)),
        (lines_at + 5 * LINE_BYTES + 16, 0, SelectorError::Line(5)),
        (members_at, 1, SelectorError::Module(0)),
        (programs_at, 0x0606_0606, SelectorError::Pattern(0)),
    ] {
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        if expected != (SelectorError::Length { found: bytes.len() }) && at > 8 {
            assert_eq!(error(&changed), SelectorError::Checksum, "{value} at {at}");
        }
        seal(&mut changed);
        assert_eq!(error(&changed), expected, "{value} at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// For random changes, the reader refuses the selector, or its answers are numbers of targets.
    #[test]
    fn a_corrupt_selector_is_refused_or_answers(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        file in prop::sample::select(&["/x/a/b.py", "/json/decoder.py", "x.py", "", "é/"][..]),
        name in prop::sample::select(&["A.f", "f", "zé", "A.skip", ""][..]),
    ) {
        let mut bytes = COMPILED.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        seal(&mut bytes);
        if let Ok(selector) = Selector::new(&bytes) {
            let module = selector.in_module(file);
            for found in [module.select(name), module.select_by_last_component(name)] {
                prop_assert!(found.is_none_or(|target| target < selector.targets()));
            }
            module.may_select(name);
            prop_assert!(module.candidates(name).all(|of| of.target < selector.targets()));
            module.as_caller(name);
            module.may_call(name);
        }
    }

    #[test]
    fn bytes_are_no_selector(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Selector::new(&bytes).is_err());
    }
}
