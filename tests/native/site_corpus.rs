//! Whether chosen sites count calls: programs of gcc, g++ and rustc at every optimisation level, with and
//! without control-flow protection, count their own calls, and probes on the chosen sites count hits.
//!
//! Needs root (or CAP_BPF and CAP_PERFMON) and Linux 6.6 for the probes, and the compilers; where one is
//! missing the test says so and what it did not check.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![cfg(target_arch = "x86_64")]

mod corpus;
mod elf_code;
mod uprobe_hits;

use std::{collections::BTreeMap, env, fs, io, os::fd::AsRawFd, path::Path, process};

use speed_bump_session::probe::site::{
    self, CodeMap, CodeSegment, Exactness, Exclusion, FunctionCode, KernelRefusal, LandingPads, Site,
    SiteKind,
};
use speed_bump_testing::{case_ran, session::obstacle_to_uprobe_multi, skip, skip_case};
use speed_bump_units::units::{Nanos, VirtualAddress};

use self::{corpus::Build, elf_code::ElfCode, uprobe_hits::Hits};

/// What Linux 6.18 costs in a virtual machine; which sites are chosen hangs on it, whether they count does
/// not.
fn newest(kind: SiteKind) -> Nanos {
    Nanos(match kind {
        SiteKind::Nop5 => 345,
        SiteKind::Nop | SiteKind::LongNop | SiteKind::Jmp | SiteKind::Jcc => 500,
        SiteKind::Push => 520,
        SiteKind::Call => 620,
        SiteKind::SingleStep => 9_500,
    })
}

/// Costs that lead to the last candidate of each line instead, where a wrong one would show most.
fn latest(kind: SiteKind) -> Nanos {
    Nanos(match kind {
        SiteKind::Call | SiteKind::Jcc | SiteKind::Jmp => 100,
        SiteKind::Nop5 => 300,
        SiteKind::Nop | SiteKind::LongNop => 500,
        SiteKind::Push => 1_000,
        SiteKind::SingleStep => 9_500,
    })
}

#[test]
fn sites_count_calls_of_c() {
    check_all(&corpus::c_builds());
}

#[test]
fn sites_count_calls_of_cxx() {
    check_all(&corpus::cxx_builds());
}

#[test]
fn sites_count_calls_of_rust() {
    check_all(&corpus::rust_builds());
}

fn check_all(builds: &[Build]) {
    if let Some(why) = obstacle_to_uprobe_multi() {
        return skip!("{why}");
    }
    for build in builds {
        match build.compile() {
            Ok(program) => {
                check(&build.name, &program);
                case_ran!();
            }
            Err(why) => skip_case!(build.name, "{why}"),
        }
    }
}

/// Compares hits with calls for every function of one program.
fn check(name: &str, program: &Path) {
    let elf = ElfCode::read(program).unwrap();
    let map = elf.map();
    let addresses: BTreeMap<_, _> =
        elf.functions().into_iter().map(|function| (function.name.clone(), function)).collect();
    let mut running = corpus::Running::start(program);
    let unprobed = running.run();
    let mut inexact = 0;
    for (costs, cost) in [("newest", newest as fn(SiteKind) -> Nanos), ("latest", latest)] {
        let mut sites: BTreeMap<VirtualAddress, (Vec<&str>, Site, bool)> = BTreeMap::new();
        for function in unprobed.calls.keys() {
            let symbol = addresses.get(function).unwrap_or_else(|| panic!("{name}: no symbol {function}"));
            let code = FunctionCode {
                map: &map,
                entry: symbol.address,
                size: Some(symbol.size),
                shadow_stack: false,
            };
            let analysis = site::analyse(&code).unwrap();
            let entry_takes_probe = analysis.candidates[0].excluded.is_none();
            let chosen = analysis.choose(&cost).unwrap_or_else(|error| panic!("{name}: {function}: {error}"));
            // Compilers merge functions of the same code: those count together.
            sites.entry(symbol.address).or_insert((Vec::new(), chosen, entry_takes_probe)).0.push(function);
        }
        let at_sites: Vec<_> = sites.values().map(|(_, site, _)| elf.file_offset(site.address)).collect();
        let at_entries: Vec<_> =
            sites.iter().filter(|(_, site)| site.2).map(|(entry, _)| elf.file_offset(*entry)).collect();
        let site_hits = Hits::attach(program, running.id(), &at_sites).unwrap();
        let probed = running.run();
        let site_counts = site_hits.counts().unwrap();
        drop(site_hits);
        // What the machine really calls, tail calls turned into loops and all, the entries know best.
        let entry_hits = Hits::attach(program, running.id(), &at_entries).unwrap();
        assert_eq!(running.run().sum, unprobed.sum, "{name}: probes on entries changed what it computes");
        let mut entry_counts = entry_hits.counts().unwrap().into_iter();
        drop(entry_hits);

        assert_eq!(probed.sum, unprobed.sum, "{name}, {costs}: probes changed what it computes");
        for ((functions, site, entry_takes_probe), hits) in sites.values().zip(site_counts) {
            let (least, most) = functions.iter().fold((0, 0), |(least, most), function| {
                let (of_least, of_most) = probed.calls[*function];
                (least + of_least, most + of_most)
            });
            let what = format!("{name}, {costs}: {functions:?} {site:?}");
            // Sites that the choice itself declares may count more; no site may count less.
            let within = hits >= least && (hits <= most || site.exactness != Exactness::Once);
            assert!(within, "{what}: {hits} hits for {least} to {most} calls");
            inexact += usize::from(site.exactness != Exactness::Once);
            if *entry_takes_probe {
                assert_eq!(Some(hits), entry_counts.next(), "{what}: not the hits of the entry");
            }
        }
    }
    running.stop();
    assert!(inexact < unprobed.calls.len() / 2, "{name}: {inexact} sites that need not be exact");
}

/// Every function of large programs: no panic, a site for nearly all, and a cheap one for nearly all that
/// have one.
#[test]
fn functions_of_real_programs_are_analysed() {
    let own = env::current_exe().unwrap();
    let mut paths = vec![own];
    let known =
        ["/usr/bin/python3", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libcrypto.so.3"];
    paths.extend(known.iter().map(Into::into));
    paths.extend(env::var_os("SITE_CORPUS_PROGRAMS").iter().flat_map(env::split_paths));
    for path in paths {
        let Some(elf) = ElfCode::read(&path) else {
            skip_case!(path.display(), "not a readable ELF file");
            continue;
        };
        case_ran!();
        let map = elf.map();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        let mut because: BTreeMap<&str, usize> = BTreeMap::new();
        let functions: Vec<_> = elf.functions().into_iter().filter(|function| function.size > 0).collect();
        assert!(functions.len() > 500, "{}: {} functions", path.display(), functions.len());
        for function in &functions {
            let code = FunctionCode {
                map: &map,
                entry: function.address,
                size: Some(function.size),
                shadow_stack: false,
            };
            let analysis = site::analyse(&code).unwrap();
            match analysis.choose(&newest) {
                Ok(site) => {
                    assert!(
                        u64::from(site.offset_in_function) < function.size,
                        "{}: {site:?}",
                        function.name
                    );
                    *kinds.entry(site.kind.to_string()).or_default() += 1;
                    if site.kind == SiteKind::SingleStep {
                        *because.entry(why_not(&analysis)).or_default() += 1;
                    }
                }
                Err(refusal) => {
                    eprintln!("{}: {}: {refusal}", path.display(), function.name);
                    *kinds.entry("refused".to_owned()).or_default() += 1;
                }
            }
        }
        // In what was tried, none is refused, and 1 to 3 % lose a cheap site to a rule.
        let refused = kinds.get("refused").copied().unwrap_or(0);
        let lost = because.iter().filter(|(why, _)| **why != NO_CHEAP_SITE).map(|(_, count)| count).sum();
        for (what, count, percent) in [("are refused", refused, 1), ("lose a cheap site", lost, 5)] {
            let is_few = count * 100 <= functions.len() * percent;
            assert!(
                is_few,
                "{}: {count} of {} {what}: {kinds:?}, {because:?}",
                path.display(),
                functions.len()
            );
        }
        eprintln!("{}: {} functions: {kinds:?}; stepped: {because:?}", path.display(), functions.len());
    }
}

/// What [`why_not`] says where no rule is to blame.
const NO_CHEAP_SITE: &str = "none on the line";

/// Which rule cost a function its cheap site.
fn why_not(analysis: &site::Analysis) -> &'static str {
    let cheap = |candidate: &&site::Candidate| candidate.kind != SiteKind::SingleStep;
    match analysis.candidates.iter().find(cheap).and_then(|candidate| candidate.excluded) {
        None => NO_CHEAP_SITE,
        Some(Exclusion::Refused(_)) => "refused",
        Some(Exclusion::TrapsRepeatedly | Exclusion::ShadowStack) => "other",
        Some(Exclusion::RedZone) => "red zone",
        Some(Exclusion::Reached { .. }) => "reached",
        Some(Exclusion::Unproven(site::Doubt::IndirectJump(_))) => "indirect jump",
        Some(Exclusion::Unproven(_)) => "unproven",
    }
}

/// Our reading of the kernel against the kernel: it takes a probe on what we accept, and none on what we say
/// that it refuses. One refused site would fail the whole link, with every other site in it.
#[test]
fn the_kernel_agrees_on_what_it_refuses() {
    const SLOT: usize = 32;
    if let Some(why) = obstacle_to_uprobe_multi() {
        return skip!("{why}");
    }
    let encodings = [
        "90",
        "66 90",
        "0f 1f 44 00 00",
        "0f 1f 40 00",
        "55",
        "41 57",
        "f3 0f 1e fa",
        "e8 00 00 00 00",
        "67 e8 00 00 00 00",
        "e9 00 01 00 00",
        "eb 10",
        "f2 e9 00 01 00 00",
        "74 10",
        "0f 84 00 01 00 00",
        "c3",
        "48 83 ec 08",
        "48 8b 05 00 01 00 00",
        "64 48 8b 04 25 28 00 00 00",
        "ff d0",
        "ff 25 00 01 00 00",
        "e2 00",
        "66 0f ef c0",
        "f3 0f 6f 06",
        "c5 fc 10 06",
        "c5 f8 77",
        "c4 e2 7d 18 06",
        "62 f1 7c 48 10 06",
        "0f 0b",
        "0f a2",
        "48 0f c7 0e",
        "d9 c0",
        "9d",
        "f3 48 ab",
        "f3 90",
        "48 98",
        "c8 10 00 00",
        "48 0f b6 07",
        "0f c8",
        "66 0f 38 00 c1",
        "c5 f9 6e c7",
        "c5 fe 6f 06",
        "c5 f9 ef c0",
        "c5 f9 d6 07",
        "c5 f9 fa c1",
        "c5 f8 2f c1",
        "62 f1 7d 48 6f 06",
        "62 f1 7d 48 ef c0",
        "c5 f9 60 c1",
        "c4 e3 79 0e c1 00",
        "f0 ff 0f",
        "f0 48 0f b1 0e",
        "3e ff e0",
        "2e 74 00",
        "66 2e 0f 1f 84 00 00 00 00 00",
        "26 8b 07",
        "36 8b 07",
        "cc",
        "cd 80",
        "f1",
        "f4",
        "fa",
        "fb",
        "ec",
        "ee",
        "6c",
        "6e",
        "8e d0",
        "66 e9 00 00 00 00",
        "66 66 48 e8 00 00 00 00",
        "66 74 00",
        "06",
        "62",
        "d6",
    ];
    let mut text = vec![0x90_u8; 0x1000 + SLOT * encodings.len()];
    for (slot, hex) in encodings.iter().enumerate() {
        let bytes: Vec<u8> = hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        text[slot * SLOT..][..bytes.len()].copy_from_slice(&bytes);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("encodings");
    fs::write(&path, &text).unwrap();
    let file = fs::File::open(&path).unwrap();
    // SAFETY: a mapping of our own choosing of place, of a file that we hold; nothing runs or reads it.
    let mapped = unsafe {
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        libc::mmap(std::ptr::null_mut(), text.len(), protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED, "{}", io::Error::last_os_error());

    let segment = CodeSegment { address: VirtualAddress(0), bytes: &text };
    let map = CodeMap::new([segment], [], LandingPads::InSymbols);
    for (slot, hex) in encodings.iter().enumerate() {
        let offset = (slot * SLOT) as u64;
        let entry = VirtualAddress(offset);
        let analysis =
            site::analyse(&FunctionCode { map: &map, entry, size: None, shadow_stack: false }).unwrap();
        let ours = analysis.candidates[0].excluded;
        match Hits::attach(&path, process::id(), &[offset]) {
            Ok(_) => {
                // What the kernel takes and we do not, since the program would not survive or count right.
                let by_choice = matches!(
                    ours,
                    None | Some(Exclusion::TrapsRepeatedly)
                        | Some(Exclusion::Refused(KernelRefusal::SystemCall | KernelRefusal::TakenForNop))
                );
                assert!(by_choice, "{hex}: the kernel takes it, and we say {ours:?}");
            }
            Err(error) => assert!(ours.is_some(), "{hex}: the kernel refuses it ({error}), and we accept it"),
        }
    }
}
