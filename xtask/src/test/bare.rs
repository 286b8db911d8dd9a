//! `cargo xtask test --bare`: all tests in an empty Debian that only has what every contributor has after
//! cloning: a compiler, git, Python and Rust.
//!
//! debootstrap makes it, in target/bare. The working tree is copied into it, below a home that no other user
//! may enter, and fetches all that it needs again. The kernel, the toolchain, and the network's settings come
//! from the host.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::places;

use super::skip_list::matches;
use crate::{
    debian, root, shell,
    system::{self, Need},
};

const DEBOOTSTRAP: Need = Need {
    program: "/usr/sbin/debootstrap",
    package: "debootstrap",
    purpose: "to make an empty Debian to run the tests in",
};

/// Makes the root and runs the command in it.
const SCRIPT: &str = include_str!("bare/run.sh");

/// The folders of programs, outside and inside.
const PATH: &str = "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that are passed on: for the network, and for how many tests run at a time.
const VARIABLES: [&str; 9] = [
    "CARGO_HTTP_*",
    "CARGO_NET_*",
    "CURL_CA_BUNDLE",
    "PIP_*",
    "REQUESTS_CA_BUNDLE",
    "RUST_TEST_THREADS",
    "SSL_CERT_*",
    "*_PROXY",
    "*_proxy",
];

/// Runs `cargo xtask test` with these arguments in an empty Debian. The root stays, for inspection.
///
/// # Errors
/// The root cannot be made, or a test there fails.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    system::ensure(&[DEBOOTSTRAP])?;
    let folder = places::target().join("bare");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = fs::canonicalize(&folder).with_context(|| format!("no {}", folder.display()))?;
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let suite = debian::codename()?;
    let mirror = debian::mirror(&[&suite])?;
    write("files", &files()?)?;
    write("apt.conf", debian::network_settings()?.as_bytes())?;
    let settings = cargo_home().and_then(|home| fs::read(home.join("config.toml")).ok());
    write("cargo.toml", &settings.unwrap_or_default())?;

    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "run.sh"]).arg(&folder).args([&suite, &mirror]).arg(places::root());
    command.arg(toolchain()?).args(["cargo", "xtask", "test"]).args(arguments);
    for (name, _) in env::vars_os() {
        if !is_taken_along(&name) {
            command.env_remove(name);
        }
    }
    command.envs([("PATH", PATH), ("HOME", "/root"), ("TERM", "dumb")]);
    root::run(&mut command).with_context(|| format!("in {}", folder.join("root").display()))
}

/// The files of the working tree that are not ignored, each followed by a NUL.
fn files() -> Result<Vec<u8>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(places::root());
    let listed = shell::output(&mut git)?;
    let is_there = |name: &&str| fs::symlink_metadata(places::root().join(name)).is_ok();
    let names = listed.split_terminator('\0').filter(is_there);
    Ok(names.flat_map(|name| name.bytes().chain([0])).collect())
}

/// Where cargo keeps its settings.
fn cargo_home() -> Option<PathBuf> {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}

/// The folder of the running toolchain, which holds nothing else.
fn toolchain() -> Result<PathBuf> {
    let sysroot =
        PathBuf::from(shell::output(Command::new("rustc").args(["--print", "sysroot"]))?.trim_end());
    if sysroot == Path::new("/usr") || !sysroot.join("bin/cargo").is_file() {
        bail!("--bare takes the toolchain along, which has to be one of rustup's: {}", sysroot.display());
    }
    Ok(sysroot)
}

fn is_taken_along(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| VARIABLES.iter().any(|pattern| matches(pattern, name)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn of_the_environment_only_the_way_to_the_network_is_taken_along() {
        let is = |name: &str| is_taken_along(name.as_ref());
        assert!(
            ["https_proxy", "NO_PROXY", "PIP_INDEX_URL", "SSL_CERT_FILE", "CARGO_HTTP_CAINFO"]
                .into_iter()
                .all(is)
        );
        assert!(
            !["PYENV_ROOT", "CARGO_TARGET_DIR", "CI", "SPEED_BUMP_PYTHONS", "TMPDIR", "USER"]
                .into_iter()
                .any(is)
        );
    }

    #[test]
    fn files_that_git_ignores_are_left_out() {
        let listed = String::from_utf8(files().unwrap()).unwrap();
        let has = |start: &str| listed.split('\0').any(|name| name.starts_with(start));
        assert!(
            has("xtask/src/test/bare.rs")
                && has("Cargo.lock")
                && has(".cargo/config.toml")
                && !has("target/")
        );
    }
}
