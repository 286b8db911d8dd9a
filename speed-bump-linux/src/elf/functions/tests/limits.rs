//! Tests the exact limits on symbols and on the bytes of names, and the warnings about symbols beyond them.

use object::{LittleEndian, U16, U32, U64};

use super::*;

fn name(text: &str) -> SymbolName {
    SymbolName::new(text.as_bytes(), None, Binding::Global, TableKind::Symbols)
}

fn at(address: u64, size: u64, text: &str) -> FunctionSymbol {
    let names = FunctionNames::new(vec![name(text)]).unwrap();
    FunctionSymbol { address: VirtualAddress(address), size, offset: FileOffset(0), names }
}

fn refused(text: &str, refusal: Refusal) -> RefusedSymbol {
    RefusedSymbol { name: name(text), refusal, part: None }
}

#[test]
fn an_address_belongs_to_a_function_up_to_its_end() {
    let functions = vec![at(0x1000, 8, "sized"), at(0x2000, 0, "unsized")];
    let functions = Functions { functions, ..Functions::default() };
    for (address, found) in [
        (0xfff, None),
        (0x1000, Some(0x1000)),
        (0x1007, Some(0x1000)),
        (0x1008, None),
        (0x2000, Some(0x2000)),
        (0x2001, None),
    ] {
        let containing = functions.containing(VirtualAddress(address));
        assert_eq!(containing.map(|function| function.address.0), found, "{address:#x}");
    }
}

#[test]
fn names_beyond_a_length_are_left_out_and_counted() {
    let fixture = Fixture::new();
    let [longest, longer, longer_still] = [0, 1, 2].map(|more| "x".repeat(NAME_BYTES + more));
    let mut source = String::new();
    for name in [&longest, &longer, &longer_still] {
        source.push_str(&format!(".globl {name}\n.type {name},@function\n{name}: ret\n"));
    }
    let path = fixture.compile("names.s", &source, "-shared -nostdlib");
    // Leaves only one table, so that each name occurs once.
    fixture.run("strip", &["names"]);
    let functions = ElfFile::open(&path).unwrap().functions().unwrap();
    assert!(function(&functions, &longest).is_some());
    assert!(function(&functions, &longer).is_none() && function(&functions, &longer_still).is_none());
    let [warning] = functions.warnings() else { panic!("{:?}", functions.warnings()) };
    assert!(warning.contains("2 symbols are left out, whose names have more than 4096 bytes"), "{warning}");
}

#[test]
fn symbols_beyond_a_number_and_beyond_their_names_are_left_out_and_counted() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", PROGRAM, "")).unwrap();
    let collect = |prepare: &dyn Fn(&mut Collector<'_>)| {
        let mut found = Collector::new(&elf);
        prepare(&mut found);
        found.own_tables().unwrap();
        let symbols = found.entries.len() + found.refused.len();
        (symbols, found.names, found.too_many, found.finish().warnings)
    };
    let (all, names, none, warnings) = collect(&|_| {});
    assert_eq!((none, warnings), (0, Vec::new()));

    let room = 3;
    let filler = || vec![refused("filler", Refusal::Data); SYMBOLS_LIMIT - room];
    let (symbols, _, left_out, warnings) = collect(&|found| found.refused = filler());
    assert_eq!((symbols, left_out), (SYMBOLS_LIMIT, all - room));
    let told = format!("{left_out} symbols are left out: at most 1048576 are read of a file, and 128 MiB");
    assert!(warnings.iter().any(|warning| warning.contains(&told)), "{warnings:?}");

    let just_fit = collect(&|found| found.names = NAMES_LIMIT - names);
    assert_eq!((just_fit.0, just_fit.1, just_fit.2), (all, NAMES_LIMIT, 0));
    let one_byte_less = collect(&|found| found.names = NAMES_LIMIT - names + 1);
    assert!(one_byte_less.1 <= NAMES_LIMIT && one_byte_less.2 > 0);
    assert_eq!(one_byte_less.0 + one_byte_less.2, all);
}

#[test]
fn a_name_that_a_function_has_is_not_refused_too() {
    let names = ["a", "f", "f", "g", "z"];
    let all = names.map(|text| refused(text, Refusal::Imported)).into();
    let left = without_accepted(all, &[at(0x1000, 1, "f"), at(0x2000, 1, "z")], &[]);
    assert_eq!(left.iter().map(|symbol| symbol.name.as_str()).collect::<Vec<_>>(), ["a", "g"]);
}

#[test]
fn a_common_symbol_is_data_whatever_it_claims() {
    let fixture = Fixture::new();
    let elf = ElfFile::open(&fixture.compile("program.c", PROGRAM, "-no-pie -fno-pie")).unwrap();
    let functions = elf.functions().unwrap();
    let address = function(&functions, "marked").unwrap().address.0;
    let judged = |section| {
        let symbol = Symbol {
            st_name: U32::new(LittleEndian, 0),
            st_info: elf::STT_FUNC,
            st_other: 0,
            st_shndx: U16::new(LittleEndian, section),
            st_value: U64::new(LittleEndian, address),
            st_size: U64::new(LittleEndian, 4),
        };
        judge(&elf, &symbol, b"f").map(drop)
    };
    assert_eq!(judged(1), Ok(()));
    assert_eq!(judged(elf::SHN_COMMON), Err(Refusal::Data));
}
