//! The command `speed-bump-ebpf`.

fn main() {}
