//! The folders of the virtual machines: all below target/vm; all of it can be made again.

use std::path::PathBuf;

use speed_bump_testing::places;

use super::kernel::Series;

/// The folder that is kept between runs.
pub(super) fn all() -> PathBuf {
    places::target().join("vm")
}

/// A series' kernel, and the apt folder that it came through.
pub(super) fn kernel(series: &Series) -> PathBuf {
    all().join("kernels").join(series.name)
}

/// The root in which kmod/ is built for a series' kernel.
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

/// The files of one guest's run: its console, its results.
pub(super) fn run(name: &str) -> PathBuf {
    all().join("runs").join(name)
}

/// Files that guests have compiled.
pub(super) fn compiled() -> PathBuf {
    all().join("compiled")
}
