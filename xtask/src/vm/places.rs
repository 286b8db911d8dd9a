//! Where what the virtual machines need lies: all of it below target/vm, and none of it is precious.

use std::path::PathBuf;

use speed_bump_testing::places;

use super::kernel::Series;

/// All that is kept between runs.
pub(super) fn all() -> PathBuf {
    places::target().join("vm")
}

/// A series' kernel, and the apt folder that it came through.
pub(super) fn kernel(series: &Series) -> PathBuf {
    all().join("kernels").join(series.name)
}

/// What kmod/ is built in for a series' kernel.
pub(super) fn module(series: &Series) -> PathBuf {
    kernel(series).join("module")
}

/// QEMU with its libraries.
pub(super) fn qemu() -> PathBuf {
    all().join("qemu")
}

/// The guest's root file system.
pub(super) fn root() -> PathBuf {
    all().join("root")
}

/// What a run leaves of one guest: its console, its results.
pub(super) fn run(name: &str) -> PathBuf {
    all().join("runs").join(name)
}

/// What guests have compiled.
pub(super) fn compiled() -> PathBuf {
    all().join("compiled")
}
