//! Finds the file that a Python process runs (the file of `__main__`) from its command line.
//!
//! The process owns its command line and may have written anything there. The result can only add to what a
//! line for `__main__` selects, and we match each file name as plain text.

use std::{
    env,
    ffi::{OsStr, OsString},
    iter,
    path::Path,
};

use crate::process::Process;

/// The most bytes that a path can have.
const LONGEST: usize = libc::PATH_MAX as usize;

/// Patterns for the `co_filename` of the file that a Python with these arguments runs. Empty for another
/// program.
///
/// Python 3.9 and later put the working folder before a relative path. `finds` returns the working folder if
/// it contains a file with that path. The process may have changed its working folder since it started.
///
/// Source: "Command line and environment" of CPython's documentation, 3.8 to 3.15.
pub(crate) fn globs(arguments: &[OsString], finds: &dyn Fn(&Path) -> Option<String>) -> Vec<String> {
    let Some((program, arguments)) = arguments.split_first() else { return Vec::new() };
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    if !name.starts_with("python") {
        return Vec::new();
    }
    let Some(arguments) = arguments.iter().map(|argument| argument.to_str()).collect::<Option<Vec<_>>>()
    else {
        return Vec::new();
    };
    match run(&arguments) {
        Run::Command => vec!["<string>".to_owned()],
        Run::StandardInput => vec!["<stdin>".to_owned()],
        Run::Module(module) if module.len() > LONGEST => Vec::new(),
        Run::Module(module) => {
            let path = escaped(&module.replace('.', "/"));
            vec![format!("*/{path}.py"), format!("*/{path}/__main__.py")]
        }
        Run::Script(script) if script.len() > LONGEST => Vec::new(),
        Run::Script(script) if script.starts_with('/') => vec![escaped(script)],
        Run::Script(script) => {
            let below = script.trim_start_matches("./");
            let folder = finds(Path::new(below)).map_or("*".to_owned(), |folder| escaped(&folder));
            let mut names = vec![escaped(script), format!("{folder}/{}", escaped(below))];
            if below != script {
                // CPython 3.9 to 3.13 keep a leading `./`.
                names.push(format!("{folder}/{}", escaped(script)));
            }
            names
        }
    }
}

/// Patterns for the file that a process runs. Empty if the process is not a Python, or if we cannot read it.
pub(crate) fn for_process(process: &Process) -> Vec<String> {
    let finds = |below: &Path| {
        let folder = process.working_folder().ok().flatten()?;
        process.open_file(&folder.join(below)).ok()?;
        folder.to_str().map(str::to_owned)
    };
    process.command_line().map(|arguments| globs(&arguments, &finds)).unwrap_or_default()
}

/// Patterns for the file that a command runs. Only the kernel finds out whether the command itself is a
/// script, when it reads the file. So we treat any command that is not a Python as a script: a pattern for
/// its own path does no harm.
pub(crate) fn for_command(command: &[OsString]) -> Vec<String> {
    let finds = |below: &Path| {
        let folder = env::current_dir().ok()?;
        folder.join(below).is_file().then(|| folder.to_str().map(str::to_owned)).flatten()
    };
    let globs_of = |arguments: &[OsString]| globs(arguments, &finds);
    match globs_of(command) {
        none if none.is_empty() => {
            globs_of(&iter::once("python".into()).chain(command.iter().cloned()).collect::<Vec<_>>())
        }
        globs => globs,
    }
}

/// What a Python command line tells Python to run.
#[derive(Debug, PartialEq, Eq)]
enum Run<'a> {
    Command,
    Module(&'a str),
    Script(&'a str),
    StandardInput,
}

fn run<'a>(arguments: &[&'a str]) -> Run<'a> {
    let mut arguments = arguments.iter().copied();
    while let Some(argument) = arguments.next() {
        if argument == "--check-hash-based-pycs" {
            arguments.next();
            continue;
        }
        if argument == "-" || argument.starts_with("--") {
            continue;
        }
        let Some(flags) = argument.strip_prefix('-') else { return Run::Script(argument) };
        // The user may join one-letter flags. A flag with a value takes the rest of the argument, or, if that
        // is empty, the next argument.
        let Some(at) = flags.find(['c', 'm', 'W', 'X']) else { continue };
        let rest = flags.get(at + 1..).filter(|rest| !rest.is_empty());
        let value = rest.or_else(|| arguments.next());
        match (flags.get(at..=at), value) {
            (Some("c"), _) => return Run::Command,
            (Some("m"), Some(module)) => return Run::Module(module),
            _ => {}
        }
    }
    Run::StandardInput
}

/// A pattern that matches only this text.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        match c {
            '*' | '?' | '[' => pattern.extend(['[', c, ']']),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        globs(&arguments, &|path| (path == Path::new("there.py")).then(|| "/w".to_owned()))
    }

    #[test]
    fn what_runs_is_known_by_its_command_line() {
        for (line, expected) in [
            ("python /srv/app.py --port 80", &["/srv/app.py"][..]),
            ("/usr/bin/python3.11 -u -X perf -Wd /srv/app.py", &["/srv/app.py"]),
            ("python3 -uX perf a.py", &["a.py", "*/a.py"]),
            ("python3 ./there.py", &["./there.py", "/w/there.py", "/w/./there.py"]),
            ("python3 -m http.server 80", &["*/http/server.py", "*/http/server/__main__.py"]),
            ("python3 -Bmhttp", &["*/http.py", "*/http/__main__.py"]),
            ("python -c f() -m x", &["<string>"]),
            ("python3 -Ic f()", &["<string>"]),
            ("python3 -W error -", &["<stdin>"]),
            ("python3", &["<stdin>"]),
            ("python3 --check-hash-based-pycs always /a*[b].py", &["/a[*][[]b].py"]),
            ("nginx: worker", &[]),
            ("sh -c python /srv/app.py", &[]),
            ("python3 -m", &["<stdin>"]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
        assert!(of(&format!("python {}", "x".repeat(5000))).is_empty());
        assert!(globs(&[], &|_| None).is_empty());
    }
}
