#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use super::*;
use crate::elf::{ElfErrorKind, fixture::Fixture};

/// The text that `<sys/sdt.h>` generates for a probe, with two locations, a semaphore and arguments.
const PROBES: &str = r#"
#include <stdint.h>
__attribute__((section(".probes"), used)) volatile uint16_t other_semaphore = 0x5eed;
__attribute__((section(".probes"), used)) volatile uint16_t app_request_semaphore = 0x5e4a;
#define NOTE(name, semaphore, arguments) \
    "990: nop\n" \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n" \
    ".balign 4\n" \
    ".4byte 992f-991f, 994f-993f, 3\n" \
    "991: .asciz \"stapsdt\"\n" \
    "992: .balign 4\n" \
    "993: .8byte 990b\n" \
    ".8byte _.stapsdt.base\n" \
    ".8byte " semaphore "\n" \
    ".asciz \"app\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n" \
    "994: .balign 4\n" \
    ".popsection\n" \
    ".ifndef _.stapsdt.base\n" \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
    ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n" \
    "_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n" \
    ".popsection\n" \
    ".endif\n"
__attribute__((noinline)) int first(int x) {
    __asm__ volatile(NOTE("request", "app_request_semaphore", "%n[size]@%[x] 8@$5 -4@counter(%%rip)")
                     :: [size] "n"(4), [x] "r"(x));
    return x ^ 0x11f1;
}
__attribute__((noinline)) int second(int x) {
    __asm__ volatile(NOTE("request", "app_request_semaphore", "-4@%[x]") :: [x] "m"(x));
    __asm__ volatile(NOTE("plain", "0", "") ::);
    return x ^ 0x5ec0;
}
int main(int argc, char **argv) { return first(argc) + second(argc); }
"#;

fn probes(elf: &ElfFile) -> UsdtProbes {
    let found = elf.usdt_probes().unwrap();
    assert_eq!(found.refused, []);
    found
}

/// The positions of the owners' names, which are 8 bytes before the descriptions.
fn notes(bytes: &[u8]) -> Vec<usize> {
    let note = b"\x03\0\0\0stapsdt\0";
    (4..bytes.len()).filter(|at| bytes[at - 4..].starts_with(note)).collect()
}

#[test]
fn probes_are_found_with_all_their_locations() {
    let fixture = Fixture::new();
    for (name, options) in [
        ("pie.c", "-O1"),
        ("fixed.c", "-O1 -no-pie -fno-pie"),
        ("shared.c", "-O1 -shared -fPIC -Wl,-z,noseparate-code"),
    ] {
        // The linker must resolve the semaphore inside the library.
        let source =
            PROBES.replace("volatile uint16_t", "__attribute__((visibility(\"hidden\"))) volatile uint16_t");
        let path = fixture.compile(name, &source, options);
        let stem = name.trim_end_matches(".c");
        for stripped in [false, true] {
            if stripped {
                fixture.run("strip", &[stem]);
            }
            let bytes = fs::read(&path).unwrap();
            let found = probes(&ElfFile::open(&path).unwrap());
            let names: Vec<_> = found
                .probes
                .iter()
                .map(|probe| (&*probe.provider, &*probe.name, probe.locations.len()))
                .collect();
            assert_eq!(names, [("app", "plain", 1), ("app", "request", 2)], "{name}");
            for location in found.probes.iter().flat_map(|probe| &probe.locations) {
                assert_eq!(bytes[location.offset.0 as usize], 0x90, "a nop");
            }
            let [plain, request] = &found.probes[..] else { panic!() };
            assert_eq!(plain.locations[0].semaphore, None);
            assert!(plain.locations[0].arguments.is_empty());
            for location in &request.locations {
                let at = location.semaphore.unwrap().0 as usize;
                assert_eq!(bytes[at..at + 2], 0x5e4a_u16.to_le_bytes());
            }
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn arguments_are_read_one_by_one() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", PROBES, "-O1")).unwrap();
    let found = probes(&elf);
    let [first, second] = &found.probes[1].locations[..] else { panic!() };
    // `first` has its argument in %edi. The size is negative, because the argument is signed.
    let register = ArgumentSpec {
        kind: ArgumentSpec::REGISTER,
        size: -4,
        register: 112,
        index: ArgumentSpec::NO_REGISTER,
        ..Default::default()
    };
    assert_eq!((&*first.arguments[0].text, &first.arguments[0].spec), ("-4@%edi", &Ok(register)));
    let constant = ArgumentSpec { kind: ArgumentSpec::CONSTANT, size: 8, value: 5, ..Default::default() };
    assert_eq!(first.arguments[1].spec, Ok(constant));
    assert_eq!(first.arguments[2].spec, Err(ArgumentError::Symbolic("counter(%rip)".to_owned())));
    let spec = second.arguments[0].spec.clone().unwrap();
    assert_eq!((spec.kind, spec.size, spec.register), (ArgumentSpec::MEMORY, -4, 152));
}

#[test]
fn a_prelinked_file_is_read_by_its_base() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROBES, "-O1");
    let before = probes(&ElfFile::open(&path).unwrap());
    // Prelinking moves everything except the notes. Here we move the notes instead, with the same effect.
    let mut bytes = fs::read(&path).unwrap();
    let notes = notes(&bytes);
    for word in notes.iter().flat_map(|at| [at + 8, at + 16, at + 24]) {
        let address = u64::from_le_bytes(bytes[word..word + 8].try_into().unwrap());
        if address != 0 {
            bytes[word..word + 8].copy_from_slice(&(address + 0x1000_0000).to_le_bytes());
        }
    }
    assert_eq!(notes.len(), 3);
    assert_eq!(probes(&ElfFile::from_bytes(bytes, "prelinked").unwrap()), before);
}

#[test]
fn broken_notes_are_refused_one_by_one() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROBES, "-O1");
    let bytes = fs::read(&path).unwrap();
    let notes = notes(&bytes);
    let with = |at: usize, value: u64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        ElfFile::from_bytes(bytes, "broken").unwrap().usdt_probes().unwrap()
    };
    let locations =
        |found: &UsdtProbes| found.probes.iter().map(|probe| probe.locations.len()).sum::<usize>();
    let outside = with(notes[0] + 8, 0x7777_0000);
    assert_eq!(
        (locations(&outside), outside.refused[0].reason),
        (2, LocationRefusal::NotCode(VirtualAddress(0x7777_0000)))
    );
    let semaphore = with(notes[0] + 24, 0x40);
    assert_eq!(
        (locations(&semaphore), semaphore.refused[0].reason),
        (2, LocationRefusal::Semaphore(VirtualAddress(0x40)))
    );
    // The first description is too short for its strings, and the second is longer than the section.
    let cut = with(notes[0] - 8, 3 << 32 | 8);
    assert_eq!(cut.refused[0].reason, LocationRefusal::Malformed);
    let long = with(notes[0] - 8, 3 << 32 | 0x7fff_ffff);
    assert_eq!((locations(&long), long.refused.len()), (0, 1));
}

#[test]
fn files_without_probes_have_none() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", crate::elf::fixture::PROGRAM, "")).unwrap();
    assert_eq!(probes(&elf), UsdtProbes::default());
    assert!(matches!(ElfFile::from_bytes(&b"#!"[..], "script").unwrap_err().kind, ElfErrorKind::NotElf));
}

#[test]
fn notes_in_a_segment_serve_where_sections_are_gone() {
    let fixture = Fixture::new();
    // If notes are allocated, the file has a PT_NOTE.
    let source = PROBES.replace(r#"\"?\",\"note\""#, r#"\"a?\",\"note\""#);
    let path = fixture.compile("program.c", &source, "-O1 -no-pie -fno-pie");
    let before = probes(&ElfFile::open(&path).unwrap());
    let bare = crate::elf::file::tests::without_sections(fs::read(&path).unwrap());
    assert_eq!(probes(&ElfFile::from_bytes(bare, "bare").unwrap()), before);
    assert_eq!(before.probes.len(), 2);
}

#[test]
fn arguments_are_split_where_they_begin() {
    let texts = |text: &str| {
        parse_arguments(Machine::Aarch64, text).into_iter().map(|argument| argument.text).collect::<Vec<_>>()
    };
    assert_eq!(texts(""), [""; 0]);
    assert_eq!(texts("8@x0 -4@[sp, 12] 8@5"), ["8@x0", "-4@[sp, 12]", "8@5"]);
    assert_eq!(texts(&"8@x0 ".repeat(ARGUMENTS_LIMIT)).len(), ARGUMENTS_LIMIT);
    assert_eq!(texts(&"8@x0 ".repeat(ARGUMENTS_LIMIT + 1)).len(), ARGUMENTS_LIMIT);
    let argument = &parse_arguments(Machine::Aarch64, "8@x0")[0];
    assert_eq!(argument.spec, Err(ArgumentError::Machine("aarch64")));
}

#[test]
fn sizes_are_checked() {
    let spec = |text: &str| parse_arguments(Machine::X86_64, text).remove(0).spec;
    for size in [1, 2, 4, 8, -1, -2, -4, -8] {
        assert_eq!(spec(&format!("{size}@%rax")).unwrap().size, size);
    }
    for text in ["16@%rax", "3@%rax", "@%rax", "4f@%xmm0", "8f@%xmm0", "--4@%eax", "+4@%eax"] {
        assert!(matches!(spec(text), Err(ArgumentError::Size(_))), "{text}");
    }
    for text in ["%rax", "4", "8@"] {
        assert!(matches!(spec(text), Err(ArgumentError::Malformed(_))), "{text}");
    }
}

#[test]
fn integers_are_those_of_an_assembler() {
    for (text, value) in [
        ("0", 0),
        ("-1", -1),
        ("+7", 7),
        ("0x1F", 31),
        ("-0x10", -16),
        ("0xffffffffffffffff", -1),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(parse_integer(text), Some(value), "{text}");
    }
    for text in
        ["", "-", "0x", "x1", "1x", "--1", "-9223372036854775809", "18446744073709551616", "-0x-1", "+-1"]
    {
        assert_eq!(parse_integer(text), None, "{text}");
    }
}

#[test]
fn installed_files_have_the_probes_that_readelf_lists() {
    let fixture = Fixture::new();
    // libstdc++ comes with the compiler, and has probes (`libstdcxx:throw`).
    let path = fixture.run("g++", &["-print-file-name=libstdc++.so.6"]);
    let path = path.trim();
    let theirs = fixture.run("readelf", &["-nW", path]);
    let count = theirs.matches("NT_STAPSDT").count();
    if count == 0 {
        speed_bump_testing::skip!("{path} has no USDT probes");
        return;
    }
    let found = probes(&ElfFile::open(std::path::Path::new(path)).unwrap());
    let mut ours: Vec<(String, String, u64)> = Vec::new();
    for probe in &found.probes {
        for location in &probe.locations {
            ours.push((probe.provider.clone(), probe.name.clone(), location.address.0));
        }
    }
    let field = |line: &str, key: &str| line.split_once(key).map(|(_, rest)| rest.trim().to_owned());
    let (mut provider, mut name, mut expected) = (String::new(), String::new(), Vec::new());
    for line in theirs.lines() {
        if let Some(text) = field(line, "Provider:") {
            provider = text;
        } else if let Some(text) = field(line, "Name:") {
            name = text;
        } else if let Some(text) = field(line, "Location:") {
            let address = text.split(',').next().unwrap().trim_start_matches("0x");
            expected.push((provider.clone(), name.clone(), u64::from_str_radix(address, 16).unwrap()));
        }
    }
    assert_eq!(expected.len(), count);
    ours.sort();
    expected.sort();
    assert_eq!(ours, expected);
}

#[test]
fn what_follows_the_last_note_is_padding_or_is_refused() {
    let fixture = Fixture::new();
    let path = fixture.compile("program.c", PROBES, "-O1");
    fixture.run("objcopy", &["--dump-section", ".note.stapsdt=notes", "program"]);
    let notes = fs::read(fixture.path("notes")).unwrap();
    let with = |more: &[u8]| {
        fs::write(fixture.path("more"), [&notes, more].concat()).unwrap();
        fixture.run("objcopy", &["--update-section", ".note.stapsdt=more", "program"]);
        let found = ElfFile::open(&path).unwrap().usdt_probes().unwrap();
        assert_eq!(found.probes.len(), 2);
        found.refused.iter().map(|refused| refused.reason).collect::<Vec<_>>()
    };
    assert_eq!(with(&[0; 8]), []);
    assert_eq!(with(&[0, 0, 0, 1]), [LocationRefusal::Malformed]);
}

#[test]
fn a_probes_names_have_a_longest_length() {
    let fixture = Fixture::new();
    for (provider, name, refused) in
        [(NAME_BYTES, 1, 0), (1, NAME_BYTES, 0), (NAME_BYTES + 1, 1, 1), (1, NAME_BYTES + 1, 1)]
    {
        let source = PROBES
            .replace(r#"\"app\""#, &format!(r#"\"{}\""#, "p".repeat(provider)))
            .replace(r#"NOTE("plain""#, &format!(r#"NOTE("{}""#, "n".repeat(name)))
            .replace(r#"NOTE("request""#, r#"NOTE("r""#);
        let found = ElfFile::open(&fixture.compile("long.c", &source, "-O1")).unwrap().usdt_probes().unwrap();
        // All three probes have the provider.
        let expected = if provider > NAME_BYTES { 3 } else { refused };
        assert_eq!(found.refused.len(), expected, "{provider} {name}");
    }
}
