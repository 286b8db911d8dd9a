//! Programs that move their code to memory of no file, as for huge pages: no call comes to a probe there.

#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

use speed_bump_testing::{
    Attached, Fixture, Service,
    session::{command, obstacle},
    skip,
    tool::{self, Run, Running},
    wait::PATIENCE,
};

/// Moves the page of `hot`, or all of its text, and calls what it is told to.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define OWN __attribute__((noipa, aligned(4096)))
volatile int sink;
OWN int cold(int x) { return sink = x + 1; }
OWN int hot(int x) { return sink = x + 2; }
OWN int last(int x) { return sink = x + 3; }

static int move(char *from, size_t size) {
    char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return 1;
    memcpy(copy, from, size);
    if (mprotect(copy, size, PROT_READ | PROT_EXEC)) return 1;
    return mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, from) != from;
}

static int move_all(void) {
    unsigned long start, end;
    char line[512], permissions[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) == 3 && permissions[2] == 'x') {
            fclose(maps);
            return move((char *)start, end - start);
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--use-largepages=on")) {
        if (move_all()) return 1;
        for (int call = 0; call < 100; call++) hot(call);
        return 42;
    }
    char word[16];
    int times;
    puts("{\"event\":\"ready\"}");
    fflush(stdout);
    while (scanf("%15s", word) == 1 && strcmp(word, "quit") && scanf("%d", &times) == 1) {
        if (!strcmp(word, "page") && move((char *)(uintptr_t)hot, 4096)) return 1;
        if (!strcmp(word, "text") && move_all()) return 1;
        for (int call = 0; call < times; call++) {
            if (!strcmp(word, "hot")) hot(call);
            if (!strcmp(word, "cold")) cold(call);
            if (!strcmp(word, "busy")) sink = call;
        }
        puts("{\"event\":\"done\"}");
        fflush(stdout);
    }
    puts("{\"event\":\"done\"}");
    return 0;
}
"#;

fn start() -> (Fixture, Service) {
    let fixture = Fixture::compile_text(SOURCE, &["-O1"]).unwrap();
    let service = Service::start(&mut Command::new(fixture.program())).unwrap();
    (fixture, service)
}

fn attach(folder: &Path, pid: i32, targets: &str) -> Run {
    let mut command = command(folder, pid, targets, &["--strict", "--duration", "1s"]).unwrap();
    // node has 77,000 symbols, which a debug build reads for a minute where others use the processors.
    Running::start(&mut command).unwrap().finish(4 * PATIENCE).unwrap()
}

fn is_refused(run: &Run, function: &str, path: &Path) {
    let path = path.display();
    assert!(!run.status.success(), "{}{}", run.stdout, run.stderr);
    let named = format!("{function} of {path} cannot be probed");
    assert!(run.stderr.contains(&named), "{}", run.stderr);
    assert!(run.stderr.contains("has put memory of its own in its place"), "{}", run.stderr);
}

#[test]
fn a_function_whose_page_was_moved_is_refused_by_name() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start();
    service.ask("page 0").unwrap();
    let run = attach(fixture.folder(), service.pid(), "native:*/program:hot\n");
    is_refused(&run, "hot", fixture.program());

    // The functions beside it are counted, and the warning says what is missing.
    let session = Attached::start(service.pid(), "native:*/program:[ch]o*\n", &[]).unwrap();
    service.ask("hot 7").unwrap();
    service.ask("cold 9").unwrap();
    let ended = session.stop().unwrap();
    assert_eq!((ended.counts(0), ended.functions(0)), ((9, 9), vec!["cold"]));
    let warnings = ended.report["warnings"].to_string();
    assert!(warnings.contains("hot of ") && warnings.contains("cannot be probed"), "{warnings}");
    assert!(service.quit().unwrap().success());
}

#[test]
fn a_program_whose_whole_text_was_moved_is_refused_by_name() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (fixture, mut service) = start();
    service.ask("text 0").unwrap();
    let targets = "native:*/program:hot\n";
    let run = attach(fixture.folder(), service.pid(), targets);
    is_refused(&run, "hot", fixture.program());

    let pid = service.pid().to_string();
    let listed = tool::run(&["list", "--pid", &pid, "-t", targets.trim()], PATIENCE).unwrap();
    let told = format!("{}{}", listed.stdout, listed.stderr);
    assert!(told.contains("selects 0 functions") && told.contains("hot of "), "{told}");
    assert!(!told.contains("it maps no file"), "{told}");
    service.ask("hot 3").unwrap();
    assert!(service.quit().unwrap().success());
}

#[test]
fn a_session_that_counted_nothing_under_load_says_what_may_be_the_cause() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let (_fixture, mut service) = start();
    let warnings = |service: &mut Service, load: &str| {
        let session = Attached::start(service.pid(), "native:*/program:hot\n", &[]).unwrap();
        service.ask(load).unwrap();
        session.stop().unwrap().report["warnings"].to_string()
    };
    let told = warnings(&mut service, "busy 200000000");
    assert!(told.contains("no call of the selected function was counted"), "{told}");
    assert!(told.contains("nothing called them") && told.contains("inlining"), "{told}");
    let told = warnings(&mut service, "hot 20");
    assert!(!told.contains("Possible causes"), "{told}");
    // Without load there is nothing to explain.
    let told = warnings(&mut service, "cold 1");
    assert!(!told.contains("Possible causes"), "{told}");
    assert!(service.quit().unwrap().success());
}

/// The copies of breakpoints would kill it.
#[test]
fn a_command_that_moves_its_text_when_it_begins_survives_and_is_named() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let fixture = Fixture::compile_text(SOURCE, &["-O1"]).unwrap();
    let program = fixture.program().to_str().unwrap();
    let arguments = ["run", "-t", "native:*/program:hot", "--", program, "--use-largepages=on"];
    let run = tool::run(&arguments, PATIENCE).unwrap();
    assert_eq!(run.status.code(), Some(42), "{}", run.stderr);
    let told = format!("hot of {program} cannot be probed");
    assert!(run.stderr.contains(&told) && run.stderr.contains("is about to"), "{}", run.stderr);
}

/// A server that calls a function of node's own for each line.
const NODE: &str = "
process.stdout.write('{\"event\":\"ready\"}\\n');
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
    for (let round = 0; round < Number(line); round++) process.cpuUsage();
    process.stdout.write('{\"event\":\"done\"}\\n');
});
";

#[test]
fn node_with_its_text_in_huge_pages_is_refused_by_name() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    if Command::new("node").arg("--version").output().is_err() {
        return skip!("no node");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(Command::new("node").args(["--use-largepages=on", "-e", NODE])).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", service.pid())).unwrap();
    let is_moved = maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (range, permissions) = (fields.next().unwrap(), fields.next().unwrap());
        let ends = range.split_once('-').unwrap();
        let [start, end] = [ends.0, ends.1].map(|end| u64::from_str_radix(end, 16).unwrap());
        // Its own compiler's code is in smaller pieces, between which nobody may execute.
        permissions == "r-xp" && fields.count() == 3 && end - start >= 8 << 20
    });
    if !is_moved {
        return skip!("this node does not move its text to huge pages");
    }
    let run = attach(folder.path(), service.pid(), "native:*/node*:uv_getrusage\n");
    assert!(!run.status.success(), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("uv_getrusage of "), "{}", run.stderr);
    assert!(run.stderr.contains("has put memory of its own in its place"), "{}", run.stderr);
    service.ask("100").unwrap();
}
