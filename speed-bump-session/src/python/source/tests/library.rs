//! Compares our index with CPython's own compiler, for CPython's standard library.

use super::*;

/// We compare one of this many files. The environment variable `SPEED_BUMP_TEST_STEP` gives another number.
const STEP: usize = 32;

/// Files of the library that the grammar or an old compiler gets wrong, as we know.
const KNOWN: &[(&str, &str)] = &[
    (
        "/test/test_compile.py",
        "tree-sitter ends a block at a continuation line that is indented less than the block",
    ),
    ("3.8/typing.py", "3.8 gives expressions in an implicitly joined f-string the line of another part"),
];

/// The qualified names for each (`co_name`, `co_firstlineno`).
type Names = BTreeMap<(String, u32), BTreeSet<String>>;

struct Comparison {
    files: usize,
    objects: usize,
    wrong: Vec<String>,
}

#[test]
fn the_standard_library_has_the_names_that_cpython_gives() {
    let step = std::env::var("SPEED_BUMP_TEST_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(STEP);
    let mut all_wrong = Vec::new();
    for python in pythons::from(3, 8) {
        let Comparison { files, objects, wrong } = compare(&python, step);
        println!("{python}: {objects} code objects of {files} files, {} differ", wrong.len());
        assert!(files > 5 && objects * step > 5_000, "{python}: too few files to mean anything");
        all_wrong.extend(wrong);
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
}

fn compare(python: &Python, step: usize) -> Comparison {
    let program = include_str!("../dump_code_objects.py");
    let output = python.command().args(["-I", "-c", program]).arg(step.to_string()).output().unwrap();
    assert!(output.status.success(), "{python}: {}", String::from_utf8_lossy(&output.stderr));

    let root = ProcessRoot::at(Path::new("/")).unwrap();
    let mut comparison = Comparison { files: 0, objects: 0, wrong: Vec::new() };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (path, dumped): (PathBuf, Vec<(String, u32, Option<String>)>) =
            serde_json::from_str(line).unwrap();
        let known = KNOWN.iter().find(|(file, _)| path.to_string_lossy().ends_with(file));
        if let Some((_, reason)) = known {
            println!("skipped {} because {reason}", path.display());
            continue;
        }
        let index = SourceIndex::read(&root, path.to_str().unwrap(), python.parsed()).unwrap();
        comparison.files += 1;
        comparison.objects += dumped.len();
        let mut expected = Names::new();
        for (name, line, qualname) in dumped {
            // Some code never becomes a function (in an `assert` of old releases). This code has a line, but
            // no qualified name.
            expected.entry((name, line)).or_default().extend(qualname);
        }
        for ((name, line), qualnames) in expected {
            let found = index.find(&name, i32::try_from(line).unwrap());
            // Before 3.10 a module starts at its first statement. We then find it by its name alone.
            let is_module = name == "<module>";
            let exact = found.filter(|found| is_module || found.matched_by == MatchedBy::FirstLine);
            let ours: BTreeSet<String> =
                exact.iter().flat_map(|found| &found.qualnames).map(|name| (*name).to_owned()).collect();
            if ours.is_empty() || !qualnames.is_subset(&ours) || (ours.len() > 1 && ours != qualnames) {
                let path = path.display();
                comparison.wrong.push(format!("{path}:{line} {name}: {qualnames:?}, ours {ours:?}"));
            }
        }
    }
    comparison
}
