//! The kernel module's parsers, which are plain C, in user space: its own tests, with the compiler's sanitizers. The module itself
//! is tested in virtual machines (kmod/README.md).

#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

use speed_bump_testing::skip;

#[test]
fn commands_and_symbols_are_read_whatever_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmod");
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("make") || !has("gcc") {
        return skip!("make or gcc is not installed");
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(&folder).arg("check");
    let output = make.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in ["commands", "functions"] {
        assert!(said.contains(&format!("ok - {part}:")), "{said}");
    }
}
