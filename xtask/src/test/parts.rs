//! The commands of a run of all tests.

/// All but the BPF object, which is built for a target that runs no tests.
const WORKSPACE: [&str; 3] = ["--workspace", "--exclude", "speed-bump-ebpf"];

/// All programs: end-to-end tests, which run the tool, and the unit tests of binaries.
const PROGRAMS: [&str; 4] = ["--bins", "--examples", "--test", "*"];

/// The unit tests of libraries. Those of the large ones are built without optimisation: that takes a third of
/// the time, and the tests do not take longer. The library of the end-to-end tests has none, and is left out,
/// since it would be built twice.
const LIBRARIES: [&str; 7] = [
    "--lib",
    "--exclude",
    "speed-bump-tests",
    "--config",
    "profile.test.package.speed-bump-session.opt-level=0",
    "--config",
    "profile.test.package.speed-bump-linux.opt-level=0",
];

/// Examples in the documentation.
const DOCUMENTATION: [&str; 1] = ["--doc"];

/// The arguments for `cargo test`, one run after the other: the workspace's tests, or the requested ones. The
/// last run takes longest to build.
pub(super) fn parts(asked_for: &[String]) -> Vec<Vec<String>> {
    if !asked_for.is_empty() {
        return vec![asked_for.to_vec()];
    }
    let parts: [&[&str]; 3] = [&LIBRARIES, &DOCUMENTATION, &PROGRAMS];
    let whole = |part: &&[&str]| WORKSPACE.iter().chain(*part).map(|&word| word.to_owned()).collect();
    parts.iter().map(whole).collect()
}
