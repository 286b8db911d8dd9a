//! Links between our documents lead somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use speed_bump_testing::{places, skip};

/// The links of a document within this repository: line, path and anchor.
fn links(text: &str) -> Vec<(usize, &str, Option<&str>)> {
    let mut found = Vec::new();
    let mut in_sample = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_sample = !in_sample;
        }
        if in_sample || line.starts_with("    ") {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = line.get(at + 2..).unwrap_or_default();
            let Some(target) = rest.split_once(')').map(|(target, _)| target) else { continue };
            if target.contains("://") || target.contains(' ') {
                continue;
            }
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, of)| (path, Some(of)));
            found.push((number + 1, path, anchor));
        }
    }
    found
}

/// The anchors of a document's headings, as GitHub names them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let anchor = |title: String| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(anchor).collect()
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# One `two`: 3, four\n\nSee [a](b.md#c) and\n[d](#one-two-3-four), [e](https://x/y).\n";
    assert_eq!(links(text), [(3, "b.md", Some("c")), (4, "", Some("one-two-3-four"))]);
    assert!(anchors(text).contains("one-two-3-four"));
    assert_eq!(links("```\n[a](b)\n```\n    [a](b)\n"), []);
}

#[test]
fn every_link_leads_somewhere() {
    let root = places::root();
    let mut git = Command::new("git");
    let listed = git.args(["ls-files", "*.md"]).current_dir(&root).output();
    let files = match &listed {
        Ok(listed) if listed.status.success() => String::from_utf8_lossy(&listed.stdout),
        _ => return skip!("the working tree is none of git's"),
    };
    let mut broken = Vec::new();
    for file in files.lines() {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        let folder = Path::new(file).parent().map(Path::to_owned).unwrap_or_default();
        for (line, path, anchor) in links(&text) {
            let target: PathBuf =
                if path.is_empty() { root.join(file) } else { root.join(&folder).join(path) };
            let there = match (target.exists(), anchor) {
                (true, Some(anchor)) if target.extension().is_some_and(|of| of == "md") => {
                    fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor))
                }
                (there, _) => there,
            };
            if !there {
                let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
                broken.push(format!("{file}:{line}: {path}{anchor}"));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}
