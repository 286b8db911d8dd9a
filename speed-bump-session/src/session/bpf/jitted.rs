//! Python functions that a library compiles, so that their calls do not execute the interpreter's code.

use std::io::{BufRead as _, BufReader, Read as _};

use super::{
    context::Context,
    phase::{Covered, Processes},
};
use crate::{
    process::Process,
    stats::report::{FunctionReport, SessionReport},
    targets::TargetKind,
};

/// The most functions that we check, and the most bytes that we read of a source file.
const LOOKED_AT: usize = 64;
const SOURCE_LIMIT: u64 = 1 << 20;
/// The most lines of decorators that we read before a function.
const DECORATORS: usize = 32;
/// Decorators of numba, JAX and PyTorch that compile a function.
const COMPILERS: [&str; 9] =
    ["jit", "njit", "pjit", "pmap", "vectorize", "guvectorize", "cfunc", "stencil", "script"];

/// Warns of functions that have a compiling decorator and no counted call.
pub(super) fn tell_jitted(report: &SessionReport, processes: &Processes, context: &mut Context) {
    let Some((_, Covered { process, .. })) = processes.iter().next() else { return };
    let found: Vec<String> = uncalled(report)
        .take(LOOKED_AT)
        .filter_map(|function| {
            let decorator = decorator_of(process, function)?;
            Some(format!(
                "no call of {} ({}:{}) was counted: `{decorator}` compiles it, and compiled code runs no \
                 Python function, so that calls of it are not seen",
                function.name,
                function.file.display(),
                function.line?
            ))
        })
        .collect();
    found.into_iter().for_each(|text| context.warn(text));
}

fn uncalled(report: &SessionReport) -> impl Iterator<Item = &FunctionReport> {
    let python = report.targets.iter().filter(|target| target.kind == TargetKind::Python);
    python.flat_map(|target| &target.functions).filter(|function| function.calls == 0)
}

/// The decorator that compiles a function, according to the function's source file.
fn decorator_of(process: &Process, function: &FunctionReport) -> Option<String> {
    // For a decorated function, this is the line of its first decorator.
    let first = usize::try_from(function.line?.checked_sub(1)?).ok()?;
    let file = process.open_file(&function.file).ok()?;
    let lines = BufReader::new(file.take(SOURCE_LIMIT)).lines().map_while(Result::ok);
    let lines: Vec<String> = lines.skip(first).take(DECORATORS).collect();
    compiling_decorator(&lines).map(str::to_owned)
}

/// The first compiling decorator of a function, without its arguments.
fn compiling_decorator(lines: &[String]) -> Option<&str> {
    let is_function = |line: &&String| {
        let line = line.trim_start();
        line.starts_with("def ") || line.starts_with("async def ") || line.starts_with("class ")
    };
    let decorators = lines.iter().take_while(|line| !is_function(line)).filter_map(|line| {
        let line = line.trim();
        line.strip_prefix('@').map(|_| line.split(['(', ' ', '#']).next().unwrap_or(line))
    });
    decorators.into_iter().find(|decorator| {
        let last = decorator.rsplit(['.', '@']).next().unwrap_or_default();
        COMPILERS.contains(&last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decorators_that_compile_are_told_from_others() {
        for (source, found) in [
            ("@njit\ndef f(): pass", Some("@njit")),
            ("@numba.njit(cache=True)\ndef f(): pass", Some("@numba.njit")),
            ("  @cached\n  @jax.jit  # fast\n  def f(): pass", Some("@jax.jit")),
            ("@torch.jit.script\ndef f(): pass", Some("@torch.jit.script")),
            ("@cached\ndef f(): pass\n@njit\ndef g(): pass", None),
            ("def f(): pass", None),
            ("@jitter\ndef f(): pass", None),
            ("", None),
        ] {
            let lines: Vec<String> = source.lines().map(str::to_owned).collect();
            assert_eq!(compiling_decorator(&lines), found, "{source}");
        }
    }
}
