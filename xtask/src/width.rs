//! Checks that no line is wider than rustfmt's limit: rustfmt leaves comments and strings alone, and does not
//! know Markdown.

use std::{fs, process::Command};

use speed_bump_testing::{places, skip};

/// The lines of a file that are too wide: their numbers and widths. In Markdown, tables and code blocks are
/// exempt.
fn too_wide(text: &str, is_markdown: bool, most: usize) -> Vec<(usize, usize)> {
    let mut in_sample = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if is_markdown && trimmed.starts_with("```") {
            in_sample = !in_sample;
        }
        let width = line.chars().count();
        if width > most && !in_sample && !(is_markdown && trimmed.starts_with('|')) && trimmed.contains(' ') {
            found.push((number + 1, width));
        }
    }
    found
}

#[test]
fn wide_lines_are_found() {
    assert_eq!(too_wide("12345\n1 345\n1 3456\n| 3456\n123456", false, 5), [(3, 6), (4, 6)]);
    assert_eq!(too_wide("1 3456\n| 3456\n```\n1 3456\n```\n1 3456", true, 5), [(1, 6), (6, 6)]);
    assert_eq!(too_wide("1 ä ö", false, 5), []);
}

#[test]
fn no_line_is_wider_than_rustfmt_has_it() {
    let root = places::root();
    let rustfmt = fs::read_to_string(root.join("rustfmt.toml")).unwrap_or_default();
    let most = rustfmt.lines().find_map(|line| line.strip_prefix("max_width = ")?.parse().ok());
    let most = most.unwrap_or(100);
    let mut git = Command::new("git");
    let listed = git.args(["ls-files", "*.rs", "*.md"]).current_dir(&root).output();
    let files = match &listed {
        Ok(listed) if listed.status.success() => String::from_utf8_lossy(&listed.stdout),
        _ => return skip!("the working tree is none of git's"),
    };
    let mut wide = Vec::new();
    for file in files.lines() {
        // The file was removed, and this is not committed yet.
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        let lines = too_wide(&text, file.ends_with(".md"), most);
        wide.extend(lines.into_iter().map(|(line, width)| format!("{file}:{line}: {width} columns")));
    }
    assert!(wide.is_empty(), "lines are at most {most} columns wide:\n{}", wide.join("\n"));
}
