#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

mod limits;

use super::*;
use crate::elf::{
    file::tests::without_sections,
    fixture::{Fixture, PROGRAM},
};

fn function<'f>(functions: &'f Functions, name: &str) -> Option<&'f FunctionSymbol> {
    functions.functions().iter().find(|function| function.names.candidates().any(|text| text == name))
}

fn refusal(functions: &Functions, name: &str) -> Option<Refusal> {
    functions.refused().iter().find(|symbol| symbol.name.as_str() == name).map(|symbol| symbol.refusal)
}

fn names(function: &FunctionSymbol) -> Vec<&str> {
    function.names.iter().map(SymbolName::as_str).collect()
}

/// The code of a function, read from the file at the offset of a uprobe.
fn code(path: &Path, function: &FunctionSymbol) -> Vec<u8> {
    let start = function.offset.0 as usize;
    fs::read(path).unwrap()[start..start + function.size as usize].to_vec()
}

/// Whether the code contains a 32-bit constant.
fn holds(code: &[u8], constant: u32) -> bool {
    code.windows(4).any(|window| window == constant.to_le_bytes())
}

#[test]
fn offsets_lead_to_the_code_however_the_file_is_linked() {
    let fixture = Fixture::new();
    for (name, options) in [
        ("pie.c", "-pie -fPIE"),
        ("fixed.c", "-no-pie -fno-pie"),
        ("static.c", "-static"),
        ("static_pie.c", "-static-pie"),
        ("joined.c", "-Wl,-z,noseparate-code"),
        ("shared.c", "-shared -fPIC"),
        ("far.c", "-no-pie -fno-pie -Wl,-Ttext-segment=0x70000000"),
        // There are two executable segments: .text is far from .init and .plt.
        ("two.c", "-no-pie -fno-pie -Wl,--section-start=.text=0x10000000"),
    ] {
        let path = fixture.compile(name, PROGRAM, &format!("-O1 {options}"));
        let elf = ElfFile::open(&path).unwrap();
        let functions = elf.functions().unwrap();
        let marked = function(&functions, "marked").unwrap_or_else(|| panic!("{name}"));
        assert!(holds(&code(&path, marked), 0x51ee_7b0b), "{name}");
        assert!(holds(&code(&path, function(&functions, "local").unwrap()), 0x10ca1), "{name}");
        assert_eq!(functions.warnings(), [""; 0]);
        let inside = VirtualAddress(marked.address.0 + marked.size - 1);
        assert_eq!(functions.containing(inside).unwrap().address, marked.address);
        assert_eq!(elf.segments().code_address_of(marked.offset), Some(marked.address));
        if name == "two.c" {
            assert!(elf.segments().iter().filter(|segment| segment.executable).count() >= 2);
        }
    }
}

#[test]
fn aliases_are_one_function() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", PROGRAM, "")).unwrap();
    let functions = elf.functions().unwrap();
    let marked = function(&functions, "alias").unwrap();
    assert_eq!(names(marked), ["alias", "marked", "weak_alias"]);
    let addresses: Vec<_> = functions.functions().iter().map(|function| function.address).collect();
    assert!(addresses.is_sorted_by(|a, b| a < b));
}

#[test]
fn what_is_no_function_is_refused_with_its_reason() {
    let fixture = Fixture::new();
    let split = r#"__attribute__((cold, noinline)) void fail(int x) { __builtin_printf("%d", x); }
        __attribute__((noinline)) int hot(int x) {
            if (x == 77) { fail(x); fail(x + 1); __builtin_abort(); }
            return x + 1;
        }
        __thread int local_to_thread = 3;
        int (*volatile imported)(const char *) = __builtin_puts;
        int main(int argc, char **argv) { return hot(argc + local_to_thread) + imported(argv[0]); }
        __asm__(".section .odd,\"awx\"\n.globl writable\n.type writable,@function\nwritable: ret\n"
                ".data\n.globl data_function\n.type data_function,@function\ndata_function: .long 5\n"
                ".section .rodata\n.globl constant_function\n.type constant_function,@function\n"
                "constant_function: .long 5\n.text\n");"#;
    let split_elf = ElfFile::open(&fixture.compile("split.c", split, "-O2 -no-pie -fno-pie")).unwrap();
    let split = split_elf.functions().unwrap();
    assert!(function(&split, "hot").is_some());
    for (name, expected) in [
        ("hot.cold", Refusal::ColdPart),
        ("local_to_thread", Refusal::Data),
        ("imported", Refusal::Data),
        ("data_function", Refusal::NotCode),
        ("constant_function", Refusal::NotCode),
        ("writable", Refusal::WritableCode),
        ("abort", Refusal::Imported),
    ] {
        assert_eq!(refusal(&split, name), Some(expected), "{name}");
        assert!(function(&split, name).is_none(), "{name}");
    }

    let elf = ElfFile::open(&fixture.compile("program.c", PROGRAM, "-Wl,-z,noseparate-code")).unwrap();
    let functions = elf.functions().unwrap();
    for (name, expected) in [
        ("counter", Refusal::Data),
        // In this layout, these symbols are in the executable segment, but not in a code section.
        ("table", Refusal::Data),
        ("untyped", Refusal::Untyped),
        ("constant", Refusal::Absolute),
        ("printf", Refusal::Imported),
        ("_edata", Refusal::Untyped),
    ] {
        assert_eq!(refusal(&functions, name), Some(expected), "{name}");
    }
    assert_eq!(function(&functions, "unsized").unwrap().size, 0);
    // Each name occurs once for each reason, even if two tables have it.
    let of_name =
        |name: &str| functions.refused().iter().filter(|symbol| symbol.name.as_str() == name).count();
    assert_eq!((of_name("printf"), of_name("counter"), of_name("table")), (1, 1, 1));
    // Names of imports also match with their versions.
    let printf = functions.refused().iter().find(|symbol| symbol.name.as_str() == "printf").unwrap();
    assert!(printf.name.candidates().any(|name| name.starts_with("printf@GLIBC_")));
}

#[test]
fn import_stubs_are_refused() {
    let fixture = Fixture::new();
    let path = fixture.compile("stubs.c", PROGRAM, "-no-pie -fno-pie -Wl,-z,lazy");
    // Linkers give names of this form to their stubs.
    let stub = "--add-symbol=stub=.plt:0,function,global";
    let label = "--add-symbol=label=.plt:0,global";
    let plain = "--add-symbol=plain=.text:0,function,global";
    fixture.run("objcopy", &[stub, label, plain, "stubs"]);
    let functions = ElfFile::open(&path).unwrap().functions().unwrap();
    assert_eq!(refusal(&functions, "stub"), Some(Refusal::Plt));
    assert_eq!(refusal(&functions, "label"), Some(Refusal::Plt));
    assert!(function(&functions, "stub").is_none());
    assert!(function(&functions, "plain").is_some());
}

#[test]
fn versions_of_a_library_are_told_apart() {
    let fixture = Fixture::new();
    fs::write(fixture.path("library.map"), "V1 { global: f; g; }; V2 { global: f; local: *; } V1;\n")
        .unwrap();
    let source = "int f_old(int x) { return x ^ 0x0001d0; } int f_new(int x) { return x ^ 0x2eee2; }
        int g(int x) { return x; }
        __asm__(\".symver f_old, f@V1\\n.symver f_new, f@@V2\\n\");";
    let path = fixture.compile("library.c", source, "-shared -fPIC -Wl,--version-script=library.map -O1");
    for stripped in [false, true] {
        if stripped {
            fixture.run("strip", &["library"]);
        }
        let functions = ElfFile::open(&path).unwrap().functions().unwrap();
        let at = |name: &str| function(&functions, name).map(|function| function.address);
        let (old, new) = (at("f@V1").unwrap(), at("f@@V2").unwrap());
        assert_ne!(old, new);
        assert_eq!(at("f@V2"), Some(new));
        assert_eq!(at("f@@V1"), None);
        assert!(at("g@@V1").is_some());
        assert!(holds(&code(&path, function(&functions, "f@@V2").unwrap()), 0x2eee2));
        // The name without a version matches both functions.
        let all = functions.functions().iter().filter(|f| f.names.candidates().any(|name| name == "f"));
        assert_eq!(all.count(), 2);
        let local = if stripped { None } else { Some(new) };
        assert_eq!(at("f_new"), local);
    }
}

#[test]
fn indirect_functions_are_kept_apart_from_their_resolvers() {
    let fixture = Fixture::new();
    let source = "static int one(int x) { return x + 1; }
        static int (*resolve(void))(int) { return one; }
        int chosen(int) __attribute__((ifunc(\"resolve\")));
        int other(int) __attribute__((ifunc(\"resolve\")));
        int main(int argc, char **argv) { return chosen(argc) + other(argc); }";
    let elf = ElfFile::open(&fixture.compile("indirect.c", source, "")).unwrap();
    let functions = elf.functions().unwrap();
    assert_eq!(functions.indirect().len(), 1);
    let indirect = &functions.indirect()[0];
    assert_eq!(indirect.names.iter().map(SymbolName::as_str).collect::<Vec<_>>(), ["other", "chosen"]);
    assert!(function(&functions, "chosen").is_none());
    assert_eq!(function(&functions, "resolve").unwrap().address, indirect.resolver);
    assert_eq!(refusal(&functions, "chosen"), None);
}

#[test]
fn cpp_and_rust_functions_have_the_names_people_write() {
    let fixture = Fixture::new();
    let cpp = fixture.compile(
        "names.cpp",
        "#include <string>
        namespace ns {
        struct C { int v; [[gnu::noinline]] int method(int x) const { return v + x; } C(int); };
        C::C(int x) : v(x) {}
        template <typename T> [[gnu::noinline]] T twice(T x) { return x + x; }
        [[gnu::noinline]] std::string text(int x) { return std::to_string(x); } }
        int main(int argc, char **) { ns::C c(argc);
        auto l = [&](int x) __attribute__((noinline)) { return c.method(x); };
        return l(2) + ns::twice<int>(argc) + (int)ns::text(argc).size(); }",
        "-O0",
    );
    let functions = ElfFile::open(&cpp).unwrap().functions().unwrap();
    for name in [
        "ns::C::method(int) const",
        "ns::C::method",
        "_ZNK2ns1C6methodEi",
        "ns::C::C(int)",
        "ns::C::C",
        "int ns::twice<int>(int)",
        "ns::twice<int>(int)",
        "ns::twice<int>",
        "ns::text[abi:cxx11]",
        "main",
    ] {
        assert!(function(&functions, name).is_some(), "{name}");
    }
    let lambda = functions.functions().iter().find(|f| f.names.candidates().any(|n| n.contains("lambda")));
    assert!(lambda.is_some());

    for (file, mangling) in [("default.rs", ""), ("v0.rs", "-Csymbol-mangling-version=v0")] {
        let rust = fixture.compile(
            file,
            "mod inner { pub struct S; impl S { #[inline(never)] pub fn method(&self, x: usize) -> usize { \
             std::hint::black_box(x) } } }
             #[inline(never)] fn free() -> usize { inner::S.method(3) }
             fn main() { println!(\"{}\", free()); }",
            &format!("--crate-name names {mangling}"),
        );
        let functions = ElfFile::open(&rust).unwrap().functions().unwrap();
        let method = functions.functions().iter().find(|f| {
            f.names
                .candidates()
                .any(|name| name == "names::inner::S::method" || name == "<names::inner::S>::method")
        });
        let method = method.unwrap_or_else(|| panic!("{file}"));
        assert!(function(&functions, "names::free").is_some(), "{file}");
        // The names are: mangled, demangled without the hash or disambiguator, and demangled with it.
        assert_eq!(method.names.candidates().count(), 3, "{file}");
        assert!(method.names.canonical().demangled().unwrap().ends_with("method"));
    }
}

#[test]
fn stripped_files_keep_what_they_export() {
    let fixture = Fixture::new();
    for hash in ["gnu", "sysv", "both"] {
        let path = fixture.compile("library.c", PROGRAM, &format!("-shared -fPIC -Wl,--hash-style={hash}"));
        fixture.run("strip", &["library"]);
        let elf = ElfFile::open(&path).unwrap();
        let functions = elf.functions().unwrap();
        assert_eq!(functions.tables(), [TableKind::Dynamic]);
        assert!(function(&functions, "local").is_none());
        assert!(holds(&code(&path, function(&functions, "marked").unwrap()), 0x51ee_7b0b));

        // Without section headers, the dynamic segment still leads to the exported symbols.
        let bare = without_sections(fs::read(&path).unwrap());
        let bare = ElfFile::from_bytes(bare, "bare").unwrap();
        let from_segment = bare.functions().unwrap();
        let all = |functions: &Functions| {
            functions.functions().iter().map(|f| (f.address, names(f).join(" "))).collect::<Vec<_>>()
        };
        assert_eq!(all(&from_segment), all(&functions), "{hash}");
        assert_eq!(bare.build_id().unwrap(), elf.build_id().unwrap());
    }
    let path = fixture.compile("program.c", PROGRAM, "-static");
    fixture.run("strip", &["program"]);
    let functions = ElfFile::open(&path).unwrap().functions().unwrap();
    assert!(functions.functions().is_empty() && functions.tables().is_empty());
}

/// The symbols in one table according to `readelf`: defined functions and IFUNCs, by address and name.
fn readelf(fixture: &Fixture, path: &str, option: &str) -> BTreeSet<(u64, String)> {
    let text = fixture.run("readelf", &[option, "-W", path]);
    let rows = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() >= 8 && matches!(row[3], "FUNC" | "IFUNC") && row[6] != "UND")
        .filter(|row| row[6] != "ABS" && !is_cold_part(row[7].as_bytes()))
        .map(|row| (u64::from_str_radix(row[1], 16).unwrap(), row[7].to_owned()))
        .collect()
}

#[test]
fn installed_files_have_the_functions_that_readelf_lists() {
    let fixture = Fixture::new();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so")));
    let libc = libc.map(|(_, path)| format!("/{path}"));
    for path in ["/usr/bin/python3".to_owned(), libc.unwrap_or("/lib64/libc.so.6".to_owned())] {
        if !Path::new(&path).exists() {
            speed_bump_testing::skip_case!(path, "it is not installed");
            continue;
        }
        speed_bump_testing::case_ran!();
        let functions = ElfFile::open(Path::new(&path)).unwrap().functions().unwrap();
        let mut ours: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for function in functions.functions() {
            let names = function.names.candidates().map(|name| name.into_owned());
            ours.entry(function.address.0).or_default().extend(names);
        }
        for function in functions.indirect() {
            let names = function.names.candidates().map(|name| name.into_owned());
            ours.entry(function.resolver.0).or_default().extend(names);
        }
        let mut theirs = readelf(&fixture, &path, "--dyn-syms");
        theirs.extend(readelf(&fixture, &path, "--symbols"));
        assert!(theirs.len() > 1000, "{path}");
        for (address, name) in &theirs {
            assert!(ours[address].contains(name), "{path}: {address:#x} {name}");
        }
        let addresses: BTreeSet<u64> = theirs.iter().map(|(address, _)| *address).collect();
        assert_eq!(addresses.len(), ours.len(), "{path}");
    }
}

#[test]
fn cold_parts_are_recognised_by_name() {
    for name in ["f.cold", "f.cold.12", "f.isra.0.cold", "_ZN1a1bEv.cold.1"] {
        assert!(is_cold_part(name.as_bytes()), "{name}");
    }
    for name in ["f", "cold", ".cold", "f.part.0", "f.colder", "fcold", "f.cold.x", "f.constprop.0", "7"] {
        assert!(!is_cold_part(name.as_bytes()), "{name}");
    }
}

#[test]
fn names_are_as_visible_as_their_symbols() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", PROGRAM, "")).unwrap();
    let functions = elf.functions().unwrap();
    for (name, binding) in [
        ("local", Binding::Local),
        ("weak", Binding::Weak),
        ("weak_alias", Binding::Weak),
        ("marked", Binding::Global),
    ] {
        let mut names = functions.functions().iter().flat_map(|function| function.names.iter());
        assert_eq!(names.find(|symbol| symbol.as_str() == name).unwrap().binding(), binding, "{name}");
    }
}
