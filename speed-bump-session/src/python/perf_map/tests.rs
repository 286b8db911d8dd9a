//! Tests a follower with files of our own making, and with real processes.

#![allow(clippy::unwrap_used)]

use std::{fs, io::Write as _, os::unix::fs::symlink, path::Path};

use super::*;
use crate::python::pythons;

fn room() -> Budget {
    Budget::new(FOLLOWED_BY_ALL)
}

/// A root file system with a perf map for process 7.
struct Fixture {
    root: tempfile::TempDir,
    follower: PerfMapFollower,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tmp")).unwrap();
        let user = rustix::process::geteuid().as_raw();
        let follower = PerfMapFollower::new(ProcessRoot::at(root.path()).unwrap(), 7, &[user], &room());
        Self { root, follower }
    }

    fn map(&self) -> PathBuf {
        self.root.path().join("tmp/perf-7.map")
    }

    fn append(&self, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.map()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Polls, with 0x1000 to 0x2000 as executable memory. Returns the new names.
    fn poll(&mut self) -> Vec<String> {
        let mapped = || Ok(vec![VirtualAddress(0x1000)..VirtualAddress(0x2000)]);
        self.follower.poll(mapped).unwrap().into_iter().map(|entry| entry.qualname).collect()
    }

    fn error(&mut self) -> PerfMapError {
        self.follower.poll(|| Ok(Vec::new())).unwrap_err()
    }
}

#[test]
fn entries_come_once_as_the_file_grows() {
    let mut fixture = Fixture::new();
    assert!(fixture.poll().is_empty() && !fixture.follower.is_open());
    fixture.append("1000 b py::a:/x.py\n1010 b py::b:/x");
    assert_eq!(fixture.poll(), ["a"]);
    assert!(fixture.follower.is_open());
    assert!(fixture.poll().is_empty());
    fixture.append(".py\n1020 b py::c:/x.py\n");
    assert_eq!(fixture.poll(), ["b", "c"]);
}

#[test]
fn what_was_read_is_not_read_again_as_the_file_grows() {
    let mut fixture = Fixture::new();
    fixture.append("1000 b py::a:/x.py\n");
    assert_eq!(fixture.poll(), ["a"]);
    fixture.append("1010 b py::");
    let never = || -> io::Result<Vec<_>> { unreachable!("no line has ended") };
    assert!(fixture.follower.poll(never).unwrap().is_empty());
}

#[test]
fn one_poll_reads_no_more_than_its_limit() {
    let mut fixture = Fixture::new();
    fixture.append("");
    fs::OpenOptions::new().write(true).open(fixture.map()).unwrap().set_len(POLL_LIMIT).unwrap();
    fixture.append("\n1000 b py::a:/x.py\n");
    assert!(fixture.poll().is_empty());
    assert_eq!(fixture.poll(), ["a"]);
}

#[test]
fn the_last_line_of_an_address_wins() {
    let mut fixture = Fixture::new();
    fixture.append("1000 b py::old:/x.py\n1010 b py::b:/x.py\n1000 b py::new:/x.py\n");
    assert_eq!(fixture.poll(), ["b", "new"]);
    fixture.append("1000 b py::new:/x.py\n1010 b py::newer:/x.py\n");
    assert_eq!(fixture.poll(), ["newer"]);
}

#[test]
fn entries_outside_executable_memory_are_dropped() {
    let mut fixture = Fixture::new();
    fixture.append("fff b py::a:/x\n1000 1000 py::all:/x\n1ff8 b py::over:/x\n2000 b py::z:/x\n");
    fixture.append("ffffffffffffffff b py::wraps:/x\n");
    assert_eq!(fixture.poll(), ["all"]);
}

#[test]
fn a_file_that_was_cut_or_replaced_is_read_anew() {
    let mut fixture = Fixture::new();
    fixture.append("1000 b py::a:/x.py\n1010 b py::b:/x.py\n");
    assert_eq!(fixture.poll(), ["a", "b"]);
    fs::write(fixture.map(), "1000 b py::c:/x.py\n").unwrap();
    assert_eq!(fixture.poll(), ["c"]);
    fs::write(fixture.map(), "1000 b py::d:/x.py\n1010 b py::e:/x.py\n1020 b py::f:/x.py\n").unwrap();
    assert_eq!(fixture.poll(), ["d", "e", "f"], "cut, and longer than before");
    fs::remove_file(fixture.map()).unwrap();
    assert!(fixture.poll().is_empty() && !fixture.follower.is_open());
    fixture.append("1030 b py::g:/x.py\n");
    assert_eq!(fixture.poll(), ["g"]);
    let other = fixture.root.path().join("tmp/other");
    fs::write(&other, "1040 b py::h:/x.py\n").unwrap();
    fs::rename(&other, fixture.map()).unwrap();
    assert_eq!(fixture.poll(), ["h"]);
}

#[test]
fn mappings_are_asked_for_after_the_read_and_only_for_news() {
    let mut fixture = Fixture::new();
    let never = || -> io::Result<Vec<_>> { unreachable!("nothing to check") };
    assert!(fixture.follower.poll(never).unwrap().is_empty());
    fixture.append("1000 b py::a:/x.py\n");
    let failed = fixture.follower.poll(|| Err(io::ErrorKind::PermissionDenied.into()));
    assert!(matches!(failed, Err(PerfMapError::Mappings { .. })));
    assert_eq!(fixture.poll(), ["a"], "the entry is not lost");
    assert!(fixture.follower.poll(never).unwrap().is_empty());
}

#[test]
fn only_a_regular_file_of_the_right_owner_is_read() {
    let mut fixture = Fixture::new();
    fs::write(fixture.root.path().join("tmp/elsewhere"), "1000 b py::a:/x.py\n").unwrap();
    symlink("elsewhere", fixture.map()).unwrap();
    assert!(matches!(fixture.error(), PerfMapError::Unreadable { .. }));
    fs::remove_file(fixture.map()).unwrap();
    fs::create_dir(fixture.map()).unwrap();
    assert!(fixture.error().to_string().contains("not a regular file"));
    fs::remove_dir(fixture.map()).unwrap();
    speed_bump_testing::case_ran!();
    if !rustix::process::geteuid().is_root() {
        speed_bump_testing::skip_case!("a file of a foreign owner", "only root can make one");
        return;
    }
    fixture.append("1000 b py::a:/x.py\n");
    std::os::unix::fs::chown(fixture.map(), Some(54_321), None).unwrap();
    let error = fixture.error();
    assert!(matches!(error, PerfMapError::ForeignOwner { owner: 54_321, .. }), "{error}");
    let root = ProcessRoot::at(fixture.root.path()).unwrap();
    fixture.follower = PerfMapFollower::new(root, 7, &[54_321], &room());
    assert_eq!(fixture.poll(), ["a"]);
}

/// `count` lines, whose addresses begin at `start`.
fn many(start: u64, count: u64) -> String {
    (0..count).map(|number| format!("{:x} 1 py::f{number}:/x.py\n", start + number)).collect()
}

fn everywhere() -> io::Result<Vec<Range<VirtualAddress>>> {
    Ok(vec![VirtualAddress(0x1000)..VirtualAddress(1 << 40)])
}

/// Polls until it has read everything. Returns the numbers of entries and polls.
fn read_through(follower: &mut PerfMapFollower) -> (usize, usize) {
    let (mut found, mut polls) = (0, 0);
    loop {
        let news = follower.poll(everywhere).unwrap().len();
        assert!(news <= 2 * POLL_ENTRIES);
        (found, polls) = (found + news, polls + 1);
        if !follower.is_behind() {
            return (found, polls);
        }
    }
}

#[test]
fn a_long_file_is_read_in_pieces() {
    let mut fixture = Fixture::new();
    fixture.append(&many(0x1000, 100_000));
    let (found, polls) = read_through(&mut fixture.follower);
    assert!(found == 100_000 && polls > 5 && !fixture.follower.has_left_out(), "{found} in {polls}");

    let mut fixture = Fixture::new();
    fixture.append(&many(0x1000, 20_000));
    assert_eq!(fixture.follower.list(everywhere).unwrap().len(), 20_000);
}

#[test]
fn what_is_remembered_is_bounded_for_one_process_and_for_all() {
    let mut fixture = Fixture::new();
    fixture.append(&many(0x1000, FOLLOWED as u64 + 10));
    assert_eq!(read_through(&mut fixture.follower).0, FOLLOWED);
    assert!(fixture.follower.has_left_out());
    // A follower reports a remembered address again if its name has changed.
    fixture.append("1000 1 py::other:/x.py\nf0000000 1 py::more:/x.py\n");
    let news = fixture.follower.poll(everywhere).unwrap();
    assert_eq!(news.iter().map(|entry| entry.qualname.as_str()).collect::<Vec<_>>(), ["other"]);

    let mut fixture = Fixture::new();
    let (few, user) = (Budget::new(3), rustix::process::geteuid().as_raw());
    fixture.follower = PerfMapFollower::new(ProcessRoot::at(fixture.root.path()).unwrap(), 7, &[user], &few);
    fixture.append(&many(0x1000, 10));
    assert_eq!(fixture.follower.list(everywhere).unwrap().len(), 3);
}

#[test]
fn long_names_are_left_out() {
    let mut fixture = Fixture::new();
    let (long, longest) = ("x".repeat(NAME_BYTES + 1), "y".repeat(NAME_BYTES));
    fixture.append(&format!("1000 b py::{long}:/x.py\n1010 b py::f:/{long}\n1020 b py::{longest}:/x.py\n"));
    assert_eq!(fixture.poll(), [longest]);
    assert!(fixture.follower.has_left_out());
}

/// Anonymous executable memory of a process, by its /proc/PID/maps.
fn anonymous_executable(pid: crate::units::Pid) -> io::Result<Vec<Range<VirtualAddress>>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let ranges = maps.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [range, "r-xp" | "rwxp", _, "00:00", "0"] = fields[..] else { return None };
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok().map(VirtualAddress);
        Some(number(start)?..number(end)?)
    });
    Ok(ranges.collect())
}

/// Calls functions on request, and answers when a call is done.
const SERVICE: &str = r#"
import sys
class K:
    def m(self): return (lambda: 1)()
def outer():
    def inner(): return next(i for i in range(3))
    return inner()
def late(): return 1
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"#;

fn follow(pid: crate::units::Pid) -> PerfMapFollower {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let namespaced = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    let namespaced = namespaced.split_whitespace().next_back().unwrap().parse().unwrap();
    let stale = format!("/tmp/perf-{namespaced}.map");
    assert!(!Path::new(&stale).is_symlink());
    PerfMapFollower::new(ProcessRoot::of_process(pid).unwrap(), namespaced, &[], &room())
}

#[test]
fn real_interpreters_are_followed_from_before_the_first_line_to_reactivation() {
    for python in pythons::with_trampolines() {
        let mut running = python.start(&[], SERVICE);
        let pid = running.pid();
        let mut follower = follow(pid);
        let _cleanup = RemoveFile(follower.path.clone());
        let mut poll = || {
            let news = follower.poll(|| anonymous_executable(pid)).unwrap();
            news.into_iter()
                .filter(|entry| entry.filename == "<string>")
                .map(|entry| entry.qualname)
                .collect::<Vec<_>>()
        };
        assert!(poll().is_empty(), "{python}");

        assert_eq!(running.ask("sys.activate_stack_trampoline('perf')"), "done");
        running.ask("K().m(); outer()");
        let first = poll();
        for name in ["K.m", "K.m.<locals>.<lambda>", "outer", "outer.<locals>.inner"] {
            assert!(first.iter().any(|seen| seen == name), "{python}: {name} in {first:?}");
        }
        assert!(first.iter().any(|seen| seen == "outer.<locals>.inner.<locals>.<genexpr>"), "{python}");
        assert!(!first.iter().any(|seen| seen == "late"), "{python}");
        running.ask("late()");
        assert!(poll().iter().any(|seen| seen == "late"), "{python}");

        running.ask("sys.deactivate_stack_trampoline()");
        running.ask("late()");
        assert!(!poll().iter().any(|seen| seen == "late"), "{python}");
        running.ask("sys.activate_stack_trampoline('perf')");
        running.ask("exec('def fresh(): return 1\\nfresh()', globals())");
        assert!(poll().iter().any(|seen| seen == "fresh"), "{python}");
    }
}

#[test]
fn lines_of_a_dead_process_are_not_believed() {
    for python in pythons::with_trampolines() {
        let mut running = python.start(&[], SERVICE);
        let pid = running.pid();
        let mut follower = follow(pid);
        let map = follower.path.clone();
        let _cleanup = RemoveFile(map.clone());
        fs::write(&map, "7f0000001000 b py::ghost:/x.py\n10 b py::ghost:/y.py\n").unwrap();
        running.ask("sys.activate_stack_trampoline('perf')");
        running.ask("outer()");
        let news = follower.poll(|| anonymous_executable(pid)).unwrap();
        assert!(news.iter().any(|entry| entry.qualname == "outer"), "{python}");
        assert!(!news.iter().any(|entry| entry.qualname == "ghost"), "{python}");
    }
}

/// Removes a file at the end of a test, because CPython leaves its map behind.
struct RemoveFile(PathBuf);

impl Drop for RemoveFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
