//! Arbitrary bytes as a targets file: reading it, selecting by it and proposing candidates must not panic,
//! and what it selects must obey the order of its lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use speed_bump_session::targets::{ParsedTargets, Selection, TargetKind, Targets};

fuzz_target!(|bytes: &[u8]| {
    // The first byte decides what the file system and the user say.
    let Some((&choices, bytes)) = bytes.split_first() else { return };
    let is_elf = |path: &str| (path.len() ^ usize::from(choices)) & 1 == 0;
    let targets = match ParsedTargets::parse("fuzz", bytes, choices & 2 != 0) {
        Ok(parsed) => parsed.decide(is_elf),
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz:"), "{error}");
            return;
        }
    };

    let mut ids: Vec<&str> = targets.iter().map(|(_, target)| target.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), targets.len());

    // What the file itself says is the likeliest to be selected by it.
    for (_, target) in targets.iter().take(8) {
        let (module, name) = (target.module.as_str(), target.name.as_str());
        assert!(module.contains(['*', '?', '[']) || target.module.matches(module));
        let selection = match target.kind {
            TargetKind::Python => {
                let python = targets.python_in(module);
                check(&targets, &python.select_by_last_component(name));
                python.select(name)
            }
            TargetKind::Native => targets.native_in(module).select([name, "f@@V"]),
            TargetKind::Usdt => targets.usdt_in(module).select(name, name),
        };
        check(&targets, &selection);
        assert!(target.nearest([(module, name), ("/a.py", "f")], 2).len() <= 2);
    }
});

fn check(targets: &Targets, selection: &Selection) {
    let all: Vec<_> = selection.winner.into_iter().chain(selection.shadowed.iter().copied()).collect();
    assert!(all.is_sorted_by(|a, b| a < b));
    assert!(all.iter().all(|index| targets.get(*index).is_some()));
    assert!(selection.winner.is_none() || selection.excluded_by.is_none());
    assert!(selection.excluded_by.is_none_or(|index| targets.exclusion(index).is_some()));
}
