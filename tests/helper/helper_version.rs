//! How the helper learns which CPython it is in, while others ask for that as well.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::panic)]

use speed_bump_testing::{places, pythons::Form};
use speed_bump_tests::calls::{counts, start};
use speed_bump_tests::helper::{attach, on_each};

/// Processes of each interpreter: some are found while the text is gone.
const PROCESSES: usize = 4;
/// Children, one after the other.
const CHILDREN: usize = 20;

/// Up to 3.11 each call of `Py_GetVersion` writes the one buffer that all callers read, as Python does itself
/// when it begins.
#[test]
fn a_process_that_asks_for_its_version_meanwhile_is_covered() {
    on_each(|python| {
        for _ in 0..PROCESSES {
            let mut service = start(python, &[]);
            let folder = python.inside(&places::fixtures());
            service
                .ask(&format!(
                    "sys.dont_write_bytecode = True; sys.path.insert(0, '{}'); import versions; \
                     ASKER = versions.Asker(); ASKER.start()",
                    folder.display()
                ))
                .unwrap();
            let session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
            service.ask("times(10, plain, 1)").unwrap();
            let ended = session.stop().unwrap();
            assert_eq!(counts(&ended, "plain"), (10, 10), "{python}: {}", ended.run.stderr);
            service.ask("ASKER.end()").unwrap();
        }
    });
}

#[test]
fn children_that_live_for_milliseconds_are_of_a_known_version() {
    on_each(|python| {
        // What runs through a dynamic loader of its own cannot run itself anew.
        if python.form == Form::Loader {
            return;
        }
        let mut service = start(python, &[]);
        let session = attach(&service, "*/calls.py:plain\n", &["--delay", "1us"]);
        let child = "subprocess.check_call([sys.executable, '-S', '-c', 'import time; time.sleep(0.05)'])";
        service.ask(&format!("for _ in range({CHILDREN}): {child}")).unwrap();
        let ended = session.stop().unwrap();
        let said = &ended.run.stderr;
        assert!(!said.contains("does not know this version"), "{python}: {said}");
    });
}
