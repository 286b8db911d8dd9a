//! Builds the helper's shared object, which the loader carries (`src/inject/image.rs`), and finds out which
//! commit this is.
//!
//! With the same cargo and compiler as the loader, for the same processor, in a target folder of its own: the
//! outer cargo holds the lock of the usual one. The flags of whoever builds the loader (`RUSTFLAGS`, a
//! sanitizer, a wrapper) are for the loader, and never meant for what goes into other processes.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Folders and files of the workspace that the image is made of.
const SOURCES: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "speed-bump-abi/Cargo.toml",
    "speed-bump-abi/src",
    "speed-bump-helper/Cargo.toml",
    "speed-bump-helper/src",
    "speed-bump-selector/Cargo.toml",
    "speed-bump-selector/src",
    "speed-bump-session/build.rs",
];

/// How the image is compiled: small, of one piece, with no unwinding.
const PROFILE: [(&str, &str); 7] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
];

/// What would make the inner cargo build something else.
const NOT_INHERITED: [&str; 9] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "CLIPPY_ARGS",
];

/// Nothing is linked, and a symbol that nobody has but the process is an error, but for `dlsym`. Both kinds
/// of hash table, as old C libraries read one and new ones may want the other.
const LINKER_ARGUMENTS: [&str; 4] =
    ["-nostdlib", "-nostartfiles", "-Wl,--build-id=sha1", "-Wl,--hash-style=both"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-env=SPEED_BUMP_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let root = here.parent().ok_or("speed-bump-session has no parent folder")?;
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let out = PathBuf::from(variable("OUT_DIR")?);
    let built = build(root, &out.join("helper-target"))?;
    let image = out.join("speed-bump-helper.so");
    fs::copy(&built, &image).map_err(|error| format!("copying {}: {error}", built.display()))?;
    println!("cargo::rustc-env=SPEED_BUMP_HELPER_IMAGE={}", image.display());
    Ok(())
}

fn build(root: &Path, target_folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = variable("TARGET")?;
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .current_dir(root)
        .args(["rustc", "--package", "speed-bump-helper", "--lib", "--crate-type", "cdylib"])
        .args(["--features", "image", "--release", "--locked", "--target", &target])
        .arg("--target-dir")
        .arg(target_folder)
        .arg("--")
        // A musl target links statically unless it is told, and then has no shared objects.
        .args(["-C", "target-feature=-crt-static"])
        .args(LINKER_ARGUMENTS.map(|argument| format!("-Clink-arg={argument}")))
        .envs(PROFILE);
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    let status = cargo.status().map_err(|error| format!("running cargo for speed-bump-helper: {error}"))?;
    if !status.success() {
        return Err(
            format!("building speed-bump-helper: cargo ended with {status}; its output is above").into()
        );
    }
    Ok(target_folder.join(target).join("release/libspeed_bump_helper.so"))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}, which cargo sets: {error}"))
}

/// The commit, for `--version`. Without git, or outside of a repository, that is unknown.
fn commit() -> Option<String> {
    // A repository around a package that somebody unpacked in it is not ours.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // It changes with every commit and checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists())?;
    println!("cargo::rerun-if-changed={log}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
