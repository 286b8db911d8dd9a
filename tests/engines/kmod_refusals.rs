//! What the engine `kmod` says where it cannot work, and where the real module refuses.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use speed_bump_session::engine::kmod::{KmodError, Refusal};
use speed_bump_testing::{Fixture, Service, skip, tool};

use crate::{
    kmod::loaded::{FOLDER, Kernel},
    kmod::session::{HOT, KMOD, assert_empty, attach, list, loaded, names, refused, said, start, with},
};

#[test]
fn without_the_module_the_error_says_what_to_do() {
    let kernel = Kernel::find();
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

/// Runs the tool where `/sys/kernel/speed_bump` is a folder of ours: files that say what those of upstream's
/// module say, take what is written and do nothing. The list is the module's targets.
fn beside_upstream(
    folder: &Path,
    list: &str,
    pid: i32,
    targets: &str,
    flags: &[&str],
) -> (Option<i32>, String) {
    const PLACE: &str = "mount -t tmpfs none /sys/kernel && mkdir /sys/kernel/speed_bump \
        && mount --bind \"$0\" /sys/kernel/speed_bump && exec \"$@\"";
    let stats = format!("enabled: 0\ntargets: {}\ntotal_hits: 0\ntotal_delay_ns: 0\n", list.lines().count());
    let files = [
        ("enabled", "0\n"),
        ("targets", ""),
        ("targets_list", list),
        ("stats", &stats),
        ("default_delay_ns", "1000000\n"),
    ];
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    let own = tempfile::tempdir().unwrap();
    let tool = speed_bump_testing::session::command(own.path(), pid, targets, &with(flags)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", PLACE]).arg(folder).arg(tool.get_program()).args(tool.get_args());
    said(&mut command)
}

#[test]
fn upstreams_module_is_refused_unless_it_is_accepted_and_for_libc_even_then() {
    // No other test changes the records meanwhile.
    let _kernel = Kernel::find();
    if !rustix::process::geteuid().is_root() {
        return skip!("mounting needs root");
    }
    let (_fixture, service) = start(0);
    let folder = tempfile::tempdir().unwrap();
    let written = || {
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        (read("targets"), read("enabled"))
    };
    let (code, said) = beside_upstream(folder.path(), "", service.pid(), HOT, &[]);
    assert_eq!(code, Some(4), "{said}");
    for word in ["not this project's", "modprobe", "never those of libc", "--accept-upstream-module"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(written(), (String::new(), "0\n".to_owned()));

    const ACCEPT: &str = "--accept-upstream-module";
    const NOTICE: &str = "this is upstream's kernel module";
    let libc = "native:*/libc.so.6:getenv\n";
    let (code, said) = beside_upstream(folder.path(), "", service.pid(), libc, &[ACCEPT]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("libc.so.6 belongs to the system") && !said.contains(NOTICE), "{said}");
    assert_eq!(written(), (String::new(), "0\n".to_owned()));

    // The accepted risk is reported before anything is added.
    let other = "/srv/other:f delay_ns=5 hits=0\n";
    let (code, said) = beside_upstream(folder.path(), other, service.pid(), HOT, &[ACCEPT]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains(NOTICE) && said.contains("1 targets of somebody else (/srv/other:f)"), "{said}");
    assert_eq!(written(), (String::new(), "0\n".to_owned()));

    let (code, said) =
        beside_upstream(folder.path(), "", service.pid(), HOT, &[ACCEPT, "--duration", "300ms"]);
    // The module gets the file by our descriptor, and then the command to remove it: plain files insert no
    // breakpoint.
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("no breakpoint is in the process's memory"), "{said}");
    let (targets, _) = written();
    assert!(targets.contains("/proc/") && targets.contains("/fd/") && targets.contains(":hot"), "{targets}");
}

#[test]
fn what_the_module_cannot_do_is_refused_whether_it_is_there_or_not() {
    // No other test changes it meanwhile.
    let _kernel = Kernel::find();
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
    let (code, said) = said(&mut run);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("attach to it with --pid"), "{said}");
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
    source += "int main(void) { puts(\"{\\\"event\\\":\\\"ready\\\"}\"); fflush(stdout); return getchar() == \
               0; }\n";
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
        __asm__(\".text\\n.globl locked\\n.type locked, @function\\nlocked: lock incq \
        sink(%rip)\\nret\\n.size locked, .-locked\\n\");\n\
        int main(int argc, char **argv) { (void)argv; puts(\"{\\\"event\\\":\\\"ready\\\"}\"); \
        fflush(stdout);\n\
        if (argc > 1) { locked(); }\n return getchar() == 0; }\n";
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
    let service = Service::start(Command::new(fixture.program()).arg("0").uid(NOBODY).gid(NOBODY)).unwrap();
    let targets: PathBuf = fixture.folder().join("targets.txt");
    fs::write(&targets, HOT).unwrap();
    let mut command = Command::new(tool::path().unwrap());
    command.args(["--pid", &service.pid().to_string(), "--targets"]).arg(targets).args(KMOD);
    let (code, said) = said(command.uid(NOBODY).gid(NOBODY));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("not permitted to write /sys/kernel/speed_bump/targets"), "{said}");
    assert_empty(&module);
}
