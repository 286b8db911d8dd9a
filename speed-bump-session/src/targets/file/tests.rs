//! Tests of whole files: their contents, and every possible error.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;
use crate::targets::TargetKind;
use crate::{
    targets::{Pattern, TargetIndex, Targets},
    units::Nanos,
};

fn is_elf(path: &str) -> bool {
    path == "/usr/bin/app"
}

fn parse(text: &str) -> Result<Targets, TargetsError> {
    Ok(ParsedTargets::parse("t.txt", text.as_bytes(), false)?.decide(is_elf))
}

/// The invalid lines, with their faults.
fn problems(bytes: &[u8]) -> Vec<(usize, LineProblem)> {
    match ParsedTargets::parse("t.txt", bytes, false) {
        Err(TargetsError::Lines(lines)) => {
            lines.errors.into_iter().map(|error| (error.line, error.problem)).collect()
        }
        other => panic!("expected wrong lines, not {other:?}"),
    }
}

fn ids(text: &str) -> Vec<String> {
    parse(text).unwrap().iter().map(|(_, target)| target.id.clone()).collect()
}

#[test]
fn the_kinds_of_a_file_are_those_of_its_targets() {
    use TargetKind::{Native, Python, Usdt};
    for (text, kinds) in [
        ("*:f", &[Python][..]),
        ("native:*:f", &[Native]),
        ("usdt:*:p:n\n!native:*:g\n!*:f", &[Usdt]),
        ("usdt:*:p:n\n*:f", &[Usdt, Python]),
    ] {
        let targets = parse(text).unwrap();
        for kind in [Python, Native, Usdt] {
            assert_eq!(targets.has_kind(kind), kinds.contains(&kind), "{text} {kind}");
        }
    }
}

#[test]
fn lines_of_one_function_for_two_callers_have_names_of_their_own() {
    let text = "*/app.py:burn caller=hot\n*/app.py:burn caller=*/app.py:cold\n*/app.py:burn\n\
                */app.py:burn caller=hot";
    let expected = [
        "*/app.py:burn caller=hot",
        "*/app.py:burn caller=*/app.py:cold",
        "*/app.py:burn",
        "*/app.py:burn caller=hot (line 4)",
    ];
    assert_eq!(ids(text), expected);
    let message = ParsedTargets::parse("t.txt", b"*:g\n*:f caller=py:g\n", false).unwrap_err().to_string();
    let said = "t.txt:2: `*:f caller=py:g`: bad caller `py:g`; expected caller=NAME or caller=MODULE:NAME";
    assert!(message.starts_with(said), "{message}");
}

#[test]
fn a_file_is_read_in_its_order() {
    let text = "\u{feff}# the service\r\n\r\n  */db.py : Session.*  delay=1.5ms frequency=10 id=db \r\
                !*:*.close\n/usr/bin/app:main 500\nusdt:*:python:gc__start";
    let targets = parse(text).unwrap();
    assert_eq!(targets.len(), 3);
    assert_eq!(targets.exclusions().len(), 1);
    assert!(targets.no_target().is_none());

    let first = targets.get(TargetIndex(0)).unwrap();
    assert_eq!((first.line, first.text.as_str()), (3, "*/db.py : Session.*  delay=1.5ms frequency=10 id=db"));
    assert_eq!((first.pattern.as_str(), first.id.as_str()), ("*/db.py:Session.*", "db"));
    assert_eq!((first.delay, first.frequency), (Some(Nanos(1_500_000)), std::num::NonZeroU64::new(10)));
    assert_eq!((first.kind, &first.provider), (TargetKind::Python, &None));

    let exclusion = &targets.exclusions()[0];
    assert_eq!((exclusion.line, exclusion.text.as_str()), (4, "!*:*.close"));

    let second = targets.get(TargetIndex(1)).unwrap();
    assert_eq!((second.line, second.kind, second.delay), (5, TargetKind::Native, Some(Nanos(500))));
    assert_eq!((second.frequency, second.id.as_str()), (None, "/usr/bin/app:main"));

    let third = targets.get(TargetIndex(2)).unwrap();
    assert_eq!((third.line, third.kind, third.delay), (6, TargetKind::Usdt, None));
    assert_eq!(third.provider.as_ref().map(Pattern::as_str), Some("python"));
    assert!(targets.get(TargetIndex(3)).is_none());
    for kind in TargetKind::ALL {
        assert!(targets.has_kind(kind));
    }
}

#[test]
fn ids_are_unambiguous() {
    assert_eq!(ids("*:f\nnative:*:f\n*:f delay=1"), ["*:f", "native:*:f", "*:f (line 3)"]);
    // An explicit id stays with its line, whether that line comes first or last.
    assert_eq!(ids("*:f\n*:g id=*:f"), ["*:f (line 1)", "*:f"]);
    assert_eq!(
        problems(b"*:f id=a\n\n*:g id=a\n*:h id=a"),
        [
            (3, LineProblem::DuplicateId { id: "a".into(), first: 1 }),
            (4, LineProblem::DuplicateId { id: "a".into(), first: 1 }),
        ]
    );
    assert_eq!(
        problems(b"*:f (line 3)\n*:f\n*:f"),
        [(3, LineProblem::DuplicateId { id: "*:f (line 3)".into(), first: 1 })]
    );
}

#[test]
fn all_wrong_lines_are_named_at_once() {
    assert_eq!(
        problems(b"f\n*:ok\n*:\n!*:f 1\n"),
        [
            (1, LineProblem::MissingColon { kind: None }),
            (3, LineProblem::EmptyName { kind: None }),
            (4, LineProblem::OptionOnExclusion { word: "1".into() }),
        ]
    );
    let TargetsError::Lines(lines) = parse(&"f\n".repeat(100)).unwrap_err() else { panic!("wrong lines") };
    assert_eq!(lines.errors.len(), LineErrors::MAX);
    assert!(lines.to_string().ends_with("stopped after 20 errors; there may be more"));
}

#[test]
fn messages_name_file_line_text_and_what_was_expected() {
    for (text, message) in [
        ("\n f ", "t.txt:2: `f`: missing `:`; expected [KIND:]MODULE:NAME [KEY=VALUE ...]"),
        ("native:malloc", "t.txt:1: `native:malloc`: missing `:`; expected native:MODULE:NAME"),
        (
            ":f",
            "t.txt:1: `:f`: empty module pattern; expected [KIND:]MODULE:NAME [KEY=VALUE ...], with `*` for \
             any module",
        ),
        (
            "*:",
            "t.txt:1: `*:`: empty name pattern; expected [KIND:]MODULE:NAME [KEY=VALUE ...], with `*` for \
             any name",
        ),
        (
            "usdt:*::x",
            "t.txt:1: `usdt:*::x`: empty provider pattern; expected usdt:MODULE:PROVIDER:NAME, with `*` for \
             any provider",
        ),
        (
            "perl:*:f",
            "t.txt:1: `perl:*:f`: unknown kind `perl`; expected py:MODULE:NAME, native:MODULE:NAME or \
             usdt:MODULE:PROVIDER:NAME",
        ),
        (
            "*:f wait=1",
            "t.txt:1: `*:f wait=1`: unknown key `wait`; expected delay=TIME, frequency=N, caller=FUNCTION or \
             id=NAME",
        ),
        (
            "*:f delay=soon",
            "t.txt:1: `*:f delay=soon`: bad delay: `soon` is not a time: write a number with ns, us, ms or s \
             (`10us`, `1.5ms`), or bare nanoseconds; expected a time such as delay=10us, of at most 10s",
        ),
        ("*:f delay=11s", "t.txt:1: `*:f delay=11s`: the delay 11s is too long; expected at most 10s"),
        (
            "*:f 10us",
            "t.txt:1: `*:f 10us`: bad delay `10us`; expected delay=TIME, as in delay=10us, or a bare number \
             of nanoseconds",
        ),
        (
            "*:f frequency=0",
            "t.txt:1: `*:f frequency=0`: bad frequency `0`; expected a whole number from 1: every Nth call \
             is delayed",
        ),
        ("*:f id=", "t.txt:1: `*:f id=`: bad id ``; expected a name of printable characters"),
        (
            "*:f id=\u{1b}[2J",
            r"t.txt:1: `*:f id=\x1b[2J`: bad id `\x1b[2J`; expected a name of printable characters",
        ),
        ("*:f id=a id=b", "t.txt:1: `*:f id=a id=b`: `id` is given twice; expected it once"),
        (
            "*:f id=a x",
            "t.txt:1: `*:f id=a x`: unexpected `x` after an option; expected delay=TIME, frequency=N, \
             caller=FUNCTION or id=NAME, and nothing else",
        ),
        (
            "*:f # x",
            "t.txt:1: `*:f # x`: a comment behind a pattern; expected the comment on a line of its own, \
             starting with `#`",
        ),
        (
            "!*:f id=a",
            "t.txt:1: `!*:f id=a`: unexpected `id=a`: an exclusion has no options; expected !MODULE:NAME",
        ),
        (
            "*:f id=a\n*:g id=a",
            "t.txt:2: `*:g id=a`: the id `a` is that of line 1 already; expected another id=NAME",
        ),
        ("", "t.txt: is empty; expected at least one line MODULE:NAME, or --allow-empty"),
        (
            "# f\n\n",
            "t.txt: has no target: only comments and blank lines (1 to 2); expected at least one line \
             MODULE:NAME, or --allow-empty",
        ),
        (
            "!*:f",
            "t.txt: has no target: only exclusions and comments (lines 1 to 1); expected at least one line \
             MODULE:NAME, or --allow-empty",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn bytes_that_are_not_utf8_are_named() {
    let bytes = b"*:f\r\n*:\xff\n*:g";
    assert_eq!(problems(bytes), [(2, LineProblem::NotUtf8 { offset: 7, byte: 0xff })]);
    let message = ParsedTargets::parse("t.txt", bytes, false).unwrap_err().to_string();
    let expected =
        "t.txt:2: `*:\u{fffd}`: not UTF-8: byte 0xff at byte offset 7 of the file; expected text in UTF-8";
    assert_eq!(message, expected);
    // This is also an error in a comment, and where the end of the line cuts off a character.
    assert_eq!(problems(b"# \xe9t\xe9\n"), [(1, LineProblem::NotUtf8 { offset: 2, byte: 0xe9 })]);
    assert_eq!(problems(b"*:f\xc3\n"), [(1, LineProblem::NotUtf8 { offset: 3, byte: 0xc3 })]);
}

#[test]
fn lines_have_a_longest_length() {
    let longest = format!("*:{}", "f".repeat(MAX_LINE_BYTES - 2));
    assert_eq!(parse(&format!("{longest}\r\n")).unwrap().len(), 1);
    let too_long = format!("*:x\n{longest}f");
    assert_eq!(problems(too_long.as_bytes()), [(2, LineProblem::TooLong { bytes: 4097 })]);
    let message = parse(&too_long).unwrap_err().to_string();
    assert!(message.starts_with("t.txt:2: `*:fff"), "{message}");
    assert!(message.ends_with("ff…`: the line has 4097 bytes; expected at most 4096"), "{message}");
}

#[test]
fn a_file_without_targets_may_be_allowed() {
    for text in ["", "\n\n", "# nothing yet\n", "!*:f\n"] {
        assert!(matches!(parse(text), Err(TargetsError::NoTarget(_))), "{text:?}");
        let targets = ParsedTargets::parse("t.txt", text.as_bytes(), true).unwrap().decide(is_elf);
        assert!(targets.is_empty());
        let warning = targets.no_target().unwrap().to_string();
        assert!(warning.starts_with("t.txt: "), "{warning}");
        assert!(targets.python_in("/a.py").is_empty());
    }
    // Invalid lines are still errors.
    assert!(ParsedTargets::parse("t.txt", b"f", true).is_err());
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &Path| ParsedTargets::load(path, false).map(|parsed| parsed.decide(is_elf));

    let path = folder.path().join("t.txt");
    let error = load(&path).unwrap_err();
    assert!(matches!(&error, TargetsError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("t.txt: no such targets file; expected"), "{error}");

    let error = load(folder.path()).unwrap_err();
    assert!(matches!(&error, TargetsError::Directory { .. }), "{error}");
    assert!(error.to_string().contains(": is a directory; expected"), "{error}");

    std::fs::write(&path, "*:f\nf\n").unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("t.txt:2: `f`: missing `:`"), "{error}");
    // For a path through a file, the error is neither `Missing` nor `Directory`.
    let error = load(&path.join("x")).unwrap_err();
    assert!(matches!(&error, TargetsError::Unreadable { .. }), "{error}");

    std::fs::write(&path, "*:f\n").unwrap();
    assert_eq!(load(&path).unwrap().len(), 1);
    // We read a file of the greatest length: it has one line, which is too long.
    let file = File::create(&path).unwrap();
    file.set_len(MAX_FILE_BYTES).unwrap();
    assert!(matches!(load(&path).unwrap_err(), TargetsError::Lines(_)));
    file.set_len(MAX_FILE_BYTES + 1).unwrap();
    assert!(matches!(load(&path).unwrap_err(), TargetsError::TooLarge { .. }));
    let error = load(Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(&error, TargetsError::TooLarge { .. }), "{error}");
}

/// Text that is likely to get far into the parser.
fn nearly_a_line() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(vec![
        "py",
        "native",
        "usdt",
        ":",
        "::",
        "!",
        " ",
        "\t",
        "\n",
        "\r",
        "#",
        "*",
        "?",
        "[",
        "[!",
        "]",
        "-",
        "=",
        "delay",
        "frequency",
        "id",
        "10us",
        "0",
        "18446744073709551616",
        "/",
        ".",
        "a.so",
        "é",
        "\u{feff}",
        "x",
    ]);
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ParsedTargets::parse("t.txt", &bytes, false);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in nearly_a_line()) {
        let Ok(targets) = parse(&text) else { return Ok(()) };
        let mut ids: Vec<_> = targets.iter().map(|(_, target)| target.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), targets.len());
        for (_, target) in targets.iter() {
            prop_assert_eq!(target.provider.is_some(), target.kind == TargetKind::Usdt);
            prop_assert!(!target.module.as_str().is_empty() && !target.name.as_str().is_empty());
        }
    }
}

#[test]
fn kinds_and_how_they_were_found_have_names() {
    for (line, kind, reason) in [
        ("py:*:f", "py", "as written"),
        ("/usr/bin/app:f", "native", "its module is an ELF file"),
        ("*.so:f", "native", "its module is named like a shared object"),
        ("*:f", "py", "no kind written, and its module names no ELF file"),
        ("usdt:*:p:f", "usdt", "as written"),
    ] {
        let targets = parse(line).unwrap();
        let target = targets.iter().next().unwrap().1;
        assert_eq!((target.kind.to_string(), target.kind_reason.to_string()), (kind.into(), reason.into()));
    }
}
