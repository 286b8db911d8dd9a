//! Fuzzes formats of code: machine code in which we choose sites, the seccomp filters of a thread, and the
//! texts of the engine `kmod`.

use std::path::Path;

use super::Input;
use crate::{
    engine::kmod::{Listing, Record, TargetName},
    inject::filter::{Call, STEPS, Verdict, judge},
    probe::site::{self, CodeMap, CodeSegment, CodeSymbol, Exactness, FunctionCode, LandingPads, SiteKind},
    sys::ptrace::FilterInstruction,
    units::{Nanos, VirtualAddress},
};

/// Any bytes as machine code, with any symbols and any unwind tables.
pub fn site(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choices = input.byte();
    let start = if choices & 1 == 0 { 0x1000 } else { input.number() };
    let base = VirtualAddress(start);
    let near = |short: u16| VirtualAddress(start.wrapping_add(u64::from(short)));
    let symbols: Vec<_> = (0..input.byte() % 8)
        .map(|_| CodeSymbol {
            address: near(input.short()),
            size: if choices & 2 == 0 { u64::from(input.short()) } else { input.number() },
            fragment: input.byte() & 1 == 1,
        })
        .collect();
    let landing_pads = match choices >> 2 & 3 {
        0 => LandingPads::InSymbols,
        1 => LandingPads::Anywhere,
        _ => {
            let length = usize::from(input.byte());
            LandingPads::of_eh_frame(input.bytes(length), base)
        }
    };
    let got = near(input.short());
    let (entry, size) = (near(u16::from(input.byte())), u64::from(input.short()));
    let segment = CodeSegment { address: base, bytes: input.0 };
    let map = CodeMap::new([segment], symbols, landing_pads)
        .with_got(std::iter::once(got.0..got.0.saturating_add(64)));
    for shadow_stack in [false, true] {
        let function = FunctionCode { map: &map, entry, size: Some(size), shadow_stack };
        let Ok(analysis) = site::analyse(&function) else { continue };
        assert_eq!(analysis.candidates.first().map(|entry| entry.offset), Some(0));
        let offsets: Vec<_> = analysis.candidates.iter().map(|candidate| candidate.offset).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b), "{offsets:?}");
        let cost = |kind: SiteKind| Nanos(if kind == SiteKind::SingleStep { 10_000 } else { 500 });
        let Ok(site) = analysis.choose(&cost) else { continue };
        let chosen = analysis.candidates.iter().find(|candidate| candidate.address == site.address);
        assert!(chosen.is_some_and(|chosen| chosen.excluded.is_none()));
        // A turn of this loop would count as a call, at every possible site.
        assert!(analysis.jump_to_entry.is_none() || site.exactness == Exactness::Repeats, "{analysis:?}");
        assert!(!shadow_stack || site.kind != SiteKind::Call);
        if let Ok(exits) = site::exits(&function, &site) {
            assert!(!exits.is_empty() && exits.len() <= site::EXITS_LIMIT);
            let addresses: Vec<_> = exits.iter().map(|exit| exit.address).collect();
            assert!(addresses.is_sorted_by(|a, b| a < b) && !addresses.contains(&site.address), "{exits:?}");
        }
    }
}

/// Any bytes as a seccomp filter. The filter judges a call with all its arguments known, and a call with none
/// known.
pub fn seccomp_filter(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<8>();
    let program: Vec<_> = words
        .iter()
        .map(|[code, code_high, jump_true, jump_false, constant @ ..]| FilterInstruction {
            code: u16::from_le_bytes([*code, *code_high]),
            jump_true: *jump_true,
            jump_false: *jump_false,
            constant: u32::from_le_bytes(*constant),
        })
        .collect();
    let answer = |call: Call| judge(&program, &call, 0xc000_003e, &mut { STEPS });
    let vague = answer(Call::any(libc::SYS_mmap));
    let exact = (0..6).fold(Call::any(libc::SYS_mmap), |call, position| call.with(position, 7 << position));
    // If we know all arguments, the answer must be one of the possible answers for fewer known arguments.
    if let (Verdict::Only(exact), Verdict::Only(vague)) = (answer(exact), vague) {
        assert!(exact.iter().all(|action| vague.contains(action)), "{exact:?} of {vague:?}");
    }
}

/// Any bytes as the kernel module's list of targets, and as the record of another tool.
pub fn kmod_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let listing = Listing::parse(&text);
    for target in &listing.targets {
        assert!(target.name.contains(':') && !target.name.contains([' ', '\n']), "{target:?}");
        assert!(listing.find(&target.name).is_some());
    }
    if let Ok(record) = serde_json::from_slice::<Record>(bytes) {
        for name in &record.targets {
            let (path, symbol) = (name.path(), name.as_str().rsplit_once(':').map(|(_, symbol)| symbol));
            assert_eq!(TargetName::new(path, symbol.unwrap_or_default()).as_ref(), Ok(name));
        }
    }
    if let Some((path, symbol)) = text.split_once('\0')
        && let Ok(name) = TargetName::new(Path::new(path), symbol)
    {
        assert!(!name.as_str().contains(|c: char| c == ' ' || c.is_control()), "{name}");
    }
}
