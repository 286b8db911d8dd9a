//! Programs that move their code to anonymous memory soon after their start.
//!
//! If the code has breakpoints, its copy has them too, and there they kill the process: the kernel knows of
//! no probe at the copy. So we put no probe into these programs before they have moved their code.

use std::{os::unix::ffi::OsStrExt as _, time::Duration};

use crate::process::{MappedFile, Process};

/// After this time, a program has moved its code, or never will.
const YOUNG: Duration = Duration::from_secs(10);
/// Programs that BOLT makes with `--hugify` have symbols with this prefix.
const BOLT: &str = "__bolt_hugify";
/// The option of node (`node --help`), which NODE_OPTIONS may also give.
const NODE: &[u8] = b"--use-largepages=";

/// Whether a function with this name shows that its program moves its code.
pub(super) fn says_so(name: &str) -> bool {
    name.starts_with(BOLT)
}

/// Why we may put no probe into a file: the process executes the file, and is about to move its code. `None`
/// if we may. `says_so` says whether a symbol of the file shows that the program moves its code.
pub(super) fn is_near(process: &Process, mapped: &MappedFile, says_so: bool) -> Option<String> {
    let is_old = || process.age().is_some_and(|age| age > YOUNG);
    let what = if says_so {
        "it was made with BOLT's --hugify"
    } else if asks_node(process) {
        "it was started with --use-largepages"
    } else {
        return None;
    };
    (mapped.is_program_of(process) && !is_old()).then(|| {
        format!(
            "process {} is about to put memory of its own in place of this file's code ({what}): breakpoints \
             would be copied with it, and kill the process; start it without that",
            process.pid()
        )
    })
}

fn asks_node(process: &Process) -> bool {
    let asks = |text: &[u8]| {
        let mut words = text.split(u8::is_ascii_whitespace);
        words.any(|word| word.strip_prefix(NODE).is_some_and(|value| value != b"off"))
    };
    let arguments = process.command_line().unwrap_or_default();
    let environment = process.environment().unwrap_or_default();
    let options = environment.iter().filter_map(|of| of.as_bytes().strip_prefix(b"NODE_OPTIONS="));
    arguments.iter().any(|argument| asks(argument.as_bytes())) || options.into_iter().any(asks)
}
