//! Checks the convention of error types in the sources: `Display` writes everything, the cause included, and
//! `source()` returns nothing. Otherwise printing a chain of errors would repeat the cause.

use std::{fs, path::Path};

use speed_bump_testing::places;

/// Folders of the workspace whose errors are printed by our own programs, beside the crates of the project.
const FOLDERS: [&str; 2] = ["xtask", "tests/support"];

/// How many messages of error types there are, and those that break the convention, each with the way out.
pub(crate) fn look_through_the_workspace() -> (usize, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = (0, Vec::new());
    let folders = FOLDERS.iter().map(|folder| root.join(folder));
    for folder in places::crates().unwrap().into_iter().chain(folders) {
        look_through(&folder.join("src"), &mut found);
    }
    found
}

fn look_through(folder: &Path, found: &mut (usize, Vec<String>)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            look_through(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let (messages, offenders) = look_at(&text);
            found.0 += messages;
            found.1.extend(offenders.iter().map(|what| format!("{}: {what}", path.display())));
        }
    }
}

/// The same for the text of one file.
fn look_at(text: &str) -> (usize, Vec<String>) {
    // Without comments, in which brackets need not match.
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut offenders = Vec::new();
    if text.contains("fn source(&self) -> Option<&(dyn") {
        offenders.push("implements `source()` by hand; let `Display` say the cause".to_owned());
    }
    let messages: Vec<&str> = text.split("#[error(").skip(1).collect();
    for message in &messages {
        if message.starts_with("transparent)") {
            continue; // its words and its causes are the inner error's
        }
        // The variant: up to the next message, or to the end of the type.
        let variant = message.split("\n}").next().unwrap_or_default();
        let is_source = |line: &str| line.trim_start().trim_start_matches("pub ").starts_with("source:");
        let why = if variant.contains("#[from]") {
            "`#[from]` makes the field a source: implement `From` by hand"
        } else if variant.contains("#[source]") {
            "leave out `#[source]`"
        } else if variant.lines().any(is_source) {
            "a field named `source` is one: call it `error`, or write `r#source`"
        } else {
            continue;
        };
        let first = message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        offenders.push(format!("`{}`: the message should say the cause, and alone: {why}", first.trim()));
    }
    (messages.len(), offenders)
}

#[test]
fn the_search_finds_what_it_is_for() {
    let offends = |text: &str| look_at(text).1.len();
    for bad in [
        "enum E {\n    #[error(\"a: {0}\")]\n    A(#[from] io::Error),\n}",
        "enum E {\n    #[error(\"a\")]\n    A(#[source] io::Error),\n}",
        "enum E {\n    #[error(\"a: {source}\")]\n    A {\n        source: io::Error,\n    },\n}",
        "#[error(\"a: {source}\")]\npub struct S {\n    pub source: io::Error,\n}",
        "impl Error for E {\n    fn source(&self) -> Option<&(dyn Error + 'static)> {",
    ] {
        assert_eq!(offends(bad), 1, "{bad}");
    }
    for good in [
        "enum E {\n    #[error(transparent)]\n    A(#[from] io::Error),\n}",
        "enum E {\n    #[error(\"a: {0}\")]\n    A(io::Error),\n}",
        "enum E {\n    #[error(\"a: {source}\")]\n    A {\n        r#source: io::Error,\n    },\n}",
        "enum E {\n    #[error(\"a\")]\n    A,\n}\nstruct Other {\n    source: Source,\n}",
    ] {
        assert_eq!(offends(good), 0, "{good}");
    }
}
