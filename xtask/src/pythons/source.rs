//! Builds Pythons that Debian packages only as sources.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context as _, Result};

use crate::{
    debian::Archive,
    shell,
    system::{self, Need},
};

/// A Python to build.
#[derive(Debug)]
pub(super) struct Build {
    /// Its folder in target/pythons.
    pub(super) name: &'static str,
    package: &'static str,
    suite: &'static str,
    flags: &'static [&'static str],
}

/// What is built. The mirrors drop a source when a newer one comes, long before its packages reach all
/// suites; a stable suite keeps its own.
pub(super) const BUILDS: [Build; 2] = [
    Build { name: "3.13t", package: "python3.13", suite: "trixie", flags: &["--disable-gil"] },
    Build { name: "3.14t", package: "python3.14", suite: "forky", flags: &["--disable-gil"] },
];

const NEEDS: [Need; 6] = [
    Need { program: "gcc", package: "gcc", purpose: "to compile Python" },
    Need { program: "/usr/include/stdio.h", package: "libc6-dev", purpose: "to compile Python" },
    Need { program: "make", package: "make", purpose: "to compile Python" },
    Need { program: "xz", package: "xz-utils", purpose: "to unpack Python's source" },
    Need { program: "/usr/include/zlib.h", package: "zlib1g-dev", purpose: "for Python's zlib" },
    Need { program: "/usr/include/openssl/ssl.h", package: "libssl-dev", purpose: "for Python's ssl" },
];

/// Whether this folder has this build, and the build is complete.
pub(super) fn is_complete(folder: &Path, build: &Build) -> bool {
    folder.join(build.name).join("bin/python3").is_file()
}

/// Fetches the source, builds it and installs it into a folder of its own, replacing what was there.
pub(super) fn build(folder: &Path, build: &Build, archive: &Archive) -> Result<()> {
    system::ensure(&NEEDS)?;
    let finished = absolute(&folder.join(build.name))?;
    // We build in another folder and rename it at the end, so that an interrupted build leaves nothing that
    // looks complete.
    let work = tempfile::Builder::new().prefix(".build-").tempdir_in(folder)?;
    let source = archive.source(build.package, build.suite, work.path())?;
    let (tree, objects, stage) =
        (work.path().join("tree"), work.path().join("objects"), work.path().join("stage"));
    for part in [&tree, &objects, &stage] {
        fs::create_dir(part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    eprintln!("building Python {} from {}: some minutes", build.name, file_name(&source));
    shell::output(
        Command::new("tar").arg("-xf").arg(&source).args(["--strip-components=1", "-C"]).arg(&tree),
    )?;
    // The interpreter finds its library relative to itself, so we may rename the folder.
    let prefix = format!("--prefix={}", finished.display());
    let configure = absolute(&tree.join("configure"))?;
    shell::output(
        Command::new(configure)
            .args(["--quiet", "--disable-test-modules", "--without-ensurepip", &prefix])
            .args(build.flags)
            .current_dir(&objects),
    )?;
    let jobs = format!("-j{}", thread::available_parallelism()?);
    shell::output(Command::new("make").args(["-s", &jobs]).current_dir(&objects))?;
    let destination = format!("DESTDIR={}", absolute(&stage)?.display());
    shell::output(Command::new("make").args(["-s", "install", &destination]).current_dir(&objects))?;
    let installed = stage.join(finished.strip_prefix("/").unwrap_or(&finished));
    if finished.exists() {
        fs::remove_dir_all(&finished).with_context(|| format!("cannot remove {}", finished.display()))?;
    }
    fs::rename(&installed, &finished).with_context(|| format!("cannot move to {}", finished.display()))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot make {} absolute", path.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
