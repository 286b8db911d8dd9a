//! The engine `kmod` against the real module, and what it says where it cannot work.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "kmod/loaded.rs"]
mod loaded;

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use loaded::{FOLDER, Kernel, busybox};
use rustix::process::Signal;
use speed_bump_testing::{Attached, Fixture, Service, session, skip, tool, wait::wait_until};
use speed_bump_user::{
    engine::kmod::{KmodError, Module, RECORDS, Refusal},
    units::Nanos,
};

const KMOD: [&str; 2] = ["--engine", "kmod"];
const HOT: &str = "native:*/service:hot\n";

fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    KMOD.into_iter().chain(flags.iter().copied()).collect()
}

fn start(threads: u32) -> (Fixture, Service) {
    let fixture = Fixture::service().unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(threads.to_string())).unwrap();
    (fixture, service)
}

fn load(kernel: &Kernel) {
    busybox(&["insmod", kernel.module().to_str().unwrap()]);
    assert!(Path::new(FOLDER).is_dir());
}

/// The module, loaded, unless this machine cannot have it.
fn loaded() -> Option<(Kernel, Module)> {
    let kernel = Kernel::take()?;
    load(&kernel);
    Some((kernel, Module::open(Path::new(FOLDER)).unwrap()))
}

fn attach(service: &Service, targets: &str, flags: &[&str]) -> Attached {
    Attached::start(service.pid(), targets, &with(flags)).unwrap()
}

/// Runs the tool to an end that comes by itself: its exit code, and all that it said.
fn refused(pid: i32, targets: &str, flags: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    said(session::command(folder.path(), pid, targets, flags).unwrap().output().unwrap())
}

fn said(output: Output) -> (Option<i32>, String) {
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs `list`, which cleans up like any run with the module.
fn list(pid: i32, targets: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("targets.txt");
    fs::write(&file, targets).unwrap();
    let mut command = Command::new(tool::path().unwrap());
    command.args(["list", "--pid", &pid.to_string(), "--targets"]).arg(file).args(KMOD);
    let (code, text) = said(command.output().unwrap());
    assert_eq!(code, Some(0), "{text}");
    text
}

fn names(module: &Module) -> Vec<String> {
    module.listing().unwrap().targets.into_iter().map(|target| target.name).collect()
}

fn notes() -> usize {
    let notes = fs::read_dir(RECORDS).into_iter().flatten().flatten();
    notes.filter(|entry| entry.file_name().to_string_lossy().ends_with(".json")).count()
}

#[track_caller]
fn assert_empty(module: &Module) {
    assert_eq!((names(module), module.is_enabled().unwrap(), notes()), (vec![], false, 0));
}

#[test]
fn without_the_module_the_error_says_what_to_do() {
    let kernel = Kernel::take();
    if kernel.is_none() && Path::new(FOLDER).is_dir() {
        return skip!("somebody has loaded the module");
    }
    let (_fixture, service) = start(0);
    let (code, said) = refused(service.pid(), HOT, &KMOD);
    assert_eq!(code, Some(4), "{said}");
    for word in ["speed_bump is not loaded", "insmod", "--engine bpf"] {
        assert!(said.contains(word), "{said}");
    }
    let said = list(service.pid(), HOT);
    assert!(said.contains("/service:hot 1000 pid=") && said.contains("an attach would fail"), "{said}");
}

#[test]
fn what_the_module_cannot_do_is_refused_whether_it_is_there_or_not() {
    let (_fixture, service) = start(0);
    let own = std::process::id().to_string();
    let cases: [(&str, &[&str], &str); 9] = [
        ("json:loads\n", &[], "line 1: `json:loads`: the kernel module cannot reach Python functions"),
        ("usdt:*:service:tick\n", &[], "the kernel module cannot reach USDT probes"),
        ("native:*/service:hot frequency=3\n", &[], "the kernel module cannot delay every Nth call"),
        (HOT, &["--frequency", "3"], "delay every Nth call (--frequency"),
        (HOT, &["--no-children"], "leave children out"),
        (HOT, &["--entry", "usdt"], "reach Python functions (--entry)"),
        (HOT, &["--pid", &own], "only for one and its descendants"),
        (HOT, &["--delay", "11s"], "longest delay"),
        (HOT, &["--engine", "module"], "is no engine"),
    ];
    for (targets, flags, words) in cases {
        let flags = if flags.contains(&"--engine") { flags.to_vec() } else { with(flags) };
        let (code, said) = refused(service.pid(), targets, &flags);
        assert_eq!(code, Some(2), "{flags:?}: {said}");
        assert!(said.contains(words), "{flags:?}: {said}");
    }
    let mut run = Command::new(tool::path().unwrap());
    run.args(["run", "--targets", "/dev/null"]).args(KMOD).args(["--", "true"]);
    let (code, said) = said(run.output().unwrap());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("attach to it with --pid"), "{said}");
}

#[test]
fn calls_are_counted_exactly_and_delayed_as_seen_from_inside() {
    const DELAY_NS: u64 = 2_000_000;
    let Some((_kernel, module)) = loaded() else { return };
    let (fixture, mut service) = start(0);
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_* delay=3ms id=library\n";
    let session = attach(&service, targets, &["--delay", "2ms"]);
    assert!(module.is_enabled().unwrap());
    service.ask("call hot 30").unwrap();
    service.ask("call work_cold 10").unwrap();
    service.ask("call outer 10").unwrap();
    let hot = service.function("hot").unwrap();
    assert_eq!(hot.calls, 30);
    assert!(hot.median_ns >= DELAY_NS, "{hot:?}");
    assert!(service.function("work_cold").unwrap().median_ns >= 3_000_000);
    let untouched = service.function("outer").unwrap();
    assert!(untouched.median_ns < DELAY_NS, "{untouched:?}");

    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (30, 30), "{}", ended.run.stderr);
    assert_eq!(ended.counts(1), (10, 10), "{}", ended.run.stderr);
    assert_eq!(ended.report["engine"], "kmod");
    let target = ended.target(0);
    assert_eq!((&target["engine"], &target["entry"]), (&"kmod".into(), &"symbol".into()));
    assert_eq!(target["functions"][0]["requested_ns"], 30 * DELAY_NS);
    assert!(target["delivered_ns"].as_u64().unwrap() >= 30 * DELAY_NS, "{target}");
    assert_eq!(target["functions"][0]["file"], fixture.program().to_str().unwrap());
    assert_eq!(ended.report["warnings"], serde_json::json!([]));
    assert_empty(&module);

    service.ask("reset").unwrap();
    service.ask("call hot 30").unwrap();
    assert!(service.function("hot").unwrap().median_ns < DELAY_NS);
}

#[test]
fn children_are_slowed_down_too() {
    let Some((_kernel, module)) = loaded() else { return };
    let (_fixture, mut service) = start(0);
    let session = attach(&service, HOT, &["--delay", "100us"]);
    service.ask("fork").unwrap();
    service.ask("call hot 5").unwrap();
    service.ask("relay call hot 7").unwrap();
    assert_eq!(session.stop().unwrap().counts(0), (12, 12));
    assert_empty(&module);
}

#[test]
fn the_window_is_made_by_rewriting_delays() {
    let Some((_kernel, module)) = loaded() else { return };
    let (_fixture, mut service) = start(0);
    let session = attach(&service, HOT, &["--start-after", "1000s", "--delay", "10s"]);
    service.ask("call hot 20").unwrap();
    assert_eq!(module.listing().unwrap().targets[0].delay, Nanos(0));
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (20, 0), "{}", ended.run.stderr);
    assert_eq!(ended.target(0)["delivered_ns"], 0);

    let session = attach(&service, HOT, &["--start-after", "3s", "--duration", "3s", "--delay", "50us"]);
    service.ask("call hot 20").unwrap();
    wait_until("the window opens", || Ok(module.listing()?.targets[0].delay == Nanos(50_000))).unwrap();
    service.ask("call hot 30").unwrap();
    let ended = session.finish().unwrap();
    let (calls, delayed) = ended.counts(0);
    assert!(calls == 50 && (30..=50).contains(&delayed), "{delayed} of {calls}");
    assert!(ended.target(0)["delivered_ns"].as_u64().unwrap() >= 30 * 50_000);
    assert!(ended.run.stderr.contains("the window closed"), "{}", ended.run.stderr);
    assert_empty(&module);
}

#[test]
fn whatever_ends_a_run_but_a_kill_leaves_nothing() {
    let Some((_kernel, module)) = loaded() else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (_fixture, mut service) = start(0);
        let mut session = attach(&service, HOT, &["--delay", "10s"]);
        std::thread::scope(|scope| {
            // Thirty times ten seconds, if the spins did not end with the session.
            let asking = scope.spawn(|| service.ask("call hot 30").map(drop));
            wait_until("the first spin begins", || Ok(module.listing()?.targets[0].hits > 0)).unwrap();
            session.signal(signal).unwrap();
            let ended = session.finish().unwrap();
            assert!(ended.run.stderr.contains("1 delays ended early"), "{}", ended.run.stderr);
            asking.join().unwrap().unwrap();
        });
        assert_empty(&module);
    }
    // So does the end of the process, and its exec.
    for command in ["quit", "exec"] {
        let (_fixture, mut service) = start(0);
        let session = attach(&service, HOT, &[]);
        let _ = service.ask(command);
        let ended = session.finish().unwrap();
        assert!(ended.run.stderr.contains("the target ended"), "{}", ended.run.stderr);
        assert_empty(&module);
    }
}

#[test]
fn what_a_killed_run_left_goes_with_the_next_and_a_live_one_stays() {
    let Some((kernel, module)) = loaded() else { return };
    let (fixture, mut service) = start(0);
    let killed = attach(&service, "native:*/service:hot\nnative:*/service:cold\n", &["--delay", "1ms"]);
    killed.kill().unwrap();
    // Nobody is there to remove them.
    assert_eq!((names(&module).len(), module.is_enabled().unwrap(), notes()), (2, true, 1));
    let text = list(service.pid(), HOT);
    assert!(text.contains("was killed; removed 2 targets") && text.contains("disabled it again"), "{text}");
    assert_empty(&module);

    // Others have come meanwhile: they stay, and so does what they need.
    attach(&service, HOT, &["--delay", "1ms"]).kill().unwrap();
    let others = format!("{}:work_hot", fixture.library().display());
    module.command(&format!("+{others} 77")).unwrap();
    let session = attach(&service, HOT, &["--delay", "100us"]);
    service.ask("call hot 9").unwrap();
    service.ask("call work_hot 4").unwrap();
    // A live run is none of the next one's business.
    let text = list(service.pid(), HOT);
    assert!(!text.contains("was killed") && names(&module).len() == 2, "{text}");
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (9, 9));
    let warnings = ended.report["warnings"].to_string();
    assert!(warnings.contains("removed 1 targets") && warnings.contains("stays enabled"), "{warnings}");
    let listing = module.listing().unwrap();
    assert_eq!((listing.targets.len(), module.is_enabled().unwrap(), notes()), (1, true, 0));
    let other = listing.find(&others).unwrap();
    assert_eq!((other.delay, other.hits, other.process), (Nanos(77), 4, None));

    // The module was unloaded and loaded since: there is nothing to remove.
    module.enable(false).unwrap();
    module.command(&format!("-{others}")).unwrap();
    attach(&service, HOT, &["--delay", "1ms"]).kill().unwrap();
    kernel.unload();
    load(&kernel);
    let text = list(service.pid(), HOT);
    assert!(text.contains("removed 0 targets"), "{text}");
    assert_empty(&module);
}

#[test]
fn two_runs_at_once_share_the_module() {
    let Some((_kernel, module)) = loaded() else { return };
    let ((_first, mut first), (_second, mut second)) = (start(0), start(0));
    let first_session = attach(&first, HOT, &["--delay", "100us"]);
    let second_session = attach(&second, HOT, &["--delay", "100us"]);
    first.ask("call hot 3").unwrap();
    assert_eq!(first_session.stop().unwrap().counts(0), (3, 3));
    assert!(module.is_enabled().unwrap(), "the second needs it");
    second.ask("call hot 5").unwrap();
    assert_eq!(second_session.stop().unwrap().counts(0), (5, 5));
    assert_empty(&module);
}

#[test]
fn other_peoples_targets_are_left_alone() {
    let Some((_kernel, module)) = loaded() else { return };
    let (fixture, mut service) = start(0);
    let hot = format!("{}:hot", fixture.program().display());
    module.command(&format!("+{hot} 7")).unwrap();
    let before = module.listing().unwrap();

    // Enabling would begin their delays.
    let (code, said) = refused(service.pid(), "native:*/service:cold\n", &KMOD);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("is disabled and has 1 targets of somebody else"), "{said}");
    assert_eq!(
        (module.listing().unwrap(), module.is_enabled().unwrap(), notes()),
        (before.clone(), false, 0)
    );

    // Theirs is not ours to have, by its own name or another.
    module.enable(true).unwrap();
    let (code, said) = refused(service.pid(), "native:*/service:cold\nnative:*/service:hot\n", &KMOD);
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.contains("is a target of somebody else in the kernel module already (7ns for all"),
        "{said}"
    );
    assert_eq!((module.listing().unwrap(), notes()), (before, 0));
    module.command(&format!("-{hot}")).unwrap();
    let link = fixture.folder().join("link");
    fs::hard_link(fixture.program(), &link).unwrap();
    module.command(&format!("+{}:hot 7", link.display())).unwrap();
    let before = module.listing().unwrap();
    let (code, said) = refused(service.pid(), "native:*/service:cold\nnative:*/service:hot\n", &KMOD);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("by another one of the same file"), "{said}");
    assert_eq!((module.listing().unwrap(), module.is_enabled().unwrap(), notes()), (before, true, 0));

    // Beside them we work, and leave the module enabled as it was.
    let session = attach(&service, "native:*/service:cold\n", &["--delay", "100us"]);
    service.ask("call cold 6").unwrap();
    // Whoever takes ours away is told of.
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (6, 6));
    assert_eq!((names(&module).len(), module.is_enabled().unwrap(), notes()), (1, true, 0));
    let session = attach(&service, "native:*/service:cold\n", &[]);
    module.command("-*").unwrap();
    module.enable(false).unwrap();
    session.wait_for("somebody has disabled the kernel module").unwrap();
    let ended = session.stop().unwrap();
    let warnings = ended.report["warnings"].to_string();
    assert!(warnings.contains("somebody else has removed it"), "{warnings}");
    assert_empty(&module);
}

#[test]
fn what_is_too_much_is_refused_and_nothing_is_touched() {
    let Some((_kernel, module)) = loaded() else { return };
    let long = "x".repeat(128);
    let mut source = String::from("#include <stdio.h>\n");
    for number in 0..65 {
        source += &format!("__attribute__((noipa)) int many{number}(int x) {{ return x + {number}; }}\n");
    }
    source += &format!("__attribute__((noipa)) int {long}(int x) {{ return x; }}\n");
    source += "int main(void) { puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout); return getchar() == 0; }\n";
    let fixture = Fixture::compile_text(&source, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let (code, said) = refused(service.pid(), "native:*/program:many*\n", &KMOD);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("65 functions are selected, and the kernel module has room for 64"), "{said}");
    let (code, said) = refused(service.pid(), "native:*/program:x*\n", &KMOD);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("symbols of fewer than 128 bytes"), "{said}");
    let (code, said) = refused(service.pid(), "native:*/program:none\n", &with(&["--strict"]));
    assert_eq!(code, Some(3), "{said}");
    assert_empty(&module);

    let session = attach(&service, "native:*/program:many*\n!native:*/program:many64\n", &[]);
    assert_eq!(names(&module).len(), 64);
    let other = Fixture::service().unwrap();
    let refusal = module.command(&format!("+{}:hot", other.program().display())).unwrap_err();
    assert!(matches!(refusal, KmodError::Refused { why: Refusal::Full, .. }), "{refusal}");
    session.stop().unwrap();
    assert_empty(&module);
}

#[test]
fn every_error_of_the_module_is_a_sentence() {
    let Some((_kernel, module)) = loaded() else { return };
    let (fixture, _service) = start(0);
    let folder = fixture.folder().display().to_string();
    let program = fixture.program().display().to_string();
    let script = fixture.folder().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let written = fixture.folder().join("written");
    fs::copy(fixture.program(), &written).unwrap();
    let writer = fs::File::options().append(true).open(&written).unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    module.command(&format!("+{program}:cold 5")).unwrap();
    let cases = [
        (format!("+{program}:cold 5"), Refusal::Exists),
        (format!("+{program}:none 5"), Refusal::NotThere),
        (format!("+{folder}/none:f 5"), Refusal::NotThere),
        (format!("={program}:hot 5"), Refusal::NotThere),
        (format!("-{program}:hot"), Refusal::NotThere),
        (format!("+{}:f 5", script.display()), Refusal::NotElf),
        (format!("+{folder}:f 5"), Refusal::NotElf),
        (format!("+/{}:f 5", "p".repeat(255)), Refusal::NameTooLong),
        (format!("+{program}:{} 5", "s".repeat(128)), Refusal::NameTooLong),
        (format!("+{program}:hot 10000000001"), Refusal::OutOfRange),
        (format!("={program}:cold 10000000001"), Refusal::OutOfRange),
        (format!("+{program}:hot  5"), Refusal::Malformed),
        ("+relative:f".to_owned(), Refusal::Malformed),
        (format!("+{program}:hot 5 pid={}", ended.id()), Refusal::NoProcess),
        (format!("+{}:hot 5", written.display()), Refusal::Busy),
    ];
    let before = module.listing().unwrap();
    for (command, expected) in cases {
        let error = module.command(&command).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(&command), "{said}");
        let KmodError::Refused { why, .. } = error else { panic!("{command}: {said}") };
        assert_eq!(why, expected, "{command}: {said}");
    }
    drop(writer);
    assert_eq!(module.listing().unwrap(), before);
    module.command("-*").unwrap();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_cannot_be_stepped_over_is_left_out_before_the_module_is_asked() {
    const LOCKED: &str = "#include <stdio.h>\nlong sink;\nvoid locked(void);\n\
        __asm__(\".text\\n.globl locked\\n.type locked, @function\\nlocked: lock incq sink(%rip)\\nret\\n.size locked, .-locked\\n\");\n\
        int main(int argc, char **argv) { (void)argv; puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout);\n\
        if (argc > 1) locked(); return getchar() == 0; }\n";
    let Some((_kernel, module)) = loaded() else { return };
    let fixture = Fixture::compile_text(LOCKED, &["-O1", "-no-pie"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let (code, said) = refused(service.pid(), "native:*/program:locked\n", &with(&["--strict"]));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("locked in") && said.contains("is left out: its first instruction is"), "{said}");
    let error = module.command(&format!("+{}:locked 5", fixture.program().display())).unwrap_err();
    assert!(matches!(error, KmodError::Refused { why: Refusal::NoStep, .. }), "{error}");
    assert_empty(&module);
}

#[test]
fn who_may_not_write_is_told_so() {
    const NOBODY: u32 = 65_534;
    let Some((_kernel, module)) = loaded() else { return };
    let fixture = Fixture::service().unwrap();
    fs::set_permissions(fixture.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    let service = Service::start(Command::new(fixture.program()).arg("0").uid(NOBODY).gid(NOBODY)).unwrap();
    let targets: PathBuf = fixture.folder().join("targets.txt");
    fs::write(&targets, HOT).unwrap();
    let mut command = Command::new(tool::path().unwrap());
    command.args(["--pid", &service.pid().to_string(), "--targets"]).arg(targets).args(KMOD);
    let (code, said) = said(command.uid(NOBODY).gid(NOBODY).output().unwrap());
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("not permitted to write /sys/kernel/speed_bump/targets"), "{said}");
    assert_empty(&module);
}

#[test]
fn a_library_that_is_opened_later_is_taken_up() {
    const OPENS: &str = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int argc, char **argv) { (void)argc; puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout);\n\
        getchar(); void *library = dlopen(argv[1], RTLD_NOW); if (!library) return 9;\n\
        long (*work)(long); *(void **)&work = dlsym(library, \"work_hot\"); \n\
        puts(\"{\\\"event\\\":\\\"done\\\"}\"); fflush(stdout); getchar(); long sum = 0;\n\
        for (int i = 0; i < 11; i++) sum = work(sum);\n\
        puts(\"{\\\"event\\\":\\\"done\\\"}\"); fflush(stdout); getchar(); return sum == 1; }\n";
    let Some((_kernel, module)) = loaded() else { return };
    let libraries = Fixture::service().unwrap();
    let fixture = Fixture::compile_text(OPENS, &["-O1", "-ldl"]).unwrap();
    let mut service = Service::start(Command::new(fixture.program()).arg(libraries.library())).unwrap();
    let session = attach(&service, "native:*/libwork.so:work_hot\n", &["--delay", "100us"]);
    assert_eq!(names(&module), [""; 0]);
    service.ask("").unwrap();
    wait_until("the library's function is a target", || Ok(names(&module).len() == 1)).unwrap();
    service.ask("").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (11, 11), "{}", ended.run.stderr);
    assert_empty(&module);
}

#[test]
fn doctor_tells_of_the_module_and_of_what_is_left_there() {
    let doctor = || {
        let output = Command::new(tool::path().unwrap()).arg("doctor").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines().skip_while(|line| !line.contains("kernel module: ")).take(2);
        lines.by_ref().collect::<Vec<_>>().join("\n")
    };
    let Some(kernel) = Kernel::take() else { return };
    assert!(doctor().starts_with("skip  kernel module: speed_bump is not loaded"), "{}", doctor());
    load(&kernel);
    let module = Module::open(Path::new(FOLDER)).unwrap();
    assert!(doctor().starts_with("pass  kernel module: loaded, disabled, no targets"), "{}", doctor());
    let (fixture, service) = start(0);
    let session = attach(&service, HOT, &[]);
    module.command(&format!("+{}:cold 5", fixture.program().display())).unwrap();
    let said = doctor();
    assert!(
        said.contains("loaded, enabled, 2 targets: 1 of process") && said.contains("1 of others"),
        "{said}"
    );
    session.kill().unwrap();
    let said = doctor();
    assert!(said.starts_with("warn") && said.contains("which was killed"), "{said}");
    assert_eq!(names(&module).len(), 2, "it changes nothing");
    list(service.pid(), HOT);
    assert_eq!(names(&module).len(), 1);
}
