//! Kernels before 5.17, whose BPF programs spin short delays alone: what works there, and what is refused
//! with the way out.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_linux::kernel::KernelFacts;
use speed_bump_session::engine::bpf::Form;
use speed_bump_testing::{
    Attached, Fixture, Service,
    exact::{self, Subject},
    session::{self, obstacle},
    skip,
    tool::{self, Running},
    wait::PATIENCE,
};

/// The form of this kernel's programs, if it is an old one.
fn old_form() -> Result<Form, String> {
    if let Some(why) = obstacle() {
        return Err(why.to_owned());
    }
    let facts = KernelFacts::read();
    let form = Form::single(&facts);
    match form.longest_spin() {
        Some(_) => Ok(form),
        None => Err(format!("Linux {} has all that the programs need", facts.release)),
    }
}

fn start() -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).args(["2", "5000"])).unwrap();
    (fixture, service)
}

/// What is said where a session is refused.
fn refusal(service: &Service, targets: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = session::command(folder.path(), service.pid(), targets, flags).unwrap();
    let run = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    run.stderr
}

#[test]
fn long_delays_of_native_functions_are_the_helpers() {
    if let Err(why) = old_form() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    let attach = |service: &mut Service, delay: &str| {
        let flags = ["--engine", "signal", "--delay", delay];
        Attached::start(service.pid(), "native:*/program:worked\n", &flags)
    };
    let mut subject = Subject { service: &mut service, function: "worked", attach };
    let measured = subject.long(10_000_000).unwrap();
    measured.assert_exact("a long delay");
    let target = measured.ended.target(0);
    assert_eq!((&target["missed"], &target["engine"]), (&0.into(), &"signal".into()), "{target}");
    assert!(service.quit().unwrap().success());
}

#[test]
fn short_delays_are_spun_by_the_program() {
    if let Err(why) = old_form() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = exact::start().unwrap();
    let attach = |service: &mut Service, delay: &str| {
        Attached::start(service.pid(), "native:*/program:worked\n", &["--delay", delay])
    };
    let measured = Subject { service: &mut service, function: "worked", attach }.short().unwrap();
    measured.assert_exact("a short delay");
    let target = measured.ended.target(0);
    assert_eq!((&target["calls"], &target["engine"]), (&target["delayed"], &"bpf".into()), "{target}");
}

#[test]
fn what_cannot_be_had_is_refused_with_the_way_out() {
    let form = match old_form() {
        Ok(form) => form,
        Err(why) => return skip!("{why}"),
    };
    let (_fixture, mut service) = start();
    for flags in [&["--delay", "26us"][..], &["--delay", "1ms", "--engine", "bpf"]] {
        let said = refusal(&service, "native:*/service:hot delay=1us\nnative:*/service:cold\n", flags);
        for words in ["line 2: a delay of", "at most 25us", "`--engine signal`", "Linux 5.17"] {
            assert!(said.contains(words), "{said}");
        }
    }
    if !form.tells_what_comes_next() {
        let said = refusal(&service, "native:*/service:hot frequency=2\n", &["--delay", "10us"]);
        for words in ["line 1: this kernel does not allow frequency=", "frequency=1", "Linux 5.15"] {
            assert!(said.contains(words), "{said}");
        }
    }
    // Nothing is left of it.
    service.ask("call hot 1").unwrap();
    assert!(service.quit().unwrap().success());
}

#[test]
fn doctor_and_calibrate_tell_of_it() {
    let form = match old_form() {
        Ok(form) => form,
        Err(why) => return skip!("{why}"),
    };
    let doctor = tool::run(&["doctor"], PATIENCE).unwrap();
    let mut words = vec!["warn  bpf_loop: absent: delays above 25us need the helper"];
    if form == Form::Copied {
        words.push("warn  BPF cookies: absent: each probe site gets a BPF program of its own");
    }
    for words in words {
        assert!(doctor.stdout.contains(words), "{}", doctor.stdout);
    }
    let calibrated = tool::run(&["calibrate"], PATIENCE).unwrap();
    assert!(calibrated.stdout.contains("programs without bpf_loop"), "{}", calibrated.stdout);
}
