//! The table of kernels in docs/kernels.md, made from the results of guests.

use std::fs;

use anyhow::{Context as _, Result};
use speed_bump_testing::places;

use crate::test::tally::Tally;

/// The lines before and after it.
const BEGIN: &str = "<!-- kernels: written by `cargo xtask test --vm all --write-table` -->\n";
const END: &str = "<!-- end of kernels -->\n";

/// Checks of `doctor` about the guest's settings, and not its kernel.
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
    /// The results on a kernel: the tests of each engine, all tests, and the output of `doctor` there.
    pub(super) fn new(release: &str, by_engine: Vec<Tally>, tally: &Tally, doctor: &str) -> Self {
        Self {
            release: release.to_owned(),
            counts: by_engine.iter().map(Tally::counts).collect(),
            lacks: lacks(doctor),
            skips: tally.skip_reasons().map(str::to_owned).collect(),
        }
    }

    fn line(&self) -> String {
        let cells: Vec<_> = self.counts.iter().map(cell).collect();
        let skips = self.skips.iter().map(|reason| format!("skipped because {reason}"));
        let notes = self.lacks.iter().cloned().chain(skips).map(|note| note.replace('|', "\\|"));
        let notes: Vec<_> = notes.collect();
        format!("| {} | {} | {} |", self.release, cells.join(" | "), notes.join("; "))
    }
}

/// Replaces the table in the document; the rows of other kernels stay.
pub(super) fn write(rows: &[Row]) -> Result<()> {
    let path = places::root().join("docs/kernels.md");
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = replaced(&old, &table(&kept(&old, rows))).with_context(|| {
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

/// The lines of the table, with these rows for their kernels and the old rows for others.
fn kept(text: &str, rows: &[Row]) -> Vec<String> {
    let table = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    // A heading, and the line below it.
    let before =
        table.into_iter().flat_map(|(table, _)| table.lines().filter(|line| line.starts_with('|')).skip(2));
    let mut lines: Vec<String> = before.map(str::to_owned).collect();
    for row in rows {
        match lines.iter_mut().find(|line| series(line.trim_start_matches("| ")) == series(&row.release)) {
            Some(line) => *line = row.line(),
            None => lines.push(row.line()),
        }
    }
    lines
}

/// `6.1` of `6.1.0-50-cloud-amd64`.
fn series(release: &str) -> &str {
    let end = release.match_indices('.').nth(1).map_or(release.len(), |(at, _)| at);
    release.get(..end).unwrap_or(release)
}

fn table(lines: &[String]) -> String {
    let heading = "| Linux | `bpf` | `signal` | `kmod` | what is different there |\n|---|---|---|---|---|";
    format!("\n{heading}\n{}\n\n", lines.join("\n"))
}

/// The results of the tests of an engine.
fn cell([passed, failed, skipped]: &[usize; 3]) -> String {
    if passed + failed + skipped == 0 {
        return "not run".to_owned();
    }
    let rest = [(*failed, "failed"), (*skipped, "skipped")];
    let rest = rest.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    format!("{passed} passed{}", rest.collect::<String>())
}

/// The warnings and failures of `doctor`.
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
        let row = Row::new("6.1.0-50", vec![Tally::default(), of_signal], &tally, DOCTOR);
        let table = table(&kept("", &[row]));
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
    fn rows_of_other_kernels_stay() {
        let row = |release: &str| Row::new(release, Vec::new(), &Tally::default(), "");
        let written = |text: &str, rows: &[Row]| replaced(text, &table(&kept(text, rows))).unwrap();
        let empty = format!("{BEGIN}{END}");
        let both = written(&empty, &[row("6.1.0-50"), row("6.12.9")]);
        let newer = written(&both, &[row("6.1.0-51")]);
        assert_eq!(newer, both.replace("6.1.0-50", "6.1.0-51"));
    }

    #[test]
    fn there_is_a_place_for_the_table() {
        let readme = fs::read_to_string(places::root().join("docs/kernels.md")).unwrap();
        assert!(replaced(&readme, "").is_some());
    }
}
