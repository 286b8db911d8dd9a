//! Files that are not what their names say: copies that overlayfs has made of running programs, and files
//! that a process has mounted where we search for its files.

#![allow(clippy::unwrap_used)]

mod mounts;

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use serde_json::Value;
use speed_bump_testing::{
    Attached, Fixture, PythonBuild, Service, case_ran, everybody, places, session::obstacle, skip, skip_case,
    tool, wait::PATIENCE,
};

use speed_bump_linux::process::Process;
use speed_bump_session::inject::{self, InjectError};
use speed_bump_units::units::Pid;

use mounts::{KernelLog, Layers, Mounter};

const TARGETS: &str = "native:*/merged/service:hot\n\
                       native:*/merged/libwork.so:work_cold\n\
                       usdt:*/merged/service:service:tick\n";

/// Calls of each target, as a session counted them, of which the service made as many as these.
fn calls_of_each(service: &mut Service, session: Attached) -> [(u64, u64); 3] {
    for command in ["call hot 300", "call work_cold 20", "call probed 10"] {
        service.ask(command).unwrap();
    }
    let ended = session.stop().unwrap();
    [0, 1, 2].map(|target| ended.counts(target))
}

const ALL: [(u64, u64); 3] = [(300, 300), (20, 20), (10, 10)];

#[test]
fn what_overlayfs_has_copied_since_it_was_mapped_is_counted() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for (mounter, lower) in [
        (Mounter::Root, r"LAYERS/none:LAYERS/lo\\:wer"),
        (Mounter::Root, r"none:lo\\:wer"),
        (Mounter::Nobody, r"LAYERS/lo\\:wer"),
    ] {
        let case = format!("{mounter:?} {lower}");
        if let Some(why) = mounter.obstacle() {
            skip_case!(case, "{why}");
            continue;
        }
        case_ran!();
        let layers = Layers::new(mounter, lower);
        let mut service = layers.service();
        layers.touch(&["service", "libwork.so"]);
        let session = Attached::start(service.pid(), TARGETS, &["--strict"]).unwrap();
        assert_eq!(calls_of_each(&mut service, session), ALL, "{case}");
        // What is changed in the copy is not what the process runs.
        layers.run("printf changed > LAYERS/merged/libwork.so");
        let session = Attached::start(service.pid(), TARGETS, &[]).unwrap();
        assert_eq!(calls_of_each(&mut service, session), ALL, "{case}, changed");
        assert!(service.quit().unwrap().success());
    }
}

#[test]
fn files_that_nothing_leads_to_are_named() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    for mounter in [Mounter::Root, Mounter::Nobody] {
        if let Some(why) = mounter.obstacle() {
            skip_case!(format!("{mounter:?}"), "{why}");
            continue;
        }
        case_ran!();
        let layers = Layers::new(mounter, r"LAYERS/lo\\:wer");
        let mut service = layers.service();
        layers.touch(&["service", "libwork.so"]);
        layers.run(r"mount -t tmpfs hidden LAYERS/lo\:wer");
        let targets = layers.folder().join("targets.txt");
        for (line, name) in [
            ("native:*/merged/service:hot\n", "/merged/service"),
            ("native:*/merged/libwork.so:work_cold\nnative:*:getppid\n", "/merged/libwork.so"),
            ("usdt:*/merged/service:*:*\n", "/merged/service"),
        ] {
            fs::write(&targets, line).unwrap();
            for strict in [&["--strict"][..], &[]] {
                let pid = service.pid().to_string();
                let arguments = ["--pid", &pid, "--targets", targets.to_str().unwrap(), "--duration", "1s"];
                let run = tool::run(&[&arguments, strict].concat(), PATIENCE).unwrap();
                let said = &run.stderr;
                assert_eq!(run.status.code(), Some(4), "{mounter:?} {line}: {said}");
                let words = [name, "was changed after process", "lo:wer", "restart the process"];
                assert!(words.iter().all(|word| said.contains(word)), "{said}");
            }
        }
        // A target that can be counted does not wait for another target's function that cannot.
        let session = Attached::start(service.pid(), "native:*:work_cold\nnative:*:getppid\n", &[]);
        assert!(session.is_err(), "{session:?}");
        let session = Attached::start(service.pid(), "native:*:getppid\nnative:*:getp[p]id\n", &[]).unwrap();
        let ended = session.stop().unwrap();
        assert!(ended.run.stderr.contains("/merged/service was changed after"), "{}", ended.run.stderr);
        service.ask("call hot 1").unwrap();
    }
}

#[test]
fn children_of_a_program_that_is_copied_later_are_counted_once() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let layers = Layers::new(Mounter::Root, r"LAYERS/lo\\:wer");
    let mut service = layers.service();
    let session = Attached::start(service.pid(), TARGETS, &["-vv"]).unwrap();
    layers.touch(&["service", "libwork.so"]);
    let child = |answer: Vec<Value>| answer[0]["pid"].as_i64().unwrap();
    let forked = child(service.ask("fork").unwrap());
    session.wait_for(&format!("child {forked} is covered")).unwrap();
    service.ask("relay call work_cold 15").unwrap();
    service.ask("relay call hot 50").unwrap();
    // This one maps the copies.
    let executed = child(service.ask("fork-exec").unwrap());
    session.wait_for(&format!("child {executed} is covered anew")).unwrap();
    service.ask("call hot 300").unwrap();
    service.ask("relay call hot 25").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!(ended.counts(0), (400, 400), "{}", ended.run.stderr);
    assert_eq!(ended.report["warnings"].as_array().unwrap().len(), 0, "{}", ended.run.stderr);
}

#[test]
fn code_that_the_kernel_does_not_probe_is_named() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    const SHARED: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int file = open(argv[argc - 1], O_RDONLY);
    if (mmap(0, 4096 * 16, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0) == MAP_FAILED)
        return 1;
    printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
    fflush(stdout);
    return getchar() == 0;
}
"#;
    let other = Fixture::service().unwrap();
    let fixture = Fixture::compile_text(SHARED, &["-O1"]).unwrap();
    let service = Service::start(Command::new(fixture.program()).arg(other.library())).unwrap();
    let targets = fixture.folder().join("targets.txt");
    fs::write(&targets, "native:*/libwork.so:work_cold\n").unwrap();
    let arguments =
        ["--pid", &service.pid().to_string(), "--targets", targets.to_str().unwrap(), "--duration", "1s"];
    let run = tool::run(&arguments, PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    let words = ["/libwork.so+", "no breakpoint is in the process's memory", "(MAP_SHARED)"];
    assert!(words.iter().all(|word| run.stderr.contains(word)), "{}", run.stderr);
}

#[test]
fn a_debug_file_that_the_kernel_makes_up_is_not_read() {
    if let Some(why) = obstacle().map(str::to_owned).or_else(|| Mounter::Nobody.obstacle()) {
        return skip!("{why}");
    }
    let fixture = Fixture::service().unwrap();
    fs::set_permissions(fixture.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    let within = |name: &str| fixture.folder().join(name).display().to_string();
    let debug = within("service.debug");
    for arguments in [
        vec!["--only-keep-debug".to_owned(), within("service"), debug.clone()],
        vec!["--strip-all".to_owned(), format!("--add-gnu-debuglink={debug}"), within("service")],
    ] {
        assert!(Command::new("objcopy").args(arguments).status().unwrap().success());
    }
    fs::write(within("named"), "").unwrap();
    let script = format!("mount --bind /proc/kmsg {debug} && exec {} 0", within("service"));
    let service = Service::start(&mut Mounter::Nobody.command(&script)).unwrap();
    let file = fixture.folder().join("targets.txt");
    fs::write(&file, "native:*/service:*\n").unwrap();
    let log = KernelLog::unread();
    let pid = service.pid().to_string();
    let run = tool::run(&["list", "--pid", &pid, "--targets", file.to_str().unwrap()], PATIENCE).unwrap();
    log.assert_unread(&run.stdout);
    assert!(run.stdout.contains("service.debug: is a file of procfs"), "{}", run.stdout);
}

/// The fixture in a Python, as nobody runs it.
struct OfNobody {
    service: Service,
    script: everybody::Copy,
    _python: everybody::Python,
}

impl OfNobody {
    /// Starts it after a script that mounts. Nothing where no such Python can be run by every user.
    fn start(fits: impl Fn(&PythonBuild) -> bool, mounts: &str) -> Option<Self> {
        let python = everybody::python(fits).unwrap()?;
        let script = everybody::Copy::new(&places::fixtures().join("service.py")).unwrap();
        let own = python.command(script.path());
        let mut command = Mounter::Nobody.command(&format!(r#"{mounts} exec "$@""#));
        command.arg("sh").arg(own.get_program()).args(own.get_args()).arg("0");
        Some(Self { service: Service::start(&mut command).unwrap(), script, _python: python })
    }
}

#[test]
fn a_perf_map_that_the_kernel_makes_up_is_not_read() {
    if let Some(why) = obstacle().map(str::to_owned).or_else(|| Mounter::Nobody.obstacle()) {
        return skip!("{why}");
    }
    let map = "/tmp/perf-$$.map";
    // A process that had the number before may have left one, of another user.
    let mounts = format!("[ -e {map} ] || : > {map}; mount --bind /proc/kmsg {map};");
    let Some(OfNobody { service, .. }) = &OfNobody::start(|python| python.trampolines, &mounts) else {
        return skip!("{}", everybody::NO_PYTHON);
    };
    let log = KernelLog::unread();
    let session = Attached::start(service.pid(), "py:*/service.py:hot\n", &["--entry", "perf-map"]).unwrap();
    let ended = session.stop().unwrap();
    log.assert_unread(&ended.run.stderr);
    let warnings = ended.report["warnings"].to_string();
    let name = format!("/tmp/perf-{}.map", service.pid());
    assert!(warnings.contains(&name) && warnings.contains("a file of procfs"), "{warnings}");
}

#[test]
fn a_source_file_that_the_kernel_makes_up_is_not_read() {
    if let Some(why) = obstacle().map(str::to_owned).or_else(|| Mounter::Nobody.obstacle()) {
        return skip!("{why}");
    }
    let Some(mut of_nobody) = OfNobody::start(PythonBuild::usdt_fires, "") else {
        return skip!("{}", everybody::NO_PYTHON);
    };
    let OfNobody { service, script, .. } = &mut of_nobody;
    let source = script.path();
    let mounted = Command::new("nsenter")
        .args(["--target", &service.pid().to_string(), "--user", "--mount", "mount", "--bind", "/proc/kmsg"])
        .arg(source)
        .status();
    assert!(mounted.unwrap().success());
    let log = KernelLog::unread();
    let targets = "py:*/service.py:hot\n";
    let session = Attached::start(service.pid(), targets, &["-vv", "--entry", "usdt"]).unwrap();
    service.ask("call hot 40").unwrap();
    session.wait_for("hot is covered").unwrap();
    let ended = session.stop().unwrap();
    log.assert_unread(&ended.run.stderr);
    assert_eq!(ended.counts(0).0, 40, "{}", ended.run.stderr);
    let name = format!("cannot read {}", source.display());
    let said = &ended.run.stderr;
    assert!(said.contains(&name) && said.contains("a file of procfs"), "{said}");
}

#[test]
fn a_link_to_our_proc_is_none_of_the_processs() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    const IDLE: &str = "#include <stdio.h>\nint main(void) { puts(\"{\\\"event\\\":\\\"ready\\\"}\"); \
                        fflush(stdout); return getchar(); }\n";
    let fixture = Fixture::compile_text(IDLE, &["-static"]).unwrap();
    std::os::unix::fs::symlink("/proc", fixture.folder().join("proc")).unwrap();
    let mut command = Command::new("chroot");
    command.arg("--userspec=65534:65534").arg(fixture.folder()).arg("/program");
    let service = Service::start(&mut command).unwrap();
    let process = Process::open(Pid::new(service.pid()).unwrap()).unwrap();
    let error = inject::would_try(&process).unwrap_err();
    assert!(matches!(error, InjectError::NoProc { .. }), "{error}");
}
