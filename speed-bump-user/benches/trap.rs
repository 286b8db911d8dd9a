//! Measures what a call loses at a probe, compared with an empty program at the same instruction: `cargo
//! xtask bench trap`.
//!
//! Both are attached alternately, so that drift of the machine affects both. The result is the median of the
//! ratios of neighbouring rounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "empty/program.rs"]
mod empty_program;

use std::{fs::File, os::fd::AsFd as _, sync::Arc, time::Instant};

use speed_bump_abi::{FunctionEntry, Policy, SiteArguments};
use speed_bump_linux::{
    kernel::KernelFacts,
    sys::bpf::{self, MultiSites, ProgramKind, UprobeAttachType},
};
use speed_bump_session::{
    calibrate::{
        self,
        stubs::{self, Stub},
    },
    engine::bpf::{BpfEngine, Capacity, Form, Hold, UprobeProgram},
    probe::{
        attach::{self, AttachSite, SiteGroup},
        file::ProbeFile,
    },
};
use speed_bump_units::units::{Nanos, Pid};

const ROUNDS: usize = 9;
const CALLS: usize = 4_000;

/// Doses under which a call is not delayed, and one of which nothing is left to spin: name, whether a target
/// selects the function, delay in ns, frequency.
const DOSES: [(&str, bool, u64, u64); 5] = [
    ("no target", false, 0, 1),
    ("delay 0", true, 0, 1),
    ("not its turn", true, 1_000, u64::MAX),
    ("window closed", true, 1_000, 1),
    ("the floor", true, 1, 1),
];

fn main() {
    let kernel = KernelFacts::read();
    let costs = calibrate::measure(&kernel).unwrap();
    if costs.form() != Form::Multi {
        return println!("skipped, because this kernel has no uprobe_multi links bound to a process");
    }
    let stubs = Stub::all();
    let offsets = stubs::file_offsets(&stubs).unwrap();
    let count = u32::try_from(stubs.len()).unwrap();
    let capacity = Capacity {
        policies: 1,
        sites: count,
        functions: count,
        histograms: 0,
        times: false,
        bound: false,
        trampolines: 0,
        called: 1,
        python_usdt: false,
    };
    let mut engine = BpfEngine::load(capacity, Form::Multi, None, Hold::default()).unwrap();
    engine.set_coldness(costs.coldness()).unwrap();
    let file =
        Arc::new(ProbeFile::new(File::open("/proc/self/exe").unwrap(), "/proc/self/exe".into()).unwrap());
    let sites: Vec<AttachSite> = (0..)
        .zip(&offsets)
        .map(|(site, offset)| AttachSite { offset: *offset, semaphore: None, site })
        .collect();
    for site in 0..count {
        // More than any delay here: nothing is left to spin.
        let arguments = SiteArguments { function: site, overhead_ns: u32::MAX, ..SiteArguments::default() };
        engine.set_site(site, arguments).unwrap();
    }

    let (btf, empty) = empty_program::load(ProgramKind::Uprobe(UprobeAttachType::Multi));
    let unprobed = costs_ns(&stubs);
    let mut baseline = vec![Vec::new(); stubs.len()];
    let mut ratios = vec![vec![Vec::new(); stubs.len()]; DOSES.len()];
    for _ in 0..ROUNDS {
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset.0).collect();
        let none = vec![0; sites.len()];
        let arrays =
            MultiSites { path: file.attach_path(), offsets: &offsets, semaphores: &none, cookies: &none };
        let link = bpf::link_uprobe_multi(empty.as_fd(), &arrays, Some(Pid::own())).unwrap();
        let least = more(&stubs, &unprobed);
        drop(link);
        for (all, ns) in baseline.iter_mut().zip(&least) {
            all.push(*ns);
        }
        let group = SiteGroup { file: Arc::clone(&file), program: UprobeProgram::Site, sites: sites.clone() };
        let (_attached, refused) = attach::attach(&engine, Pid::own(), 0, &[group], &|| {}).unwrap();
        assert!(refused.is_empty());
        for ((name, selected, delay_ns, frequency), ratios) in DOSES.iter().zip(&mut ratios) {
            let end = if *name == "window closed" { Nanos(1) } else { Nanos(u64::MAX) };
            engine.switch().open(Nanos(0), end);
            engine.switch().renew(Nanos(u64::MAX));
            let policy = Policy { delay_ns: *delay_ns, frequency: *frequency, ..Policy::default() };
            engine.switch().set(&[(0, policy)]).unwrap();
            for function in 0..count {
                let entry = if *selected { FunctionEntry::of(0) } else { FunctionEntry::NONE };
                engine.functions().set_entry(function, entry);
            }
            for ((all, ours), least) in ratios.iter_mut().zip(more(&stubs, &unprobed)).zip(&least) {
                all.push(ours as f64 / *least as f64);
            }
        }
    }
    drop(btf);

    print!("{:<18} {:>12}", "instruction", "empty, ns");
    for (name, ..) in DOSES {
        print!(" {name:>14}");
    }
    println!();
    for (index, stub) in stubs.iter().enumerate() {
        print!("{:<18} {:>12}", stub.kind, median(&mut baseline[index]));
        for ratios in &mut ratios {
            ratios[index].sort_by(f64::total_cmp);
            print!(" {:>14.2}", ratios[index][ROUNDS / 2]);
        }
        println!();
    }
}

/// What a call of each stub costs more than without a probe, in ns.
fn more(stubs: &[Stub], unprobed: &[u64]) -> Vec<u64> {
    costs_ns(stubs).iter().zip(unprobed).map(|(probed, unprobed)| probed.saturating_sub(*unprobed)).collect()
}

/// What a call of each stub takes, in ns: the median.
fn costs_ns(stubs: &[Stub]) -> Vec<u64> {
    stubs
        .iter()
        .map(|stub| {
            let mut taken: Vec<u64> = (0..CALLS)
                .map(|_| {
                    let began = Instant::now();
                    stub.call();
                    Nanos::from(began.elapsed()).0
                })
                .collect();
            median(&mut taken)
        })
        .collect()
}

fn median(taken: &mut [u64]) -> u64 {
    taken.sort_unstable();
    taken[taken.len() / 2]
}
