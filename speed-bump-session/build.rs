//! Compiles the helper's shared object, which the loader embeds (`src/inject/image.rs`), and finds this
//! build's commit.
//!
//! The sources are those of three crates that this script depends on: cargo chooses them, from the workspace
//! or from a registry, and the loader is compiled with the same ones. The script calls the compiler itself,
//! as cargo makes no shared object of a dependency. So flags for building the loader (`RUSTFLAGS`, a
//! sanitizer, a wrapper), which cargo adds, never reach code that goes into other processes.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

/// A crate that is part of the image.
struct Part {
    name: &'static str,
    /// The folder of its `lib.rs`.
    sources: &'static str,
}

/// All parts, in an order in which each needs only those before it. The last one is the helper.
const PARTS: [Part; 3] = [
    Part { name: "speed_bump_abi", sources: speed_bump_abi::SOURCES },
    Part { name: "speed_bump_selector", sources: speed_bump_selector::SOURCES },
    Part { name: "speed_bump_helper", sources: speed_bump_helper::SOURCES },
];

/// Flags for each part: optimised, with no unwinding. Lints are for the workspace's own builds.
const ALL: [&str; 5] =
    ["--edition=2024", "-Copt-level=3", "-Ccodegen-units=1", "-Cpanic=abort", "--cap-lints=allow"];

/// How the image is linked: in one small piece. No library is linked, and a symbol that is not defined is an
/// error, but for `dlsym`. It has both kinds of hash table: old C libraries read one, and new ones may want
/// the other. A musl target links statically by default, and then makes no shared objects.
const IMAGE: [&str; 9] = [
    "--crate-type=cdylib",
    "--cfg=feature=\"image\"",
    "-Clto=fat",
    "-Cstrip=debuginfo",
    "-Ctarget-feature=-crt-static",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-Wl,--build-id=sha1",
    "-Clink-arg=-Wl,--hash-style=both",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-env=SPEED_BUMP_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let mut libraries = Vec::new();
    for part in &PARTS {
        let sources = sources(part)?;
        println!("cargo::rerun-if-changed={}", sources.display());
        libraries.push(compile(part, &sources, &libraries, &out)?);
    }
    let image = libraries.pop().ok_or("the helper has no parts")?;
    println!("cargo::rustc-env=SPEED_BUMP_HELPER_IMAGE={}", image.display());
    Ok(())
}

/// The folder of a part's sources now. Cargo does not compile this script again if a tree has moved, or has
/// been copied with its target folder.
fn sources(part: &Part) -> Result<PathBuf, Box<dyn Error>> {
    let now = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let parents = Path::new(env!("CARGO_MANIFEST_DIR")).parent().zip(now.parent());
    let moved = parents
        .and_then(|(then, now)| Path::new(part.sources).strip_prefix(then).ok().map(|rest| now.join(rest)));
    Ok(moved.unwrap_or_else(|| part.sources.into()))
}

/// Compiles a part that needs `libraries`, and returns its file.
fn compile(
    part: &Part,
    sources: &Path,
    libraries: &[PathBuf],
    out: &Path,
) -> Result<PathBuf, Box<dyn Error>> {
    let is_image = libraries.len() + 1 == PARTS.len();
    let file =
        out.join(if is_image { "speed-bump-helper.so".to_owned() } else { format!("lib{}.rlib", part.name) });
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc.arg(sources.join("lib.rs")).args(["--crate-name", part.name]);
    rustc.args(["--target", &variable("TARGET")?]).args(ALL).arg("-o").arg(&file);
    // The image is the same wherever the sources lie.
    rustc.arg(format!("--remap-path-prefix={}={}", sources.display(), part.name));
    for (part, library) in PARTS.iter().zip(libraries) {
        rustc.arg("--extern").arg(format!("{}={}", part.name, library.display()));
    }
    if is_image {
        rustc.args(IMAGE);
        // Set if cargo was told of one, for another processor.
        if let Ok(linker) = env::var("RUSTC_LINKER") {
            rustc.arg(format!("-Clinker={linker}"));
        }
    } else {
        rustc.arg("--crate-type=rlib");
    }
    let status = rustc.status().map_err(|error| format!("running rustc for {}: {error}", part.name))?;
    if !status.success() {
        return Err(format!("compiling {}: rustc ended with {status}; its output is above", part.name).into());
    }
    Ok(file)
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
