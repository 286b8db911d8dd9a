#![allow(clippy::unwrap_used)]
use super::*;

const FIVE_PASSED: &str =
    "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";

fn tally(lines: &str, skips: &str, success: bool) -> Tally {
    let mut tally = Tally::default();
    lines.lines().for_each(|line| tally.read_line(line));
    tally.read_skips(skips);
    let list = SkipList::parse(LIST).unwrap();
    tally.finish(success, &list, Place::Host);
    tally.look_for_unused(&list, Place::Host);
    tally
}

const LIST: &str = "
    [[skip]]
    test = 'a::b'
    because = 'no gcc'
    places = ['host']
    why = 'a test'

    [[skip]]
    test = 'a*'
    case = '3.*'
    because = 'no such Python'
    places = ['host']
    why = 'a test'

    [[skip]]
    test = 'ignored::a::d'
    because = 'takes an hour'
    places = ['host']
    why = 'a test'
    sometimes = true
";

#[test]
fn results_of_all_programs_are_added() {
    let tally = tally(
        "test a::b ... ok\n\
         test a::c ... FAILED\n\
         test a::d ... ignored, takes an hour\n\
         test a::e ... ignored\n\
         test result: FAILED. 11 passed; 1 failed; 2 ignored; 0 measured; 4 filtered out; finished in \
         0.1s\n\
         test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n",
        "",
        false,
    );
    assert!(!tally.is_success());
    let text = tally.to_string();
    assert!(text.contains("FAILED a::c\n"), "{text}");
    assert!(text.contains("ignored::a::d: takes an hour"), "{text}");
    assert!(text.contains("FAILED ignored::a::e: skipped because it says so"), "{text}");
    assert!(text.ends_with("\n14 passed, 2 failed, 1 skipped\n"), "{text}");
}

#[test]
fn a_test_that_passed_alone_is_told_of() {
    let failed = "running 2 tests\n\
         test b ... ok\n\
         test c ... FAILED\n\
         test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; in 0s\n";
    let mut tally = Tally::default();
    failed.lines().for_each(|line| tally.read_line(line));
    assert_eq!(tally.explained_failures().unwrap().iter().collect::<Vec<_>>(), ["c"]);
    tally.has_passed_alone("c".to_owned());
    tally.has_passed_alone("b".to_owned());
    assert_eq!(tally.explained_failures(), None);
    assert_eq!(tally.counts(), [2, 0, 0]);
    assert!(tally.to_string().contains("PASSED ALONE, having failed beside other tests: c\n"));

    // A test program that died has told nothing.
    let mut tally = Tally::default();
    failed.lines().chain(["running 5 tests"]).for_each(|line| tally.read_line(line));
    assert_eq!(tally.explained_failures(), None);
}

#[test]
fn a_skipped_test_has_not_passed() {
    let tally = tally(
        FIVE_PASSED,
        "SKIPPED a::b: because no gcc\n\
         SKIPPED a::c [3.14]: because no such Python\n\
         SKIPPED a::c [3.15]: because no such Python\n\
         RAN a case of a::c\n\
         SKIPPED a [3.8]: because no such Python\n\
         SKIPPED a::b: because no gcc\n",
        true,
    );
    assert!(tally.is_success(), "{tally}");
    assert!(tally.to_string().ends_with("\n4 passed, 0 failed, 4 skipped\n"), "{tally}");
    assert_eq!(tally.to_string().matches("because no such Python").count(), 1);
    assert!(!tally.to_string().contains("warning"), "{tally}");
}

#[test]
fn a_test_of_which_no_case_ran_is_skipped() {
    let tally = tally(FIVE_PASSED, "SKIPPED a::c [3.14]: because no such Python\n", true);
    let text = tally.to_string();
    assert!(!tally.is_success());
    assert!(text.contains("\nFAILED a::c: skipped because every case of it was skipped\n"), "{text}");
    assert!(text.ends_with("\n4 passed, 1 failed, 1 skipped\n"), "{text}");
}

#[test]
fn what_is_skipped_and_not_listed_has_failed() {
    let skips = "SKIPPED a::b: because no root\n\
         SKIPPED a::c [3.14]: because no such Python\n\
         SKIPPED a::c [no Python]: because no such Python\n\
         RAN a case of a::c\n\
         SKIPPED x [y]: because z\n";
    let tally = tally(FIVE_PASSED, skips, true);
    let text = tally.to_string();
    assert!(!tally.is_success());
    for line in [
        "FAILED a::b: skipped because no root",
        "FAILED a::c [no Python]: skipped because no such Python",
        "FAILED x [y]: skipped because z",
        "warning: tests/skips.toml lists what was not skipped: a::b: because no gcc (a test)",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    assert!(text.contains("not listed for `host` in tests/skips.toml"), "{text}");
    assert!(text.ends_with("\n3 passed, 3 failed, 1 skipped\n"), "{text}");
}

#[test]
fn a_test_that_failed_has_not_passed_twice() {
    let lines = "test c ... FAILED\n\
         test result: FAILED. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in \
         0.1s";
    let tally = tally(lines, "SKIPPED a::c [3.14]: because no such Python\nRAN a case of a::c\n", false);
    assert!(tally.to_string().ends_with("\n5 passed, 1 failed, 1 skipped\n"), "{tally}");
    let tally = self::tally(lines, "SKIPPED a::c: because no root\n", false);
    assert!(tally.to_string().ends_with("\n5 passed, 2 failed, 0 skipped\n"), "{tally}");
}

#[test]
fn what_does_not_compile_has_failed() {
    let tally = tally("", "", false);
    assert!(!tally.is_success());
    assert!(tally.to_string().ends_with("\n0 passed, 1 failed, 0 skipped\n"), "{tally}");
}

#[test]
fn running_nothing_is_no_success() {
    let tally = tally("", "", true);
    assert!(!tally.is_success() && tally.to_string().starts_with("no test has run"), "{tally}");
}
