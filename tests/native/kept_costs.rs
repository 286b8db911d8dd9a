//! One session's measurements of the machine serve the next one, unless they cannot be trusted.

#![allow(clippy::unwrap_used)]

use std::{
    cell::OnceCell,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::Path,
    thread,
};

use serde_json::{Value, json};
use speed_bump_testing::{
    Attached, Service,
    exact::{self, Subject},
    pythons,
    session::{obstacle, obstacle_to_long_spins},
    skip, tool,
    wait::PATIENCE,
};
use speed_bump_tests::{
    calls::start,
    processes::{mount, own_mounts},
};

const KEPT: &str = "/run/speed-bump-ebpf/costs.json";
const TARGETS: &str = "native:*/program:worked\n";
const USED: &str = "what probes cost is known from an earlier session";
const MEASURED: &str = "the machine was measured in ";
const NOT_USED: &str = "the costs that were kept are not used: ";
const OFF: &str = "costs of probes have changed";

/// Does something where /run is the test's own.
fn with_own_run(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            own_mounts();
            mount("tmpfs", Path::new("/run"), "mode=755");
            test();
        });
        done.join().unwrap();
    });
}

fn kept() -> Value {
    serde_json::from_slice(&fs::read(KEPT).unwrap()).unwrap()
}

fn keep(value: &Value) {
    fs::write(KEPT, value.to_string()).unwrap();
}

/// The same with twenty times the overheads: no machine is as noisy.
fn too_high(kept: &Value) -> Value {
    let mut wrong = kept.clone();
    for cost in wrong["costs"].as_array_mut().unwrap() {
        cost["overhead"] = json!(cost["overhead"].as_u64().unwrap() * 20);
    }
    wrong
}

/// A session with a delay that has to be exact. Returns what it said by the time when it was attached; where
/// exactness takes several sessions, the first.
fn exact_session(service: &mut Service) -> String {
    let said = OnceCell::new();
    let attach = |service: &mut Service, delay: &str| {
        let attached = Attached::start(service.pid(), TARGETS, &["--delay", delay, "--engine", "bpf"])?;
        said.get_or_init(|| attached.stderr());
        Ok(attached)
    };
    let measured = Subject { service, function: "worked", attach }.long(1_000_000).unwrap();
    measured.assert_exact("with what is kept");
    said.into_inner().unwrap()
}

/// The file is as the tool writes it.
fn is_sound() {
    let metadata = fs::symlink_metadata(KEPT).unwrap();
    assert!(metadata.is_file());
    assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o7777), (0, 0o600));
    assert!(metadata.len() < 65_536);
    assert_eq!(kept()["costs"].as_array().map(Vec::len).filter(|kinds| *kinds > 0), Some(8));
}

#[test]
fn the_next_session_uses_what_was_measured() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    with_own_run(|| {
        let (_fixture, mut service) = exact::start().unwrap();
        let said = exact_session(&mut service);
        assert!(said.contains(MEASURED) && !said.contains(USED), "{said}");
        is_sound();
        let said = exact_session(&mut service);
        assert!(said.contains(USED) && !said.contains(MEASURED), "{said}");
        is_sound();
        // `calibrate` measures everything, whatever is kept.
        let wrong = too_high(&kept());
        keep(&wrong);
        let run = tool::run(&["calibrate"], PATIENCE).unwrap();
        assert!(run.status.success(), "{}", run.stderr);
        is_sound();
        let overhead = |of: &Value, kind: usize| of["costs"][kind]["overhead"].as_u64();
        let measured = kept();
        assert!((0..8).all(|kind| overhead(&measured, kind) < overhead(&wrong, kind)), "{measured}");
        let said = exact_session(&mut service);
        assert!(said.contains(USED) && !said.contains(MEASURED), "{said}");
    });
}

#[test]
fn what_no_longer_holds_is_measured_again() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    with_own_run(|| {
        let (_fixture, mut service) = exact::start().unwrap();
        exact_session(&mut service);
        let wrong = too_high(&kept());
        let attach = |service: &mut Service, delay: &str| {
            keep(&wrong);
            let session = Attached::start(service.pid(), TARGETS, &["--delay", delay, "--engine", "bpf"])?;
            assert!(session.has_said(USED) && session.has_said(OFF));
            assert_ne!(kept(), wrong);
            Ok(session)
        };
        // So short that nothing would be left of it.
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        subject.short().unwrap().assert_exact("where what is kept is wrong");
    });
}

#[test]
fn what_cannot_be_trusted_is_not_used() {
    if let Some(why) = obstacle().or_else(obstacle_to_long_spins) {
        return skip!("{why}");
    }
    with_own_run(|| {
        let (_fixture, mut service) = exact::start().unwrap();
        exact_session(&mut service);
        let good = kept();
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut value = good.clone();
            change(&mut value);
            keep(&value);
        };
        let elsewhere = Path::new("/run/elsewhere.json");
        fs::write(elsewhere, good.to_string()).unwrap();
        let cases: [(&str, &dyn Fn()); 7] = [
            ("they are of another boot, ", &|| changed(&|value| value["key"]["boot_id"] = json!("another"))),
            ("a call takes more than ", &|| {
                changed(&|value| value["costs"][3]["overhead"] = json!(1_u64 << 40))
            }),
            ("expected value", &|| fs::write(KEPT, "rubbish").unwrap()),
            ("more than 65536 bytes", &|| fs::File::create(KEPT).unwrap().set_len(1 << 40).unwrap()),
            ("belongs to another user", &|| chown(KEPT, Some(65_534), None).unwrap()),
            ("may write to costs.json", &|| {
                fs::set_permissions(KEPT, fs::Permissions::from_mode(0o666)).unwrap();
            }),
            ("symbolic links", &|| {
                fs::remove_file(KEPT).unwrap();
                symlink(elsewhere, KEPT).unwrap();
            }),
        ];
        for (why, tamper) in cases {
            tamper();
            let said = exact_session(&mut service);
            let told = said.lines().find_map(|line| line.split_once(NOT_USED)).map(|(_, told)| told);
            assert!(told.is_some_and(|told| told.contains(why)), "{why}: {said}");
            assert!(said.contains(MEASURED), "{why}: {said}");
            is_sound();
        }
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), good.to_string());
        // If nothing can be kept, nothing is, and there is no message about it.
        mount("tmpfs", Path::new("/run"), "ro");
        let said = exact_session(&mut service);
        assert!(said.contains(MEASURED) && !said.contains("warning"), "{said}");
        assert!(!Path::new(KEPT).exists());
    });
}

#[test]
fn the_helper_alone_needs_no_measuring() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    with_own_run(|| {
        let python = pythons::find().unwrap().first().unwrap();
        let mut service = start(python, &[]);
        let session = Attached::start(service.pid(), "*calls.py:plain\n", &["--delay", "200us"]).unwrap();
        service.ask("times(30, plain, 1)").unwrap();
        let ended = session.stop().unwrap();
        assert_eq!(ended.counts(0), (30, 30), "{}", ended.run.stderr);
        assert!(!ended.run.stderr.contains(MEASURED), "{}", ended.run.stderr);
        assert!(!Path::new(KEPT).exists());
    });
}
