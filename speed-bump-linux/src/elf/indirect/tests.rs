#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use super::*;
use crate::{
    elf::{Functions, Refusal, fixture::Fixture},
    units::FileOffset,
};

/// The files and the memory of a process, from `/proc`.
struct Process {
    files: Vec<(PathBuf, ElfFile, LoadBias)>,
    memory: File,
}

impl Process {
    fn from_proc(pid: &str) -> Self {
        let mut files: BTreeMap<PathBuf, (ElfFile, LoadBias)> = BTreeMap::new();
        for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
            let mut fields = line.split_ascii_whitespace();
            let (range, access, offset) =
                (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
            let Some(path) = fields.nth(2).filter(|path| path.starts_with('/')).map(PathBuf::from) else {
                continue;
            };
            if files.contains_key(&path) || !access.contains('x') {
                continue;
            }
            let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let start = VirtualAddress(hexadecimal(range.split_once('-').unwrap().0));
            let elf = ElfFile::open(&path).unwrap();
            let bias = elf.segments().bias_of_mapping(start, FileOffset(hexadecimal(offset)), true).unwrap();
            files.insert(path, (elf, bias));
        }
        let files = files.into_iter().map(|(path, (elf, bias))| (path, elf, bias)).collect();
        Self { files, memory: File::open(format!("/proc/{pid}/mem")).unwrap() }
    }

    fn modules(&self) -> Vec<Module<'_>> {
        self.files.iter().map(|(_, elf, bias)| Module { elf, bias: *bias }).collect()
    }

    fn position(&self, name: &str) -> usize {
        self.files.iter().position(|(path, ..)| path.to_string_lossy().contains(name)).unwrap()
    }

    fn resolve(&self, functions: &Functions, home: usize, name: &str) -> Option<VirtualAddress> {
        let indirect = functions.indirect().iter().find(|f| f.names.candidates().any(|text| text == name));
        let indirect = indirect.unwrap_or_else(|| panic!("{name} is no IFUNC"));
        let read = |address: VirtualAddress, buffer: &mut [u8]| self.memory.read_exact_at(buffer, address.0);
        resolve_indirect(indirect, home, &self.modules(), &read).unwrap()
    }
}

/// A program that prints the addresses of functions that it calls, and then waits.
struct Running(Child, Vec<u64>);

impl Running {
    fn start(path: &std::path::Path) -> Self {
        let mut child = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses =
            line.split_ascii_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
        Self(child, addresses)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program ends when its input ends.
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

const CHOSEN: &str = r#"
static int one(int x) { return x + 1; }
static int two(int x) { return x + 2; }
static int (*resolve(void))(int) { return two; }
int chosen(int) __attribute__((ifunc("resolve")));
int call(int x) { return chosen(x) + one(x); }
int (*implementation(void))(int) { return two; }
"#;

const MAIN: &str = r#"
#include <stdio.h>
int chosen(int); int call(int); int (*implementation(void))(int);
int main(int argc, char **argv) {
    if (argc < 2) call(chosen(argc));
    printf("%lx\n", (unsigned long)implementation());
    fflush(stdout);
    getchar();
    return 0;
}
"#;

#[test]
fn a_programs_own_choice_is_found() {
    let fixture = Fixture::new();
    let both = format!("{CHOSEN}{MAIN}");
    for (name, options) in [
        ("pie.c", ""),
        ("fixed.c", "-no-pie -fno-pie"),
        ("static.c", "-static"),
        ("lazy.c", "-Wl,-z,lazy"),
        ("now.c", "-fno-plt -Wl,-z,now"),
    ] {
        let path = fixture.compile(name, &both, options);
        let running = Running::start(&path);
        let process = Process::from_proc(&running.0.id().to_string());
        let home = process.position(name.trim_end_matches(".c"));
        let functions = process.files[home].1.functions().unwrap();
        let found = process.resolve(&functions, home, "chosen");
        assert_eq!(found, Some(VirtualAddress(running.1[0])), "{name}");
        // In the file, a function with a name has this address.
        let in_file = process.files[home].2.to_file(found.unwrap());
        assert_eq!(functions.containing(in_file).unwrap().names.canonical().as_str(), "two");
    }
}

#[test]
fn a_librarys_choice_is_found_through_its_callers() {
    let fixture = Fixture::new();
    // The library has no caller of the function, so only a slot of the program has the address.
    let library = CHOSEN.replace("chosen(x) + ", "");
    fixture.compile("libchosen.c", &library, "-shared -fPIC -o libchosen.so");
    for (name, options) in [("lazy.c", "-Wl,-z,lazy"), ("now.c", "-Wl,-z,now"), ("got.c", "-fno-plt")] {
        let path = fixture.compile(name, MAIN, &format!("{options} -L. -lchosen -Wl,-rpath,$ORIGIN"));
        let running = Running::start(&path);
        let process = Process::from_proc(&running.0.id().to_string());
        let home = process.position("libchosen");
        let functions = process.files[home].1.functions().unwrap();
        let found = process.resolve(&functions, home, "chosen");
        assert_eq!(found, Some(VirtualAddress(running.1[0])), "{name}");
    }
}

#[test]
fn before_the_first_call_there_is_no_answer() {
    let fixture = Fixture::new();
    let source = MAIN.replace("argc < 2", "argc >= 2");
    // We try this once without a caller in the library, and once with one. In the second case, the caller's
    // slot points to a stub in the library.
    for (name, library) in [("without.c", CHOSEN.replace("chosen(x) + ", "")), ("with.c", CHOSEN.to_owned())]
    {
        fixture.compile("libchosen.c", &library, "-shared -fPIC -Wl,-z,lazy -o libchosen.so");
        let path = fixture.compile(name, &source, "-Wl,-z,lazy -L. -lchosen -Wl,-rpath,$ORIGIN");
        let running = Running::start(&path);
        let process = Process::from_proc(&running.0.id().to_string());
        let home = process.position("libchosen");
        let functions = process.files[home].1.functions().unwrap();
        assert_eq!(process.resolve(&functions, home, "chosen"), None, "{name}");
        // The program only imports the function, so the program's functions do not include this name.
        let stem = name.trim_end_matches(".c");
        let program = process.files[process.position(&format!("/{stem}"))].1.functions().unwrap();
        let refused = program.refused().iter().find(|symbol| symbol.name.as_str() == "chosen");
        assert_eq!(refused.map(|symbol| symbol.refusal), Some(Refusal::Imported));
    }
}

#[test]
fn our_own_libc_agrees_with_the_dynamic_loader() {
    let process = Process::from_proc("self");
    let Some(home) = process.files.iter().position(|(path, ..)| path.to_string_lossy().contains("/libc.so"))
    else {
        speed_bump_testing::skip!("this program is not linked to a libc.so");
        return;
    };
    let (path, elf, bias) = &process.files[home];
    let functions = elf.functions().unwrap();
    if functions.indirect().is_empty() {
        speed_bump_testing::skip!("{} has no IFUNCs", path.display());
        return;
    }
    let mut found = 0;
    for function in functions.indirect() {
        let exported = function.names.iter().filter(|name| name.version().is_some_and(|v| v.default));
        for name in exported {
            let read =
                |address: VirtualAddress, buffer: &mut [u8]| process.memory.read_exact_at(buffer, address.0);
            let Some(ours) = resolve_indirect(function, home, &process.modules(), &read).unwrap() else {
                continue;
            };
            let symbol = std::ffi::CString::new(name.as_str()).unwrap();
            // SAFETY: the name ends with NUL. The call looks the name up in the libraries with which this
            // program is linked.
            let theirs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
            assert_eq!(ours.0, theirs as u64, "{}", name.as_str());
            // The library contains all of these functions, except the vDSO's.
            let inside = elf.segments().code_offset_of(bias.to_file(ours)).is_some();
            assert!(inside || matches!(name.as_str(), "time" | "gettimeofday"), "{}", name.as_str());
            found += 1;
        }
    }
    assert!(found >= 5, "only {found} of {} IFUNCs were resolved", functions.indirect().len());
}

#[test]
fn a_choice_is_that_of_the_version_that_is_called() {
    let fixture = Fixture::new();
    fs::write(
        fixture.path("library.map"),
        "V1 { global: chosen; call; implementation; local: *; }; V2 { global: chosen; } V1;\n",
    )
    .unwrap();
    let library = r#"
        static int one(int x) { return x + 1; }
        static int two(int x) { return x + 2; }
        static int (*resolve_old(void))(int) { return one; }
        static int (*resolve_new(void))(int) { return two; }
        int chosen_old(int) __attribute__((ifunc("resolve_old")));
        int chosen_new(int) __attribute__((ifunc("resolve_new")));
        int call(int x) { return x; }
        int (*implementation(void))(int) { return two; }
        __asm__(".symver chosen_old, chosen@V1\n.symver chosen_new, chosen@@V2");
    "#;
    fixture.compile("libchosen.c", library, "-shared -fPIC -Wl,--version-script=library.map -o libchosen.so");
    let path = fixture.compile("program.c", MAIN, "-L. -lchosen -Wl,-rpath,$ORIGIN");
    let running = Running::start(&path);
    let process = Process::from_proc(&running.0.id().to_string());
    let home = process.position("libchosen");
    let functions = process.files[home].1.functions().unwrap();
    assert_eq!(process.resolve(&functions, home, "chosen@@V2"), Some(VirtualAddress(running.1[0])));
    assert_eq!(process.resolve(&functions, home, "chosen@V1"), None, "it has no caller");
}

#[test]
fn another_librarys_function_of_the_same_name_is_no_choice() {
    let fixture = Fixture::new();
    let library = CHOSEN.replace("chosen(x) + ", "");
    fixture.compile("libchosen.c", &library, "-shared -fPIC -o libchosen.so");
    fixture.compile("libfirst.c", "int chosen(int x) { return x; }", "-shared -fPIC -o libfirst.so");
    let path = fixture.compile("program.c", MAIN, "-L. -lfirst -lchosen -Wl,-rpath,$ORIGIN");
    let running = Running::start(&path);
    let process = Process::from_proc(&running.0.id().to_string());
    let home = process.position("libchosen");
    let functions = process.files[home].1.functions().unwrap();
    assert_eq!(process.resolve(&functions, home, "chosen"), None);
}
