//! The kernel module in kmod/: its parsers, which are plain C, in user space with the compiler's sanitizers;
//! and where it may be loaded, its own tests (kmod/tests), one by one.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use speed_bump_testing::{case_ran, skip, skip_case, wait::SLOWNESS_VARIABLE};

use crate::kmod::loaded::Kernel;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmod")
}

#[test]
fn commands_and_symbols_are_read_whatever_they_are() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("make") || !has("gcc") {
        return skip!("make or gcc is not installed");
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(folder()).arg("check");
    let output = make.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in ["commands", "functions"] {
        assert!(said.contains(&format!("ok - {part}:")), "{said}");
    }
}

/// How many random commands there are: fewer where each takes longer, and as many as `FUZZ_COUNT` says.
fn fuzz_count() -> u32 {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let slowness = number(SLOWNESS_VARIABLE).unwrap_or(1).max(1);
    number("FUZZ_COUNT").unwrap_or(12_000 / slowness)
}

/// Runs a part of kmod/tests against the loaded module.
fn part(name: &str) {
    let Some(kernel) = Kernel::take() else { return };
    let tests = folder().join("tests");
    let tools = tempfile::tempdir().unwrap();
    let links = Command::new("busybox").args(["--install", "-s"]).arg(tools.path()).status().unwrap();
    assert!(links.success());
    let path = format!("{}:{}", env::var("PATH").unwrap(), tools.path().display());
    let output = Command::new("sh")
        .arg(tests.join("run.sh"))
        .arg(name)
        .envs([("PATH", path.into()), ("MODULE", kernel.module().as_os_str().to_owned())])
        .env("BUILD", tests.join("build"))
        .env("W", tools.path().join("work"))
        .env("FUZZ_COUNT", fuzz_count().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    for line in said.lines().filter_map(|line| line.strip_prefix("ok - ")) {
        if let Some((what, why)) = line.split_once(" # SKIP because ") {
            skip_case!(what, "{what}: {why}");
        } else {
            case_ran!();
        }
    }
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.lines().filter(|line| line.starts_with("ok - ")).count() > 1, "{said}");
}

#[test]
fn targets_come_count_and_go() {
    part("basic");
}

#[test]
fn every_error_is_the_documented_one() {
    part("errors");
}

#[test]
fn processes_are_told_apart() {
    part("processes");
}

#[test]
fn spins_last_and_end() {
    part("spins");
}

#[test]
fn the_listing_is_whole() {
    part("listing");
}

#[test]
fn files_are_found_whatever_becomes_of_them() {
    part("files");
}

#[test]
fn random_commands_do_no_harm() {
    part("fuzz");
}

#[test]
fn what_happens_at_once_does_no_harm() {
    part("races");
}
