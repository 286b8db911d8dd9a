//! The engine `kmod` against the real module: what it does to programs, and what it leaves behind.

#![allow(clippy::unwrap_used, clippy::panic)]

mod as_upstream;

use std::{fs, path::Path, process::Command, time::Duration};

use as_upstream::AsUpstream;
use rustix::process::Signal;
use speed_bump_session::engine::kmod::Module;
use speed_bump_testing::{
    Fixture, Service,
    exact::{self, Subject},
    tool::{self, Running},
    wait::{PATIENCE, wait_until},
};
use speed_bump_units::units::Nanos;

use crate::{
    kmod::loaded::{FOLDER, Kernel},
    kmod::session::{
        HOT, KMOD, assert_empty, attach, list, list_with, load, loaded, names, notes, refused, start,
    },
};

#[test]
fn calls_are_counted_exactly_and_delayed_as_seen_from_inside() {
    const DELAY_NS: u64 = 2_000_000;
    let Some((_kernel, module)) = loaded() else { return };
    {
        let (_fixture, mut service) = exact::start().unwrap();
        let attach = |service: &mut Service, delay: &str| {
            Ok(attach(service, "native:*/program:worked\n", &["--delay", delay]))
        };
        let mut subject = Subject { service: &mut service, function: "worked", attach };
        // The module subtracts nothing: a trap has to be little beside the delay, even on an emulated
        // processor.
        subject.long(5 * DELAY_NS).unwrap().assert_exact("kmod");
    }
    let (fixture, mut service) = start(0);
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_* delay=3ms id=library\n";
    let session = attach(&service, targets, &["--delay", "2ms"]);
    assert!(module.is_enabled().unwrap());
    service.ask("call hot 30").unwrap();
    service.ask("call work_cold 10").unwrap();
    service.ask("call outer 10").unwrap();
    let [hot, cold, untouched] = ["hot", "work_cold", "outer"].map(|name| service.function(name).unwrap());
    assert_eq!((hot.calls, cold.calls, untouched.calls), (30, 10, 10));
    exact::exact("hot", DELAY_NS, hot.least_ns);
    exact::exact("work_cold", 3_000_000, cold.least_ns);
    assert!(untouched.least_ns < DELAY_NS, "{untouched:?}");

    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (30, 30), "{}", ended.run.stderr);
    assert_eq!(ended.counts(1), (10, 10), "{}", ended.run.stderr);
    assert_eq!(ended.report["engine"], "kmod");
    let target = ended.target(0);
    assert_eq!((&target["engine"], &target["entry"]), (&"kmod".into(), &"symbol".into()));
    assert_eq!(target["functions"][0]["requested_ns"], 30 * DELAY_NS);
    exact::delivered(target, hot.total_ns);
    exact::delivered(ended.target(1), cold.total_ns);
    assert_eq!(target["functions"][0]["file"], fixture.program().to_str().unwrap());
    assert_eq!(ended.report["warnings"], serde_json::json!([]));
    assert_empty(&module);

    service.ask("reset").unwrap();
    service.ask("call hot 30").unwrap();
    let untouched = service.function("hot").unwrap();
    assert!(untouched.calls == 30 && untouched.least_ns < DELAY_NS, "{untouched:?}");
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
    let total_ns = service.function("hot").unwrap().total_ns;
    let ended = session.finish().unwrap();
    let (calls, delayed) = ended.counts(0);
    assert!(calls == 50 && (30..=50).contains(&delayed), "{delayed} of {calls}");
    let delivered_ns = ended.target(0)["delivered_ns"].as_u64().unwrap();
    assert!((30 * 50_000..=total_ns).contains(&delivered_ns), "{delivered_ns} of {total_ns}");
    assert!(ended.run.stderr.contains("the window closed"), "{}", ended.run.stderr);
    assert_empty(&module);
}

#[test]
fn delays_change_while_it_runs() {
    let Some((_kernel, module)) = loaded() else { return };
    let (_fixture, mut service) = start(0);
    let targets = "native:*/service:hot\nnative:*/libwork.so:work_*\n";
    let session = attach(&service, targets, &["--delay", "0"]);
    let set = |arguments: &[&str]| {
        let pid = session.pid().to_string();
        tool::run(&[&["set", "--session", &pid], arguments].concat(), PATIENCE).unwrap()
    };
    let mut call = |functions: &[&str]| {
        for function in functions {
            service.ask(&format!("call {function} 10")).unwrap();
        }
    };
    call(&["hot"]);
    assert!(set(&["native:*/service:hot", "delay=2ms"]).status.success());
    call(&["hot"]);
    assert!(set(&["native:*/service:hot", "delay=0"]).status.success());
    call(&["hot"]);
    assert!(set(&["native:*/service:hot", "delay=3ms"]).status.success());
    // One function of the other target.
    assert!(set(&["native:*:work_hot", "delay=1ms"]).status.success());
    call(&["hot", "work_hot", "work_leaf"]);
    let run = set(&["native:*/service:hot", "frequency=2"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stdout);
    assert!(run.stderr.contains("only every call"), "{}", run.stderr);
    call(&["hot"]);
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (50, 30), "{}", ended.run.stderr);
    let of = |target: usize, name: &str| {
        let functions = ended.target(target)["functions"].as_array().unwrap().clone();
        let function = functions.into_iter().find(|function| function["name"] == name).unwrap();
        [function["calls"].as_u64().unwrap(), function["requested_ns"].as_u64().unwrap()]
    };
    assert_eq!(of(0, "hot"), [50, 10 * 2_000_000 + 20 * 3_000_000]);
    assert_eq!(of(1, "work_hot"), [10, 10 * 1_000_000]);
    assert_eq!(of(1, "work_leaf"), [10, 0]);
    assert_empty(&module);
}

#[test]
fn targets_come_and_go_while_it_runs() {
    let Some((_kernel, module)) = loaded() else { return };
    let (_fixture, mut service) = start(0);
    let session = attach(&service, HOT, &["--delay", "1ms"]);
    let set = |arguments: &[&str]| {
        let pid = session.pid().to_string();
        tool::run(&[&["set", "--session", &pid], arguments].concat(), PATIENCE).unwrap()
    };
    assert!(set(&["native:*:work_leaf", "delay=2ms", "--add"]).status.success());
    assert_eq!(names(&module).len(), 2);
    service.ask("call hot 10").unwrap();
    service.ask("call work_leaf 10").unwrap();
    assert!(set(&[HOT.trim_end(), "--drop"]).status.success());
    service.ask("call hot 10").unwrap();
    let run = set(&["json:loads", "--add"]);
    assert_eq!(run.status.code(), Some(2), "{}", run.stdout);
    assert!(run.stderr.contains("slows native functions alone"), "{}", run.stderr);
    let ended = session.stop().unwrap();
    assert_eq!([ended.counts(0), ended.counts(1)], [(20, 10), (10, 10)], "{}", ended.run.stderr);
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
            assert!(ended.run.stderr.contains("stopped by SIG"), "{}", ended.run.stderr);
            asking.join().unwrap().unwrap();
        });
        assert_empty(&module);
    }
    // So does the end of the process, and its exec.
    for (command, why) in [("quit", "the target ended"), ("exec", "the target executed another program")] {
        let (_fixture, mut service) = start(0);
        let session = attach(&service, HOT, &[]);
        let _ = service.ask(command);
        let ended = session.finish().unwrap();
        assert!(ended.run.stderr.contains(why), "{}", ended.run.stderr);
        assert_empty(&module);
    }
}

#[test]
fn delays_that_end_early_are_told_of() {
    let Some((_kernel, module)) = loaded() else { return };
    let (_fixture, mut service) = start(0);
    let session = attach(&service, HOT, &["--delay", "10s"]);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| service.ask("call hot 3").map(drop));
        wait_until("the first spin begins", || Ok(module.listing()?.targets[0].hits > 0)).unwrap();
        module.enable(false).unwrap();
        wait_until("it ends", || Ok(module.listing()?.targets[0].interrupted > 0)).unwrap();
        asking.join().unwrap().unwrap();
    });
    session.wait_for("somebody has disabled the kernel module").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (1, 1));
    let delivered = ended.target(0)["delivered_ns"].as_u64().unwrap();
    assert!(delivered > 0 && delivered < 10_000_000_000, "{delivered}");
    assert!(ended.report["warnings"].to_string().contains("ended early"), "{}", ended.report);
    assert_empty(&module);
}

#[test]
fn what_a_killed_run_left_goes_with_the_next_and_a_live_one_stays() {
    let Some((kernel, module)) = loaded() else { return };
    let (fixture, mut service) = start(0);
    let killed = attach(&service, "native:*/service:hot\nnative:*/service:cold\n", &["--delay", "1ms"]);
    killed.kill().unwrap();
    // There is no tool to remove them.
    assert_eq!((names(&module).len(), module.is_enabled().unwrap(), notes()), (2, true, 1));
    let text = list(service.pid(), HOT);
    assert!(text.contains("was killed; removed 2 targets") && text.contains("disabled it again"), "{text}");
    assert_empty(&module);

    // Another user has added targets meanwhile: they stay, and so does what they need.
    attach(&service, HOT, &["--delay", "1ms"]).kill().unwrap();
    let others = format!("{}:work_hot", fixture.library().display());
    module.command(&format!("+{others} 77")).unwrap();
    let session = attach(&service, HOT, &["--delay", "100us"]);
    service.ask("call hot 9").unwrap();
    service.ask("call work_hot 4").unwrap();
    // A running session's targets are left alone.
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
fn the_end_may_come_at_any_moment() {
    const ROUNDS: u64 = 8;
    let Some((_kernel, module)) = loaded() else { return };
    let mut source = String::from("#include <stdio.h>\n");
    for number in 0..40 {
        source += &format!("__attribute__((noipa)) int many{number}(int x) {{ return x + {number}; }}\n");
    }
    source += "int main(void) { puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout); return getchar() == \
               0; }\n";
    let fixture = Fixture::compile_text(&source, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for (round, signal) in (0..ROUNDS).flat_map(|round| [(round, Signal::KILL), (round, Signal::INT)]) {
        let targets = "native:*/program:many*\n";
        let mut command =
            speed_bump_testing::session::command(folder.path(), service.pid(), targets, &KMOD).unwrap();
        let mut running = Running::start(&mut command).unwrap();
        // Usually while it is adding targets.
        wait_until("it begins", || Ok(notes() > 0)).unwrap();
        std::thread::sleep(Duration::from_millis(round * round));
        running.signal(signal).unwrap();
        running.finish(PATIENCE).unwrap();
        if signal == Signal::KILL {
            seen.push((names(&module).len(), module.is_enabled().unwrap()));
            list(service.pid(), HOT);
        }
        assert_empty(&module);
    }
    println!("targets that a kill left, and whether the module was enabled: {seen:?}");
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

    // Another user's targets are refused, by their own name or another.
    module.enable(true).unwrap();
    let (code, said) = refused(service.pid(), "native:*/service:cold\nnative:*/service:hot\n", &KMOD);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains(":hot in the kernel module already (7ns for all"), "{said}");
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
    // If another user removes ours, we report that.
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
fn a_library_that_is_opened_later_is_taken_up() {
    const OPENS: &str = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int argc, char **argv) { (void)argc; puts(\"{\\\"event\\\":\\\"ready\\\"}\"); \
        fflush(stdout);\n\
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
fn a_process_with_another_root_is_reached_through_it() {
    const CALLS: &str = "#include <stdio.h>\n\
        __attribute__((noipa)) int hot(int x) { return x + 1; }\n\
        int main(void) { puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout); getchar(); int sum = 0;\n\
        for (int i = 0; i < 8; i++) sum = hot(sum);\n\
        puts(\"{\\\"event\\\":\\\"done\\\"}\"); fflush(stdout); return getchar() == sum; }\n";
    let Some((_kernel, module)) = loaded() else { return };
    let fixture = Fixture::compile_text(CALLS, &["-O1", "-static"]).unwrap();
    let mut command = Command::new("chroot");
    let mut service = Service::start(command.arg(fixture.folder()).arg("/program")).unwrap();
    let session = attach(&service, "native:/program:hot\n", &["--delay", "100us"]);
    assert_eq!(names(&module), [format!("/proc/{}/root/program:hot", service.pid())]);
    service.ask("").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (8, 8), "{}", ended.run.stderr);
    assert_eq!(ended.target(0)["functions"][0]["file"], "/program");
    assert_empty(&module);
}

#[test]
fn doctor_tells_of_the_module_and_of_what_is_left_there() {
    let doctor = || {
        let text = tool::run(&["doctor"], PATIENCE).unwrap().stdout;
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
        said.contains("loaded, enabled, 2 targets: 1 of process") && said.contains("1 of other programs"),
        "{said}"
    );
    session.kill().unwrap();
    let said = doctor();
    assert!(said.starts_with("warn") && said.contains("which was killed"), "{said}");
    assert_eq!(names(&module).len(), 2, "it changes nothing");
    list(service.pid(), HOT);
    assert_eq!(names(&module).len(), 1);
}

#[test]
fn upstreams_module_is_told_of_our_descriptors_and_keeps_nothing() {
    const DELAY_NS: u64 = 2_000_000;
    let Some(kernel) = Kernel::take() else { return };
    load(&kernel);
    let _other = AsUpstream::new();
    let module = Module::open_any(Path::new(FOLDER)).unwrap();
    assert!(module.is_upstream());
    let (_fixture, mut service) = start(0);
    let targets = "native:*/service:hot\nnative:*/service:cold\n";
    let flags = ["--accept-upstream-module", "--delay", "2ms"];
    let attach = |service: &Service| attach(service, targets, &flags);
    let session = attach(&service);
    let names_are_ours =
        names(&module).iter().all(|name| name.starts_with("/proc/") && name.contains("/fd/"));
    assert!(names_are_ours && names(&module).len() == 2, "{:?}", names(&module));
    service.ask("call hot 30").unwrap();
    exact::exact("hot", DELAY_NS, service.function("hot").unwrap().least_ns);
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (30, 30), "{}", ended.run.stderr);
    // That module does not measure it.
    assert_eq!(ended.target(0)["delivered_ns"], 30 * DELAY_NS);
    let warnings = ended.report["warnings"].to_string();
    assert!(warnings.contains("this is upstream's kernel module"), "{warnings}");
    assert_empty(&module);

    attach(&service).kill().unwrap();
    // What is not accepted is not changed either.
    let text = list(service.pid(), HOT);
    assert!(text.contains("an attach would fail") && names(&module).len() == 2, "{text}");
    let text = list_with(service.pid(), HOT, &["--accept-upstream-module"]);
    assert!(text.contains("was killed; removed 2 targets") && text.contains("disabled it again"), "{text}");
    assert_empty(&module);
}
