//! One build of the BPF crate, made independent of where it happens.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use serde_json::Value;
use speed_bump_testing::places;

use super::toolchain::Toolchain;
use crate::shell;

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// The contents of an object.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// The programs of a session.
    Session,
    /// The programs of a session, which also report why calls are not delayed.
    LoggingSession,
    /// The programs that count requests on sockets.
    Sockets,
}

impl Content {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Session, Self::LoggingSession, Self::Sockets];

    /// The beginning of its file's name.
    fn stem(self) -> &'static str {
        match self {
            Self::Session => "speed-bump",
            Self::LoggingSession => "speed-bump.log",
            Self::Sockets => "speed-bump.sockets",
        }
    }

    /// Arguments for cargo.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Session => &["--bin", "speed-bump-programs"],
            Self::LoggingSession => &["--bin", "speed-bump-programs", "--features", "log"],
            Self::Sockets => &["--bin", "speed-bump-sockets"],
        }
    }

    /// The binary that cargo makes.
    fn binary(self) -> &'static str {
        match self {
            Self::Session | Self::LoggingSession => "speed-bump-programs",
            Self::Sockets => "speed-bump-sockets",
        }
    }
}

/// An object, by contents and processor.
#[derive(Clone, Copy)]
pub(super) struct Variant {
    /// The processor.
    pub(super) architecture: &'static str,
    /// Its contents.
    pub(super) content: Content,
}

impl Variant {
    /// The object's file.
    pub(super) fn file(self) -> String {
        format!("{}.{}.bpf.o", self.content.stem(), self.architecture)
    }
}

/// Builds the programs and returns the finished object.
pub(super) fn object(toolchain: &Toolchain, variant: Variant) -> Result<Vec<u8>> {
    let Variant { architecture, content } = variant;
    let target = places::target().join("bpf").join(architecture);
    let mut flags = vec![
        format!("--cfg=bpf_target_arch=\"{architecture}\""),
        // BTF is made from debugging information.
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        // 32-bit instructions and atomics; every kernel with bpf_loop runs them.
        "-Ctarget-cpu=v3".into(),
        format!("-Clinker={}", toolchain.linker.display()),
    ];
    flags.extend(remapped_paths(toolchain)?);
    shell::run(
        cargo(toolchain)
            .args(["build", "--quiet", "--locked", "--release", "--package", "speed-bump-ebpf"])
            .args(content.arguments())
            .args(["--target", "bpfel-unknown-none", "-Zbuild-std=core", "--target-dir"])
            .arg(&target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR)),
    )?;
    let linked = target.join("bpfel-unknown-none/release").join(content.binary());
    let stripped = linked.with_extension("stripped");
    strip(toolchain, &linked, &stripped)?;
    fs::read(&stripped).with_context(|| format!("cannot read {}", stripped.display()))
}

/// The pinned cargo, in a clean environment: users may have compiler settings of their own, and `cargo xtask`
/// has set its own.
fn cargo(toolchain: &Toolchain) -> Command {
    let mut command = toolchain.command("cargo");
    command.current_dir(places::root());
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let is_setting = ["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_", "CARGO_UNSTABLE_", "RUSTC"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if is_setting || ["RUSTFLAGS", "CARGO", "CARGO_INCREMENTAL"].contains(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// Flags that replace every folder that a source path can begin with by a name of our own. BTF's line
/// information carries source paths, and the verifier's messages show them.
fn remapped_paths(toolchain: &Toolchain) -> Result<Vec<String>> {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let root = places::root();
    let mut flags = vec![remap(&root, "."), remap(&toolchain.sysroot.join("lib/rustlib/src/rust"), "/rustc")];
    // Cargo's home, a mirror or a vendor folder may hold packages: ask for each one's folder. The compiler
    // takes the last prefix that matches, so these win over a root that contains them.
    let metadata =
        shell::output(cargo(toolchain).args(["metadata", "--format-version=1", "--locked", "--quiet"]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("`cargo metadata` printed what is not JSON")?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    for package in packages.iter().filter(|package| !package["source"].is_null()) {
        let field = |name: &str| package[name].as_str().with_context(|| format!("a package has no {name}"));
        let folder = Path::new(field("manifest_path")?).parent().context("a manifest lies nowhere")?;
        flags.push(remap(folder, &format!("/crates/{}-{}", field("name")?, field("version")?)));
    }
    Ok(flags)
}

/// Drops DWARF, which contains paths that were not remapped and which nothing needs: the kernel reads `.BTF`
/// and `.BTF.ext`, and those stay.
fn strip(toolchain: &Toolchain, from: &Path, to: &Path) -> Result<()> {
    shell::run(
        Command::new(&toolchain.objcopy)
            .arg("--strip-debug")
            .args([from, to])
            .env("LD_LIBRARY_PATH", toolchain.sysroot.join("lib")),
    )
}
