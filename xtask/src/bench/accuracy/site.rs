//! Reads from the tool's `list` where it would put its probes, and the smallest delay there.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use crate::bench::{nanos, timed};

/// The probe site of a function.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::bench) struct Site {
    /// The kind of instruction, in the tool's words.
    pub(in crate::bench) kind: String,
    /// Where it is, as `FILE+0xOFFSET`; empty if that is not known beforehand.
    pub(in crate::bench) place: String,
    /// The smallest delay there, in ns.
    pub(in crate::bench) floor_ns: f64,
}

/// The sites of functions of a process, in the order of the targets. Each target selects one function.
pub(in crate::bench) fn list(
    tool: &Path,
    pid: i32,
    targets: &str,
    flags: &[&str],
    count: usize,
) -> Result<Vec<Site>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = folder.path().join("targets.txt");
    fs::write(&file, targets).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = Command::new(tool);
    command.args(["list", "--strict", "--pid", &pid.to_string()]);
    command.args(flags).arg("--targets").arg(file);
    let (listing, _) = timed(&mut command)?;
    parse(&listing, count).with_context(|| format!("cannot read the tool's listing:\n{listing}"))
}

/// A site is a line `site FILE+OFFSET: INSTRUCTION (KIND), floor TIME`. Sites before the first target belong
/// to the interpreter, and stand for all Python functions. The helper's stub comes into the process only
/// later, so there the text says which site to expect.
fn parse(listing: &str, targets: usize) -> Option<Vec<Site>> {
    let mut sections = listing.split("\nline ");
    let interpreter = sections.next().and_then(|text| last_site(text).or_else(|| stub(text)));
    let sites: Vec<_> = sections.map_while(|text| last_site(text).or(interpreter.clone())).collect();
    (sites.len() == targets).then_some(sites)
}

fn stub(text: &str) -> Option<Site> {
    let of_helper = text.split_once("Python calls through the helper")?.1;
    let floor = match of_helper.split_once(", which is the smallest delay") {
        Some((before, _)) => before.rsplit_once("costs about ")?.1,
        None => of_helper.split_once("the smallest delay is about ")?.1.split_ascii_whitespace().next()?,
    };
    Some(Site { kind: "helper".to_owned(), place: String::new(), floor_ns: nanos(floor)? as f64 })
}

fn last_site(text: &str) -> Option<Site> {
    let (before, floor) = text
        .lines()
        .filter(|line| line.trim_start().starts_with("site "))
        .filter_map(|line| line.rsplit_once("), floor "))
        .next_back()?;
    let (before, kind) = before.rsplit_once(" (")?;
    let (place, _) = before.trim_start().strip_prefix("site ")?.rsplit_once(": ")?;
    let floor = floor.split(',').next()?;
    Some(Site { kind: kind.to_owned(), place: place.to_owned(), floor_ns: nanos(floor)? as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_read_for_each_line() {
        let listing = "process 7 (service): 2 functions at 2 probe sites\n\
            \nline 1: native:*/service:hot\n  read as native\n  hot (/a/service), entry symbol\n    \
            site /a/service+0x2595: nop dword [rax] (long nop), floor 580ns\n      remark\n\
            \nline 2: usdt:*/service:p:n\n    site /a/service+0x9: nop (single step), floor 10.5us, \
            semaphore at 0x1\n";
        let site =
            |kind: &str, place: &str, floor_ns| Site { kind: kind.into(), place: place.into(), floor_ns };
        assert_eq!(
            parse(listing, 2),
            Some(vec![
                site("long nop", "/a/service+0x2595", 580.0),
                site("single step", "/a/service+0x9", 10_500.0)
            ])
        );
        assert_eq!(parse(listing, 3), None);
        let python = "process 8 (python3): 2 functions\n    site /p+0x1: push rbp (push), floor 616ns\n\
            \nline 1: py:*:f\n  f, entry perf-map\n\nline 2: py:*:g\n";
        assert_eq!(parse(python, 2), Some(vec![site("push", "/p+0x1", 616.0); 2]));
        let helper = "process 9 (python3): engine bpf\n  Python calls through the helper, if it can be \
                      loaded: a call \
            of a matching function costs about 908ns, the smallest delay is about 981ns (measured here)\n\
            \nline 1: py:*:f\n  f, entry helper\n";
        assert_eq!(parse(helper, 1), Some(vec![site("helper", "", 981.0)]));
        let helper = "process 9 (python3): engine helper\n  Python calls through the helper, if it can be \
            loaded, which delays by itself: a call of a matching function costs about 40ns, which is the \
            smallest delay, and up to 400ns after a sleep\n\nline 1: py:*:f\n  f, entry helper\n";
        assert_eq!(parse(helper, 1), Some(vec![site("helper", "", 40.0)]));
    }
}
