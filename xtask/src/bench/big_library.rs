//! A shared library as large as the largest: 50,000 functions in 500 MB, with C++ names, mapped by a running
//! process.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use speed_bump_testing::{Fixture, Service, places};

use crate::shell;

/// Functions of the library, named `torch::autograd::function_00000()` and on.
pub(super) const FUNCTIONS: usize = 50_000;
/// Bytes from one function to the next: together 500 MB.
const STRIDE: usize = 10_000;

/// The process that maps it. Dropping it ends the process.
pub(super) struct BigLibrary {
    pub(super) path: PathBuf,
    pub(super) service: Service,
    _fixture: Fixture,
}

/// Maps the library that it is given, and waits for the end of its input.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **arguments)
{
	char byte;
	if (count != 2 || !dlopen(arguments[1], RTLD_NOW)) {
		fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: program LIBRARY");
		return 1;
	}
	printf("{\"event\":\"ready\",\"pid\":%d}\n", getpid());
	fflush(stdout);
	while (read(0, &byte, 1) == 1)
		;
	return 0;
}
"#;

impl BigLibrary {
    /// Builds the library, unless it is there, and starts the process.
    pub(super) fn mapped() -> Result<Self> {
        let path = built()?;
        let fixture = Fixture::compile_text(HOST, &["-O2", "-ldl"])?;
        let service = Service::start(Command::new(fixture.program()).arg(&path))?;
        Ok(Self { path, service, _fixture: fixture })
    }
}

fn built() -> Result<PathBuf> {
    let folder = places::target().join("bench");
    let library = folder.join("libbig.so");
    if library.is_file() {
        return Ok(library);
    }
    eprintln!("building {} (500 MB, mostly holes)", library.display());
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (source, object, linked) = (folder.join("big.s"), folder.join("big.o"), folder.join("big.full.so"));
    fs::write(&source, assembly()).with_context(|| format!("cannot write {}", source.display()))?;
    shell::run(Command::new("gcc").arg("-c").arg(&source).arg("-o").arg(&object))?;
    shell::run(Command::new("gcc").args(["-shared", "-nostdlib"]).arg(&object).arg("-o").arg(&linked))?;
    shell::run(Command::new("cp").arg("--sparse=always").args([&linked, &library]))?;
    for file in [&source, &object, &linked] {
        remove(file)?;
    }
    Ok(library)
}

/// One function after the other, each with a frame, a call and a loop, and then nothing for a while.
fn assembly() -> String {
    let mut text = String::from(".text\n");
    for number in 0..FUNCTIONS {
        let name = format!("_ZN5torch8autograd14function_{number:05}Ev");
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            ".globl {name}\n.type {name}, @function\n{name}:\n endbr64\n sub $8, %rsp\n push %rbp\n mov \
             %rsp, %rbp\n mov $3, %eax\n1: dec %eax\n jnz 1b\n pop %rbp\n add $8, %rsp\n ret\n.size {name}, \
             . - {name}\n\
             .skip {STRIDE} - (. - {name})\n",
        );
    }
    text.push_str(".section .note.GNU-stack, \"\", @progbits\n");
    text
}

fn remove(file: &Path) -> Result<()> {
    fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))
}
