//! The bodies of the fuzz targets (`fuzz/fuzz_targets`, `cargo xtask fuzz`). There is one function for each
//! format in which a target process may write anything.
//!
//! Each function takes any bytes, passes them to the code that reads the format, and checks conditions that
//! hold for every answer. No function may panic, hang or use much memory. We build the functions for `cargo
//! fuzz` and for the tests of this crate. The tests run each function on the inputs in `fuzz/seeds`: starting
//! points, and earlier findings.

mod code;
mod elf;
mod process;
mod python;
mod report;

pub use code::{kmod_files, seccomp_filter, site};
pub use elf::{debug_files, go_table, mini_debug_info, names, notes, python_elf};
pub use process::{maps, status};
pub use python::{control_block, perf_map, source};
pub use report::report;

/// The body of a fuzz target.
pub type Run = fn(&[u8]);

/// All bodies, by the name of the fuzz target.
pub const ALL: [(&str, Run); 15] = [
    ("control_block", control_block),
    ("debug_files", debug_files),
    ("kmod_files", kmod_files),
    ("maps", maps),
    ("go_table", go_table),
    ("mini_debug_info", mini_debug_info),
    ("names", names),
    ("notes", notes),
    ("perf_map", perf_map),
    ("python_elf", python_elf),
    ("python_source", source),
    ("report", report),
    ("seccomp_filter", seccomp_filter),
    ("site", site),
    ("status", status),
];

/// Splits an input into numbers and bytes, from its front. When the input is used up, numbers are zero and
/// bytes are empty.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The next `count` bytes, or fewer at the end.
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// The next byte.
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next eight bytes as a number, or fewer at the end.
    fn number(&mut self) -> u64 {
        self.bytes(8).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The next two bytes as a number.
    fn short(&mut self) -> u16 {
        u16::from(self.byte()) | u16::from(self.byte()) << 8
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(name)
    }

    #[test]
    fn every_seed_is_survived() {
        for (name, run) in ALL {
            run(&[]);
            let mut seeds = 0;
            for seed in fs::read_dir(folder("seeds").join(name)).unwrap() {
                run(&fs::read(seed.unwrap().path()).unwrap());
                seeds += 1;
            }
            assert!(seeds > 0, "{name}");
        }
    }

    #[test]
    fn each_has_a_fuzz_target() {
        let targets: BTreeSet<String> = fs::read_dir(folder("fuzz_targets"))
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        for (name, _) in ALL {
            assert!(targets.contains(name), "{name}");
        }
    }
}
