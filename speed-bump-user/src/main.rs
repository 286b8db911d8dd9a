//! The command `speed-bump-ebpf`.

use std::process::ExitCode;

fn main() -> ExitCode {
    speed_bump_user::cli::main()
}
