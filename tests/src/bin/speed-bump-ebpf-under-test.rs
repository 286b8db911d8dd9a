//! The command `speed-bump-ebpf`, built by cargo whenever it builds a test that runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    speed_bump_user::cli::main()
}
