//! `cargo bench -p speed-bump-user --bench selector`: the cost of the selector in the process that executes
//! it, compared with one automaton for each pattern.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    collections::BTreeSet,
    hint::black_box,
    time::{Duration, Instant},
};

use regex_automata::{
    Input,
    dfa::{Automaton as _, dense},
};
use speed_bump_selector::Selector;
use speed_bump_session::targets::{ParsedTargets, selector};

const FILES: usize = 5_000;
const FUNCTIONS_PER_FILE: usize = 20;
/// An automaton with more bytes than this counts as one that cannot be built.
const MAX_AUTOMATON_BYTES: usize = 8 << 20;

/// 1,000 lines as people write them: exact methods, packages, classes, suffixes, and a few exclusions.
fn targets_file() -> String {
    let line = |n: usize| {
        let (package, module) = (n % 40, n % 333);
        match n % 20 {
            0..8 => format!("*/site-packages/pkg{package}/mod{module}.py:Class{n}.method{module}"),
            8..12 => format!("pkg{package}.mod{module}:*Attention{module}*"),
            12..16 => format!("*/pkg{package}/*:Class{n}*.forward"),
            16 => format!("*:*name{n}?[0-9]*"),
            17 => format!("pkg{package}.*:[!_]*{module}"),
            18 => format!("*/pkg{package}/*mod{module}*/*:*.<locals>.*inner{n}*"),
            _ => format!("!*/pkg{package}/test*:*{n}"),
        }
    };
    (0..1000).map(|n| line(n) + "\n").collect()
}

fn file(n: usize) -> String {
    format!("/usr/lib/python3.12/site-packages/pkg{}/sub{}/mod{}.py", n % 97, n % 11, n % 401)
}

fn function(n: usize) -> String {
    match n % 4 {
        0 => format!("Class{}.method{}", n % 1009, n % 333),
        1 => format!("Class{}.Inner.forward", n % 1009),
        2 => format!("outer{}.<locals>.inner{}", n % 31, n % 1009),
        _ => format!("function_name{}", n % 1009),
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// The automaton of a glob, for the patterns of this bench.
fn automaton(glob: &str) -> Option<Vec<u8>> {
    let mut regex = r"(?s)\A".to_owned();
    for c in glob.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '!' => regex.push('^'),
            '[' | ']' | '-' => regex.push(c),
            '.' => regex.push_str(r"\."),
            c => regex.push(c),
        }
    }
    let config = dense::Config::new()
        .start_kind(regex_automata::dfa::StartKind::Anchored)
        .dfa_size_limit(Some(MAX_AUTOMATON_BYTES))
        .determinize_size_limit(Some(MAX_AUTOMATON_BYTES * 4));
    regex.push_str(r"\z");
    let dfa = dense::Builder::new().configure(config).build(&regex).ok()?;
    Some(dfa.to_bytes_native_endian().0)
}

fn main() {
    let text = targets_file();
    let targets = ParsedTargets::parse("bench", text.as_bytes(), false).unwrap().decide(|_| false);
    let (bytes, compiling) = timed(|| selector::compile(&targets).unwrap());
    let (selector, checking) = timed(|| Selector::new(&bytes).unwrap());
    println!("1,000 lines: {} bytes, compiled in {compiling:.1?}, checked in {checking:.1?}", bytes.len());

    let files: Vec<String> = (0..FILES).map(file).collect();
    let functions: Vec<String> = (0..FUNCTIONS_PER_FILE * 1000).map(function).collect();
    let (modules, judging) =
        timed(|| files.iter().map(|file| black_box(selector.in_module(file))).collect::<Vec<_>>());
    let empty = modules.iter().filter(|module| module.is_empty()).count();
    let mut selected = 0;
    let ((), selecting) = timed(|| {
        for (n, module) in modules.iter().enumerate() {
            for at in 0..FUNCTIONS_PER_FILE {
                let name = &functions[(n * FUNCTIONS_PER_FILE + at) % functions.len()];
                selected += usize::from(black_box(module.select(name)).is_some());
            }
        }
    });
    println!(
        "{FILES} files: {:.1?} each, {empty} with nothing in them; {} functions: {:.0?} each, {selected} \
         selected",
        judging / FILES as u32,
        FILES * FUNCTIONS_PER_FILE,
        selecting / (FILES * FUNCTIONS_PER_FILE) as u32,
    );

    // The different module patterns, each as an automaton of its own.
    let all = || targets.iter().map(|(_, target)| target);
    let globs: BTreeSet<&str> = all().map(|target| target.module.as_str()).collect();
    let names: BTreeSet<&str> = all().map(|target| target.name.as_str()).collect();
    let is_glob = |glob: &&&str| glob.contains(['*', '?', '[']);
    let (modules, building) =
        timed(|| globs.iter().filter(is_glob).map(|glob| automaton(glob)).collect::<Vec<_>>());
    let (names, building_names) =
        timed(|| names.iter().filter(is_glob).map(|glob| automaton(glob)).collect::<Vec<_>>());
    let sizes: Vec<usize> = modules.iter().chain(&names).flatten().map(Vec::len).collect();
    println!(
        "automata: {} globs, {} too large; {} bytes in all, {} the largest; built in {:.1?}",
        modules.len() + names.len(),
        modules.len() + names.len() - sizes.len(),
        sizes.iter().sum::<usize>(),
        sizes.iter().max().unwrap(),
        building + building_names,
    );
    let (automata, checking) = timed(|| {
        modules
            .iter()
            .flatten()
            // A large allocation is aligned to 16 bytes, and `from_bytes` wants four.
            .filter_map(|bytes| dense::DFA::from_bytes(bytes).ok().map(|(dfa, _)| dfa))
            .collect::<Vec<_>>()
    });
    let few = &files[..200];
    let ((), running) = timed(|| {
        for file in few {
            for dfa in &automata {
                black_box(
                    dfa.try_search_fwd(&Input::new(file).anchored(regex_automata::Anchored::Yes)).unwrap(),
                );
            }
        }
    });
    let each = running / few.len() as u32;
    println!(
        "the {} of modules: checked in {checking:.1?}; {each:.1?} a file, by path alone: {:.0} times the \
         selector",
        automata.len(),
        each.as_secs_f64() / (judging / FILES as u32).as_secs_f64(),
    );
}
