//! The pinned compiler and linker of the BPF programs, installed where missing.
//!
//! BPF needs nightly (`-Zbuild-std`) and bpf-linker with an LLVM at least as new as that nightly's. All other
//! builds need neither, since the built object is checked in.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::places;

use crate::{
    shell,
    system::{self, Need},
};

/// The nightly, by the commit that `rustc -vV` names and by the name that rustup installs it under.
const NIGHTLY_COMMIT: &str = "e50aa6fba4e63ab34c72bf9acfd2c307c1155d1a";
const NIGHTLY: &str = "nightly-2026-05-20";

/// bpf-linker, and the LLVM that it is built for. Both affect the generated code.
const LINKER_VERSION: &str = "0.13.0";
const LLVM: &str = "22";

/// What a build uses.
#[derive(Debug)]
pub(super) struct Toolchain {
    name: String,
    /// The nightly's own folder.
    pub(super) sysroot: PathBuf,
    /// bpf-linker.
    pub(super) linker: PathBuf,
    /// The nightly's copy of llvm-objcopy. It needs the nightly's `lib` in `LD_LIBRARY_PATH`.
    pub(super) objcopy: PathBuf,
}

impl Toolchain {
    /// Finds the pinned parts and installs those that are missing.
    pub(super) fn ensure() -> Result<Self> {
        if system::find_program("rustup").is_none() {
            bail!(
                "building the BPF programs needs rustup, to run {NIGHTLY} beside the stable Rust: see \
                 rustup.rs"
            );
        }
        let name = nightly()?;
        let sysroot = shell::output(run_in(&name, "rustc").args(["--print", "sysroot"]))?;
        let sysroot = PathBuf::from(sysroot.trim_end());
        if !sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file() {
            shell::run(Command::new("rustup").args(["component", "add", "rust-src", "--toolchain", &name]))
                .with_context(|| format!("toolchain {name} lacks the component rust-src"))?;
        }
        let objcopy = find_objcopy(&sysroot)?;
        let linker = linker()?;
        Ok(Self { name, sysroot, linker, objcopy })
    }

    /// A program of the nightly.
    pub(super) fn command(&self, program: &str) -> Command {
        run_in(&self.name, program)
    }

    /// The tools of this build, for the file beside the objects.
    pub(super) fn record(&self) -> String {
        let llvm = shell::output(Command::new(llvm_prefix().join("bin/llvm-config")).arg("--version"));
        let llvm = llvm.map_or_else(|_| format!("{LLVM} (no llvm-config)"), |text| text.trim().to_owned());
        format!("rustc {NIGHTLY} ({NIGHTLY_COMMIT})\nbpf-linker {LINKER_VERSION}\nLLVM {llvm}\n")
    }
}

/// A program of the pinned nightly, which is installed if it is missing.
pub(crate) fn run_nightly(program: &str) -> Result<Command> {
    Ok(run_in(&nightly()?, program))
}

/// A program of a toolchain, independent of the toolchain that runs this.
fn run_in(toolchain: &str, program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, program]).env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The name under which a toolchain with the pinned commit is installed here.
fn nightly() -> Result<String> {
    if let Some(name) = installed_nightly()? {
        return Ok(name);
    }
    eprintln!("installing {NIGHTLY}");
    let install = ["toolchain", "install", NIGHTLY, "--profile", "minimal", "--component", "rust-src"];
    shell::run(Command::new("rustup").args(install).env_remove("RUSTUP_TOOLCHAIN")).with_context(|| {
        format!(
            "the BPF programs are built with rustc commit {NIGHTLY_COMMIT} alone. Where rustup can reach \
             its server: rustup {}. Elsewhere: copy that toolchain here and rustup toolchain link {NIGHTLY} \
             FOLDER",
            install.join(" ")
        )
    })?;
    installed_nightly()?.with_context(|| format!("{NIGHTLY} is not commit {NIGHTLY_COMMIT}"))
}

fn installed_nightly() -> Result<Option<String>> {
    let list = shell::output(Command::new("rustup").args(["toolchain", "list", "--quiet"]))?;
    let mut names: Vec<_> = list.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    // We ask nightlies first, because asking a toolchain takes time.
    names.sort_by_key(|name| !name.starts_with("nightly"));
    for name in names {
        let is_pinned = shell::output(run_in(name, "rustc").arg("-vV"))
            .is_ok_and(|version| version.lines().any(|line| line.ends_with(NIGHTLY_COMMIT)));
        if is_pinned {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

fn find_objcopy(sysroot: &Path) -> Result<PathBuf> {
    let hosts = sysroot.join("lib/rustlib");
    let entries = fs::read_dir(&hosts).with_context(|| format!("cannot list {}", hosts.display()))?;
    entries
        .flatten()
        .map(|entry| entry.path().join("bin/rust-objcopy"))
        .find(|path| path.is_file())
        .with_context(|| format!("no rust-objcopy under {}", hosts.display()))
}

/// bpf-linker: our own build, a suitable one on `PATH`, or a fresh build.
fn linker() -> Result<PathBuf> {
    let root = places::target().join("tools").join(format!("bpf-linker-{LINKER_VERSION}-llvm-{LLVM}"));
    let own = root.join("bin/bpf-linker");
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_bin = cargo_home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let installed = cargo_bin.map(|home| home.join("bin/bpf-linker"));
    let on_path = system::find_program("bpf-linker");
    let found = [Some(own.clone()), on_path, installed].into_iter().flatten().find(|path| is_pinned(path));
    if let Some(linker) = found {
        return Ok(linker);
    }
    eprintln!("building bpf-linker {LINKER_VERSION}; this takes some minutes, once");
    let need = Need {
        program: "/usr/lib/llvm-22/bin/llvm-config",
        package: "llvm-22-dev",
        purpose: "to build bpf-linker",
    };
    if !llvm_prefix().join("bin/llvm-config").is_file() {
        system::ensure(&[need])?;
    }
    let feature = format!("llvm-{LLVM}");
    shell::run(
        Command::new("cargo")
            .args(["install", "bpf-linker", "--version", LINKER_VERSION, "--locked", "--root"])
            .arg(&root)
            .args(["--no-default-features", "--features", &feature])
            .env("LLVM_PREFIX", llvm_prefix())
            .env("CARGO_TARGET_DIR", places::target().join("tools/build"))
            .env_remove("RUSTUP_TOOLCHAIN"),
    )?;
    match is_pinned(&own) {
        true => Ok(own),
        false => bail!("{} is not bpf-linker {LINKER_VERSION} for LLVM {LLVM}", own.display()),
    }
}

/// LLVM's folder: `LLVM_PREFIX`, or Debian's.
fn llvm_prefix() -> PathBuf {
    env::var_os("LLVM_PREFIX").map_or_else(|| format!("/usr/lib/llvm-{LLVM}").into(), PathBuf::from)
}

/// Whether this is the pinned bpf-linker, runs here, and uses the pinned LLVM.
fn is_pinned(linker: &Path) -> bool {
    let version = format!("bpf-linker {LINKER_VERSION}");
    let library = format!("libLLVM.so.{LLVM}");
    shell::output(Command::new(linker).arg("--version")).is_ok_and(|said| said.trim() == version)
        && fs::read(linker).is_ok_and(|file| {
            // bpf-linker contains the name of the LLVM library that it needs. No other string in the file
            // looks like this name.
            file.windows(library.len()).any(|window| window == library.as_bytes())
        })
}
