//! `cargo xtask book`: the documents as a book, with a search, in target/book.
//!
//! Fails if the book leaves out a document, or lists a missing one.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use speed_bump_testing::places;

use crate::{shell, tools::Tool};

const BOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    says: "mdbook v0.5.4",
    // It need not watch or serve.
    features: &["--no-default-features", "--features", "search"],
};

/// Builds the book.
pub(crate) fn run() -> Result<()> {
    let docs = places::root().join("docs");
    let left_out = left_out(&docs)?;
    if !left_out.is_empty() {
        bail!("docs/SUMMARY.md does not have {}", left_out.join(", "));
    }
    shell::run(Command::new(BOOK.ensure()?).arg("build").arg(&docs))?;
    println!("{}", places::target().join("book/index.html").display());
    Ok(())
}

/// Documents that are missing in the book.
fn left_out(docs: &Path) -> Result<Vec<String>> {
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).context("cannot read docs/SUMMARY.md")?;
    let mut there = BTreeSet::new();
    for folder in ["", "internals/"] {
        for entry in fs::read_dir(docs.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                there.insert(format!("{folder}{name}"));
            }
        }
    }
    Ok(there.into_iter().filter(|name| !summary.contains(&format!("]({name})"))).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_book_has_every_document() {
        assert_eq!(left_out(&places::root().join("docs")).unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn what_it_has_is_there() {
        let docs = places::root().join("docs");
        let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
        let names = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (name, _) in names {
            assert!(docs.join(name).is_file(), "{name}");
        }
    }
}
