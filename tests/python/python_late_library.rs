//! Libraries that a process opens while the session runs.

#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{
    Attached, Fixture,
    pythons::{Form, pythons},
    session::obstacle,
    skip,
};
use speed_bump_tests::{calls::start, helper::GETPPID};

#[test]
fn a_library_that_is_opened_after_the_attach_is_covered_from_then_on() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let Some(python) = pythons().iter().find(|python| python.form == Form::Direct) else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    let fixture = Fixture::service().unwrap();
    let mut service = start(python, &[]);
    let targets = &format!("{GETPPID}native:*/libwork.so:work_cold\n");
    let session = Attached::start(service.pid(), targets, &["--no-inject", "-vv"]).unwrap();
    service.ask("times(5, os.getppid)").unwrap();
    service.ask(&format!("WORK = ctypes.CDLL({:?})", fixture.library())).unwrap();
    session.wait_for("attached 1 more probe sites").unwrap();
    service.ask("times(7, WORK.work_cold, 1); times(5, os.getppid)").unwrap();
    let ended = session.stop().unwrap();
    // What was covered before is not covered twice.
    assert_eq!([ended.counts(0), ended.counts(1)], [(10, 10), (7, 7)]);
    assert!(service.quit().unwrap().success());
}
