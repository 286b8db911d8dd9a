//! How a function that matters may slow units down, if that is known.

use super::words::{name_and_place, some_of};
use crate::{
    analysis::{
        factor::{Factor, FactorKind},
        findings::Findings,
        verdict::Verdict,
    },
    record::{InCommon, Sharing},
};

/// If threads wait for processors for a smaller share of the time, waiting does not slow them down much.
const WAITS: f64 = 0.05;
/// Functions that one line names.
const NAMED: usize = 3;

/// A line for each shared thing, with the functions that share it with units.
pub(super) fn shared(findings: &Findings) -> Vec<String> {
    let mut shared: Vec<(String, Vec<String>)> = Vec::new();
    for factor in findings.factors.iter().filter(|of| is_told(of)) {
        let Some(text) = factor.sharing.as_ref().and_then(text) else { continue };
        match shared.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) => names.push(name_and_place(factor)),
            None => shared.push((text, vec![name_and_place(factor)])),
        }
    }
    shared.iter().map(|(text, names)| format!("{}: {text}", some_of(names, NAMED))).collect()
}

fn is_told(factor: &Factor) -> bool {
    factor.kind != FactorKind::Group && factor.verdict == Verdict::Matters
}

fn text(sharing: &Sharing) -> Option<String> {
    let InCommon { threads, gil, futexes, processor_wait } = sharing.with_units?;
    let all = sharing.threads.len();
    let mut shared = Vec::new();
    if threads >= all {
        shared.push("the same thread".to_owned());
    } else if threads > 0 {
        shared.push(format!("{threads} of its {all} threads do units too"));
    }
    if gil {
        shared.push("the GIL".to_owned());
    }
    if futexes > 0 {
        shared.push("a futex that it and other units wait on (a lock, or a queue)".to_owned());
    }
    if let Some(wait) = processor_wait.filter(|wait| threads < all && *wait >= WAITS) {
        shared.push(format!(
            "processors: threads that do units waited for one for {:.0} % of the time that they wanted one",
            wait * 100.0
        ));
    }
    Some(if shared.is_empty() {
        "nothing that was observed: other threads, no GIL, no futex".to_owned()
    } else {
        shared.join(", ")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::units::Pid;

    #[test]
    fn lines_name_what_is_shared() {
        let of = |threads: i32, with_units: InCommon| {
            let threads = (1..=threads).filter_map(Pid::new).collect();
            text(&Sharing { threads, with_units: Some(with_units) }).unwrap()
        };
        let none = InCommon::default();
        assert_eq!(of(1, InCommon { threads: 1, processor_wait: Some(0.2), ..none }), "the same thread");
        assert_eq!(of(1, InCommon { gil: true, processor_wait: Some(0.01), ..none }), "the GIL");
        let shared = InCommon { threads: 1, futexes: 2, processor_wait: Some(0.2), ..none };
        assert_eq!(
            of(3, shared),
            "1 of its 3 threads do units too, a futex that it and other units wait on (a lock, or a \
             queue), processors: threads that do units waited for one for 20 % of the time that they wanted \
             one"
        );
        assert_eq!(of(1, none), "nothing that was observed: other threads, no GIL, no futex");
        assert_eq!(text(&Sharing { threads: Vec::new(), with_units: None }), None);
    }
}
