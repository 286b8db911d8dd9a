//! Special cases by hand, and random cases compared with CPython.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Command, Stdio},
};

use proptest::{
    prop_assert_eq, proptest,
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, TestRunner},
};

use super::{strategies::pair, *};

fn matches(pattern: &str, text: &str) -> bool {
    Pattern::new(pattern).unwrap().matches(text)
}

#[test]
fn patterns_are_equal_when_their_texts_are() {
    let pattern = |text| Pattern::new(text).unwrap();
    assert_eq!(pattern("a*"), pattern("a*"));
    assert_ne!(pattern("a*"), pattern("b*"));
    assert_ne!(pattern("a*"), pattern("a**"), "though both match the same");
}

#[test]
fn wildcards_cross_separators_and_lines() {
    for (pattern, text) in [
        ("*", ""),
        ("*", "a/b.c\nd"),
        ("**", "a/b"),
        ("a**/b", "ax/y/b"),
        ("**/b", "a/b"),
        ("a?b", "a/b"),
        ("a?b", "a\nb"),
        ("a?b", "aéb"),
        ("a?b", "a😀b"),
        ("[é]", "é"),
        ("[!a]", "漢"),
        ("[à-ë]*", "éa"),
    ] {
        assert!(matches(pattern, text), "{pattern} {text:?}");
    }
    for (pattern, text) in
        [("**/b", "b"), ("a/**/b", "a/b"), ("?", ""), ("?", "ab"), ("??", "é"), ("a", "A"), ("a", "a\n")]
    {
        assert!(!matches(pattern, text), "{pattern} {text:?}");
    }
}

#[test]
fn characters_without_a_meaning_stand_for_themselves() {
    for text in ["{", "}", "{a,b}", "a,b", r"\", "[", "[!", "[]", "[!]", "[a-", "f[", "(?i)a|b$^.+"] {
        assert!(matches(text, text), "{text}");
    }
    assert!(matches(r"\*", r"\x"));
    assert!(!matches(r"\*", "*"));
    assert!(!matches("{a,b}", "a"));
    assert!(matches("[[", "[["));
    assert!(matches("[a[]", "["));
}

#[test]
fn classes_are_read_as_cpython_reads_them() {
    for (pattern, members, others) in [
        ("[abc]", "abc", "d[]-"),
        ("[a-c]", "abc", "d-"),
        ("[!a-c]", "d-!", "abc"),
        ("[^a]", "^a", "b"),
        ("[!^a]", "b!", "^a"),
        ("[]x]", "]x", "[y"),
        ("[!]x]", "[y", "]x"),
        ("[a-]", "a-", "b"),
        ("[-a]", "a-", "b"),
        ("[!-a]", "b", "a-"),
        ("[--/]", "-./", "a"),
        ("[a-c-e]", "abc-e", "d"),
        ("[z-a]", "", "za-m"),
        ("[!z-a]", "za-m", ""),
        ("[z-ax]", "x", "za-m"),
        ("[a\\]", "a\\", "]"),
        ("[*?]", "*?", "a"),
        ("[b-a!x]", "!ab-", "x"),
        ("[b-a!-x]", "!ab", "x-"),
        ("[b-a!-!]", "ab", "!-"),
        ("[b-a^x]", "^x", "ab"),
        ("[&&~|]", "&~|", "a"),
    ] {
        for c in members.chars() {
            assert!(matches(pattern, &c.to_string()), "{pattern} matches {c}");
        }
        for c in others.chars() {
            assert!(!matches(pattern, &c.to_string()), "{pattern} does not match {c}");
        }
        assert!(!matches(pattern, ""), "{pattern} needs a character");
    }
}

#[test]
fn the_last_component_follows_the_last_dot_that_separates() {
    for (pattern, last) in [
        ("f", "f"),
        ("A.f", "f"),
        ("*.forward", "forward"),
        ("A.*", "*"),
        ("*Attention*", "*Attention*"),
        ("outer.<locals>.inner", "inner"),
        ("A.[a.b]c", "[a.b]c"),
        ("A[.]b", "A[.]b"),
        ("A.f[.b", "b"),
        ("é.ü", "ü"),
        ("A.", ""),
    ] {
        assert_eq!(Pattern::new(pattern).unwrap().last_component().unwrap().as_str(), last);
    }
}

#[test]
fn a_pattern_as_long_as_a_line_compiles() {
    for text in ["?".repeat(4096), "[!é]".repeat(1024), "*a".repeat(2048), "[".repeat(4096)] {
        let pattern = Pattern::new(&text).unwrap();
        assert!(!pattern.matches("a"), "{text:.8}");
    }
    assert!(matches(&"?".repeat(4096), &"é".repeat(4096)));
}

#[test]
fn a_set_finds_what_its_patterns_match_one_by_one() {
    let texts = ["*", "a", "a*", "*a*", "*ab*c", "?b", "[ab]", "é*", "", "abc", "a", "*.b*", "*é?"];
    let patterns: Vec<Pattern> = texts.iter().map(|text| Pattern::new(text).unwrap()).collect();
    let (set, numbers) = PatternSet::new(&patterns);
    assert_eq!(numbers[1], numbers[10], "equal patterns share a number");
    assert_eq!(set.len(), texts.len() - 1);
    for text in ["", "a", "b", "ab", "abc", "aéx", "é", "x.b.y", "xabyc"] {
        let mut found = set.matching(text);
        found.sort_unstable();
        let mut expected: Vec<usize> =
            patterns.iter().zip(&numbers).filter(|(p, _)| p.matches(text)).map(|(_, &n)| n).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(found, expected, "{text}");
    }
}

proptest! {
    #[test]
    fn a_set_of_odd_patterns_misses_none(pairs in proptest::collection::vec(pair(), 1..40)) {
        let patterns: Vec<Pattern> =
            pairs.iter().map(|(pattern, _)| Pattern::new(pattern).unwrap()).collect();
        let (set, numbers) = PatternSet::new(&patterns);
        prop_assert_eq!(set.has_sieve(), set.len() >= PatternSet::MANY);
        for (_, name) in &pairs {
            let mut found = set.matching(name);
            found.sort_unstable();
            let one_by_one = patterns.iter().zip(&numbers).filter(|(p, _)| p.matches(name)).map(|(_, &n)| n);
            let expected: BTreeSet<usize> = one_by_one.collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{:?}", name);
        }
    }
}

#[test]
fn long_literals_are_told_apart_by_their_ends() {
    let long = |n: usize| Pattern::new(&format!("*{}{n}?*", "é".repeat(500))).unwrap();
    let patterns: Vec<Pattern> = (0..100).map(long).collect();
    let (set, _) = PatternSet::new(&patterns);
    assert!(set.has_sieve());
    assert_eq!(set.matching(&format!("x{}7y", "é".repeat(500))), [7]);
}

#[test]
fn a_pattern_has_a_longest_length() {
    assert!(Pattern::new(&"?".repeat(LONGEST)).is_ok());
    let error = Pattern::new(&"?".repeat(LONGEST + 1)).unwrap_err();
    assert!(error.to_string().contains("write a shorter one"), "{error}");
}

#[test]
fn patterns_with_many_ways_to_match_take_one() {
    // If a matcher tried all ways to match, these cases would take for ever.
    let name = format!("{}c", "a".repeat(4_000));
    for pattern in ["*a".repeat(2_000), "*a*?".repeat(1_000), "*[ab]".repeat(800), "*aa?a".repeat(800)] {
        assert!(!matches(&format!("{pattern}*b"), &name));
        assert!(matches(&format!("{pattern}*c"), &name));
    }
}

/// The number of random pairs on which we compare our patterns with CPython's.
const PAIRS: usize = 16_000;

const REFERENCE: &str = "
import fnmatch, json, re, sys, warnings
warnings.simplefilter('ignore')
try:
    fnmatch.fnmatchcase('a', '[z-a]')
except re.error:
    sys.exit(3)  # Before 3.10, an empty range raises.
pairs = json.loads(sys.stdin.buffer.read().decode('utf-8'))
print(json.dumps([fnmatch.fnmatchcase(name, pattern) for pattern, name in pairs]))
";

/// CPython's answers for the pairs; `Err` with the reason if there is no Python.
fn ask_cpython(pairs: &[(String, String)]) -> Result<Vec<bool>, String> {
    let mut python = Command::new("python3")
        .args(["-I", "-c", REFERENCE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("python3 cannot be started: {error}"))?;
    let mut stdin = python.stdin.take().expect("stdin is piped");
    let sent = stdin.write_all(&serde_json::to_vec(pairs).unwrap());
    drop(stdin);
    let output = python.wait_with_output().expect("python3 ends");
    if output.status.code() == Some(3) {
        return Err("this python3 cannot do `[z-a]`; 3.10 and later can".to_owned());
    }
    assert!(output.status.success(), "python3 failed: {}", output.status);
    sent.expect("python3 reads the pairs");
    Ok(serde_json::from_slice(&output.stdout).expect("python3 answers with JSON"))
}

#[test]
fn patterns_match_what_cpython_matches() {
    let mut runner = TestRunner::new(Config::default());
    let pairs: Vec<(String, String)> =
        (0..PAIRS).map(|_| pair().new_tree(&mut runner).unwrap().current()).collect();
    let answers = match ask_cpython(&pairs) {
        Ok(answers) => answers,
        Err(reason) => {
            speed_bump_testing::skip!("{reason}");
            return;
        }
    };
    assert_eq!(answers.len(), PAIRS);
    let wrong: Vec<_> = pairs
        .iter()
        .zip(&answers)
        .filter(|((pattern, name), answer)| matches(pattern, name) != **answer)
        .map(|((pattern, name), answer)| format!("{pattern:?} on {name:?}: CPython says {answer}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {PAIRS} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    // The test would prove little if nearly all pairs matched, or nearly none.
    let hits = answers.iter().filter(|hit| **hit).count();
    assert!((PAIRS / 5..PAIRS * 4 / 5).contains(&hits), "{hits} of {PAIRS} pairs match");
}
