//! Small real programs for the tests, compiled when the tests run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A folder for the files of one test. The end of the test removes the folder.
pub(super) struct Fixture(tempfile::TempDir);

impl Fixture {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// Runs a tool in the folder, and returns its standard output.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.0.path())
            .env("LC_ALL", "C")
            .output()
            .unwrap_or_else(|error| panic!("`{program}` is needed by this test and cannot be run: {error}"));
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Compiles a C, C++, assembler or Rust source; its extension decides which. Spaces separate options. The
    /// result has the name of the source, without its extension.
    pub(super) fn compile(&self, source: &str, text: &str, options: &str) -> PathBuf {
        fs::write(self.path(source), text).unwrap();
        let (stem, extension) = source.rsplit_once('.').unwrap();
        let compiler = match extension {
            "cpp" => "g++",
            "rs" => "rustc",
            _ => "gcc",
        };
        let mut arguments = vec![source, "-o", stem];
        arguments.extend(options.split_ascii_whitespace());
        self.run(compiler, &arguments);
        self.path(stem)
    }
}

/// A program with functions of every binding, an alias, data, imports and a constant.
pub(super) const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int counter;
const char table[16] = "table";
__attribute__((noinline)) int marked(int x) { return x ^ 0x51ee7b0b; }
int alias(int) __attribute__((alias("marked")));
int weak_alias(int) __attribute__((weak, alias("marked")));
__attribute__((noinline)) static int local(int x) { return marked(x) ^ 0x10ca1; }
__attribute__((weak)) int weak(int x) { return local(x) + 1; }
__asm__(".pushsection .text\n"
        ".globl untyped\nuntyped: nop\nret\n"
        ".globl unsized\n.type unsized, @function\nunsized: nop\nret\n"
        ".globl constant\n.set constant, 0x1234\n"
        ".popsection\n");
int main(int argc, char **argv) {
    counter = weak(argc) + (argc > 100 ? atoi(argv[1]) : 0);
    printf("%d\n", counter);
    return 0;
}
"#;
