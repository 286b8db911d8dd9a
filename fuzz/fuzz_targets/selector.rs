//! Any bytes as a selector, asked about any names: it is refused, or answers with numbers of targets.
//!
//! Bytes that mean something as a targets file are compiled, changed, and given a right checksum, so that
//! what it covers is reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use speed_bump_selector::{
    Selector,
    layout::{self, HEADER_BYTES},
};
use speed_bump_session::targets::{ParsedTargets, selector};

fuzz_target!(|input: (&[u8], &str, &str, Vec<(u16, u8)>)| {
    let (bytes, file, name, changes) = input;
    // The bytes themselves.
    ask(bytes, file, name);

    // What a targets file compiles to answers as the targets do, and may be changed anywhere.
    let Ok(parsed) = ParsedTargets::parse("fuzz", bytes, true) else { return };
    let targets = parsed.decide(|_| false);
    let Ok(mut compiled) = selector::compile(&targets) else { return };
    let expected = targets.python_in(file).select(name).winner.map(|target| target.0);
    match Selector::new(&compiled) {
        Ok(selector) => {
            assert_eq!(selector.select(file, name), expected);
            if expected.is_some() {
                assert!(selector.may_concern(file, name.rsplit('.').next().unwrap_or(name)));
            }
        }
        Err(error) => panic!("{error}"),
    }
    for (at, value) in changes {
        let at = usize::from(at) % compiled.len();
        compiled[at] = value;
    }
    let sum = layout::checksum(&compiled).to_le_bytes();
    compiled[HEADER_BYTES - sum.len()..HEADER_BYTES].copy_from_slice(&sum);
    ask(&compiled, file, name);
});

fn ask(bytes: &[u8], file: &str, name: &str) {
    let Ok(selector) = Selector::new(bytes) else { return };
    let module = selector.in_module(file);
    for found in [module.select(name), module.select_by_last_component(name)] {
        assert!(found.is_none_or(|target| target < selector.targets()));
    }
    module.may_select(name);
    module.as_caller(name);
    module.may_call(name);
    assert!(module.candidates(name).all(|of| of.target < selector.targets()));
}
