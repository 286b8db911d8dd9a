//! Another tool that sets a frame evaluation hook (PEP 523) for a region and puts back what it found, region
//! after region, from 3.9 to 3.11: on 3.8 ours refuses to be installed while another is there.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{PythonBuild, Service, places, pythons, session::obstacle, side_by_side, skip};
use speed_bump_tests::calls::{counts, start};
use speed_bump_tests::helper::attach;

/// Attaches, each of which begins somewhere in a region, or between two.
const ATTACHES: usize = 4;

fn on_each(case: impl Fn(&PythonBuild) + Sync) {
    let hooked: Vec<_> =
        pythons().iter().filter(|python| ((3, 9)..(3, 12)).contains(&python.minor())).collect();
    match obstacle() {
        Some(why) => skip!("{why}"),
        None if hooked.is_empty() => skip!("no CPython from 3.9 to 3.11"),
        None => side_by_side::on_each(&hooked, |python| case(python)),
    }
}

fn with_regions(python: &PythonBuild, how: &str) -> Service {
    let mut service = start(python, &[]);
    let folder = python.inside(&places::fixtures());
    service
        .ask(&format!(
            "sys.dont_write_bytecode = True; sys.path.insert(0, '{}'); from hooked import *; REGIONS = \
             Regions(plain, {how}); REGIONS.start()",
            folder.display()
        ))
        .unwrap();
    service
}

#[test]
fn every_call_is_counted_and_delayed_while_another_hook_comes_and_goes() {
    on_each(|python| {
        let mut service = with_regions(python, "");
        for number in 0..ATTACHES {
            let session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
            service.ask("for _ in range(20): REGIONS.call(10)").unwrap();
            let ended = session.stop().unwrap();
            let said = &ended.run.stderr;
            assert_eq!(counts(&ended, "plain"), (200, 200), "{python}, attach {number}: {said}");
            assert!(ended.report["missed_calls"].is_null(), "{python}, attach {number}: {said}");
        }
        service.ask("REGIONS.end(); assert current() == default()").unwrap();
    });
}

#[test]
fn what_is_missed_beside_a_hook_that_does_not_call_others_is_told_with_its_share() {
    on_each(|python| {
        let mut service = with_regions(python, "direct=True");
        let session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
        session.wait_for("does not call it").unwrap();
        service.ask("time.sleep(0.5)").unwrap();
        let ended = session.stop().unwrap();
        let missed = ended.report["missed_calls"].to_string();
        assert!(missed.contains("% of the time another frame evaluation hook"), "{python}: {missed}");
        assert!(ended.run.stderr.contains("% of the time"), "{python}: {}", ended.run.stderr);
        service.ask("REGIONS.end(); assert current() == default()").unwrap();
    });
}
