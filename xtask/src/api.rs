//! `cargo xtask api`: the interface of the library, `speed-bump-user`, in a file.
//!
//! The file shows in a change what a program that uses the library would notice. Most of what the library
//! exports comes from the crates below it, so `surface` follows each re-export to the item itself.

mod rustdoc;
mod surface;

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use speed_bump_testing::places;

use rustdoc::Features;

/// The file, from the root of the working tree.
const FILE: &str = "speed-bump-user/api.txt";

/// What the file says of itself.
const HEAD: &str = "\
# The interface of speed-bump-user, as a program that uses it sees it. `cargo xtask api` writes this file, and
# CI compares it. Methods of implemented traits are left out, and so are automatic traits but Send and Sync.
# A type without a line of its own can be used here, and not be named.
";

#[derive(Args)]
pub(crate) struct Options {
    /// Fail unless the file is what the source says.
    #[arg(long)]
    check: bool,
}

/// Writes or compares the file.
pub(crate) fn run(options: &Options) -> Result<()> {
    let [with, without] = [Features::Default, Features::None].map(surface::lines);
    let found = text(&with?, &without?);
    let path = places::root().join(FILE);
    if !options.check {
        fs::write(&path, &found).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
        return Ok(());
    }
    let kept = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; `cargo xtask api` writes it", path.display()))?;
    match difference(&kept, &found) {
        None => {
            println!("the interface of speed-bump-user is that of {FILE}");
            Ok(())
        }
        Some(difference) => bail!(
            "the interface of speed-bump-user is not that of {FILE}:\n{difference}\
             If that is meant: run `cargo xtask api`, and commit the file."
        ),
    }
}

/// The file: what is there in any case, then what depends on the default features.
fn text(with: &[String], without: &[String]) -> String {
    let mut text = HEAD.to_owned();
    let (in_with, in_without): (BTreeSet<_>, BTreeSet<_>) = (with.iter().collect(), without.iter().collect());
    let mut section = |title: &str, lines: &[String], belongs: &dyn Fn(&String) -> bool| {
        let lines: Vec<_> = lines.iter().filter(|line| belongs(line)).collect();
        if !lines.is_empty() {
            text.push_str(&format!("\n# {title}\n\n"));
            lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        }
    };
    section("With any features", without, &|line| in_with.contains(line));
    section("With the default features", with, &|line| !in_without.contains(line));
    section("Without the default features", without, &|line| !in_with.contains(line));
    text
}

/// How the source differs from the file: `-` for lines of the file, `+` for lines of the source.
fn difference(kept: &str, found: &str) -> Option<String> {
    if kept == found {
        return None;
    }
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let (kept, found) = (lines(kept), lines(found));
    let (in_kept, in_found): (BTreeSet<_>, BTreeSet<_>) = (kept.iter().collect(), found.iter().collect());
    let removed = kept.iter().filter(|line| !in_found.contains(line)).map(|line| format!("-{line}\n"));
    let added = found.iter().filter(|line| !in_kept.contains(line)).map(|line| format!("+{line}\n"));
    let difference: String = removed.chain(added).collect();
    Some(if difference.is_empty() { "the same lines, in another order\n".to_owned() } else { difference })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_in_the_section_of_their_features() {
        let file = text(&lines("pub fn a()\npub fn b()\npub fn d()"), &lines("pub fn a()\npub fn c()"));
        let body = file.strip_prefix(HEAD).unwrap_or_default();
        assert_eq!(
            body,
            "\n# With any features\n\npub fn a()\n\n# With the default features\n\npub fn b()\npub fn d()\n\
             \n# Without the default features\n\npub fn c()\n"
        );
    }

    #[test]
    fn a_differing_file_is_told_by_its_lines() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let changed = difference("# h\npub fn a()\npub fn b(u32)\n", "# h\npub fn a()\npub fn b(u64)\n");
        assert_eq!(changed.as_deref(), Some("-pub fn b(u32)\n+pub fn b(u64)\n"));
        assert_eq!(difference("a\n", "").as_deref(), Some("-a\n"));
        assert!(difference("a\nb\n", "b\na\n").is_some_and(|said| said.contains("another order")));
        // A line that stands in two sections, and now in one.
        assert!(difference("a\na\n", "a\n").is_some());
    }
}
