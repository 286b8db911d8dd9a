//! The commands of a run of all tests.

/// All but the BPF object, which is built for no machine that runs tests.
const WORKSPACE: [&str; 3] = ["--workspace", "--exclude", "speed-bump-ebpf"];

/// All programs: end-to-end tests, which run the tool, and the unit tests of binaries.
const PROGRAMS: [&str; 4] = ["--bins", "--examples", "--test", "*"];

/// The unit tests of libraries. Of the large ones they are built without optimisation: that takes a third of
/// the time, and they run as long. The library of the end-to-end tests has none, and is left out, as it would
/// have to be built again with that.
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

/// What `cargo test` is run with, one after the other: the workspace's tests, or what was asked for. The last
/// one takes longest to build.
pub(super) fn parts(asked_for: &[String]) -> Vec<Vec<String>> {
    if !asked_for.is_empty() {
        return vec![asked_for.to_vec()];
    }
    let parts: [&[&str]; 3] = [&LIBRARIES, &DOCUMENTATION, &PROGRAMS];
    let whole = |part: &&[&str]| WORKSPACE.iter().chain(*part).map(|&word| word.to_owned()).collect();
    parts.iter().map(whole).collect()
}
