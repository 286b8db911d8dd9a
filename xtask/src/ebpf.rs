//! `cargo xtask ebpf`: builds or checks the BPF objects that the loader embeds.
//!
//! A build gives the same bytes in any folder, for any user: the compiler and the linker are pinned
//! (`toolchain`), source paths are remapped and debugging sections dropped (`build`).

mod build;
pub(crate) mod toolchain;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::places;

use build::{Content, Variant};
use toolchain::Toolchain;

/// The processors that the programs are built for. BPF code is the same; `pt_regs` is not.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// The file beside the objects that records the tools they were built with.
const RECORD: &str = "toolchain.txt";

#[derive(Args)]
pub(crate) struct Options {
    /// Rebuild in target/ and fail unless the checked-in objects are identical.
    #[arg(long)]
    check: bool,
}

/// Builds the objects, then writes or compares them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let toolchain = Toolchain::ensure()?;
    let mut differing = Vec::new();
    let variants = ARCHITECTURES
        .into_iter()
        .flat_map(|architecture| Content::ALL.map(|content| Variant { architecture, content }));
    for variant in variants {
        let built = build::object(&toolchain, variant)?;
        let checked_in = checked_in().join(variant.file());
        if !options.check {
            write(&checked_in, &built)?;
            println!("wrote {} ({} bytes)", checked_in.display(), built.len());
        } else if fs::read(&checked_in).ok().as_deref() == Some(built.as_slice()) {
            println!("identical: {}", checked_in.display());
        } else {
            let rebuilt = places::target().join("bpf").join(variant.file());
            write(&rebuilt, &built)?;
            differing.push(format!("{} differs from {}", checked_in.display(), rebuilt.display()));
        }
    }
    let record = checked_in().join(RECORD);
    if !options.check {
        return write(&record, toolchain.record().as_bytes());
    }
    if !differing.is_empty() {
        bail!(
            "{}\nIf the source changed: run `cargo xtask ebpf` and commit the result.\n\
             The checked-in objects were built with\n{}\nand the rebuilt objects with\n{}",
            differing.join("\n"),
            fs::read_to_string(&record).unwrap_or_else(|error| format!("({}: {error})\n", record.display())),
            toolchain.record(),
        );
    }
    Ok(())
}

/// The folder from which the loader embeds the objects.
fn checked_in() -> PathBuf {
    places::root().join("speed-bump-session/bpf")
}

fn write(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
