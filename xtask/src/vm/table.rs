//! The README's table of kernels, made from the results of guests.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use speed_bump_testing::places;

use crate::test::tally::Tally;

/// What the README's section begins and ends with.
const BEGIN: &str = "<!-- kernels: written by `cargo xtask test --vm all --write-table` -->\n";
const END: &str = "<!-- end of kernels -->\n";

/// Checks of `doctor` that tell of the guest's settings, and not of its kernel.
const SETTINGS: [&str; 2] = ["open files", "locked memory"];

/// One kernel's results.
#[derive(Debug)]
pub(super) struct Row {
    release: String,
    /// Passed, failed and skipped, by engine.
    counts: Vec<[usize; 3]>,
    lacks: Vec<String>,
    skips: Vec<String>,
}

impl Row {
    /// What came of a kernel: how the tests of each engine went, and all of them, and what `doctor` printed
    /// there.
    pub(super) fn new(release: &str, by_engine: Vec<Tally>, tally: &Tally, doctor: &str) -> Self {
        Self {
            release: release.to_owned(),
            counts: by_engine.iter().map(Tally::counts).collect(),
            lacks: lacks(doctor),
            skips: tally.skip_reasons().map(str::to_owned).collect(),
        }
    }
}

/// Puts the table into the README, in place of the one that is there.
pub(super) fn write(rows: &[Row]) -> Result<()> {
    let path = places::root().join("README.md");
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = replaced(&old, &table(rows)).with_context(|| {
        format!("{} has no line `{}` with `{}` after it", path.display(), BEGIN.trim(), END.trim())
    })?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

/// The text with everything between the marks replaced; `None` without the marks.
fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "\n| Linux | `bpf` | `signal` | `kmod` | what is different there |\n|---|---|---|---|---|\n"
            .to_owned();
    for Row { release, counts, lacks, skips } in rows {
        let cells: Vec<_> = counts.iter().map(cell).collect();
        let skips = skips.iter().map(|reason| format!("skipped because {reason}"));
        let notes: Vec<_> = lacks.iter().cloned().chain(skips).map(|note| note.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {release} | {} | {} |", cells.join(" | "), notes.join("; "));
    }
    text + "\n"
}

/// How the tests of an engine went.
fn cell([passed, failed, skipped]: &[usize; 3]) -> String {
    if passed + failed + skipped == 0 {
        return "not run".to_owned();
    }
    let rest = [(*failed, "failed"), (*skipped, "skipped")];
    let rest = rest.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    format!("{passed} passed{}", rest.collect::<String>())
}

/// What `doctor` warns of and fails on.
fn lacks(doctor: &str) -> Vec<String> {
    let found = doctor.lines().filter_map(|line| {
        let check = line.strip_prefix("warn  ").or_else(|| line.strip_prefix("fail  "))?;
        let is_setting = SETTINGS.iter().any(|name| check.starts_with(name));
        (!is_setting).then(|| check.to_owned())
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test::skip_list::{Place, SkipList};

    const DOCTOR: &str = "pass  kernel: Linux 6.1 on x86_64\n\
                          warn  uprobe_multi: absent: one link per probe site\n      -> use Linux 6.12\n\
                          fail  bpf_loop: absent\n\
                          warn  open files: 1024 now\n";

    #[test]
    fn what_a_kernel_lacks_is_what_doctor_says() {
        assert_eq!(lacks(DOCTOR), ["uprobe_multi: absent: one link per probe site", "bpf_loop: absent"]);
    }

    #[test]
    fn rows_show_counts_lacks_and_skips() {
        let mut tally = Tally::default();
        let passed = "test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        tally.read_program("program", passed, 0);
        tally.read_skips("SKIPPED program::a: because no a|b\nSKIPPED program::b: because no a|b\n");
        let list = "[[skip]]\ntest = 'program::*'\nbecause = '*'\nplaces = ['6.1']\nwhy = 'a test'\n";
        tally.finish(true, &SkipList::parse(list).unwrap(), Place::Guest("6.1"));
        let mut of_signal = Tally::default();
        of_signal.read_program("program", "test result: ok. 3 passed; 1 failed; 0 ignored", 101);
        let table = table(&[Row::new("6.1.0-50", vec![Tally::default(), of_signal], &tally, DOCTOR)]);
        let row = "| 6.1.0-50 | not run | 3 passed, 1 failed | uprobe_multi: absent: one link per probe \
                   site; bpf_loop: absent; skipped because no a\\|b |\n\n";
        assert!(table.ends_with(row), "{table}");
    }

    #[test]
    fn the_table_takes_the_place_of_the_one_that_is_there() {
        let old = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(replaced(&old, "new\n").unwrap(), format!("before\n{BEGIN}new\n{END}after\n"));
        assert_eq!(replaced("no marks", "new"), None);
        assert_eq!(replaced(&format!("{END}{BEGIN}"), "new"), None);
    }

    #[test]
    fn the_readme_has_a_place_for_the_table() {
        let readme = fs::read_to_string(places::root().join("README.md")).unwrap();
        assert!(replaced(&readme, "").is_some());
    }
}
