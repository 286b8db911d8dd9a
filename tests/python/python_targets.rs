//! Lines of a targets file for Python: dotted modules, file globs, options, and which line wins.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;
use speed_bump_testing::{Attached, PythonBuild, Service, pythons, session::obstacle, skip};
use speed_bump_tests::calls::{counts, start};

/// A running interpreter, its calls visible in one of the two ways, and what was called before the attach.
fn on_each(before: &str, case: impl Fn(&PythonBuild, Service)) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let visible: Vec<_> =
        pythons().iter().filter(|python| python.trampolines || python.usdt_fires()).collect();
    if visible.is_empty() {
        return skip!("no Python shows its calls here: run `cargo xtask pythons`");
    }
    for python in visible {
        let options: &[&str] = if python.usdt_fires() { &[] } else { &["-X", "perf"] };
        let mut service = start(python, options);
        service.ask(before).unwrap();
        case(python, service);
    }
}

#[test]
fn modules_are_named_with_dots_or_by_their_files() {
    on_each("import textwrap; json.loads('[1]'); textwrap.dedent(' a')", |python, mut service| {
        let targets = "json.decoder:*\njson:loads\n*/textwrap.py:dedent\nson.encoder:*\n";
        let session = Attached::start(service.pid(), targets, &["--no-inject"]).unwrap();
        service.ask("times(20, json.loads, '[1]'); times(10, textwrap.dedent, ' a')").unwrap();
        let ended = session.stop().unwrap();
        // Trampolines also show what was called before.
        for method in ["JSONDecoder.decode", "JSONDecoder.raw_decode"] {
            assert_eq!(counts(&ended, method).0, 20, "{python}: {method}");
        }
        assert_eq!([0, 1, 2].map(|target| ended.counts(target).0), [40, 20, 10], "{python}");
        // `son.encoder` begins in the middle of a name.
        assert_eq!((ended.counts(3), &ended.target(3)["entry"]), ((0, 0), &json!(null)), "{python}");
        let file = ended.target(1)["functions"][0]["file"].as_str().unwrap();
        assert!(file.ends_with("/json/__init__.py"), "{python}: {file}");
    });
}

#[test]
fn options_belong_to_their_line_and_the_first_line_wins() {
    on_each("plain(1); other(1); INSTANCE.m(); K.static_method()", |python, mut service| {
        let targets = "*/calls.py:plain delay=2us id=first\n\
                       */calls.py:pl* delay=1ms id=second\n\
                       */calls.py:other frequency=7\n\
                       */calls.py:K.* delay=0\n\
                       !*/calls.py:K.static_*\n";
        let session =
            Attached::start(service.pid(), targets, &["--no-inject", "-vv", "--delay", "5us"]).unwrap();
        // Where a call itself brings the verdict, this one does.
        for (function, name) in [("plain", "plain"), ("other", "other"), ("INSTANCE.m", "m")] {
            service.ask(&format!("{function}({})", if name == "m" { "" } else { "1" })).unwrap();
            session.wait_for(&format!("{name} is covered")).unwrap();
        }
        service.ask("times(70, plain, 1); times(70, other, 1); times(70, INSTANCE.m)").unwrap();
        service.ask("times(70, K.static_method)").unwrap();
        let ended = session.stop().unwrap();
        let ids: Vec<_> = (0..4).map(|target| ended.target(target)["id"].clone()).collect();
        assert_eq!(ids, ["first", "second", "*/calls.py:other", "*/calls.py:K.*"], "{python}");
        // Through the probe the first call comes before the verdict.
        let late = u64::from(python.usdt_fires());
        assert_eq!(ended.counts(0), (71, 71 - late), "{python}");
        assert_eq!(ended.counts(1), (0, 0), "{python}");
        assert_eq!(ended.counts(2), (71, 10), "{python}");
        assert_eq!(ended.counts(3), (71, 0), "{python}");
        assert_eq!(counts(&ended, "K.static_method"), (0, 0), "{python}");
        let requested: Vec<_> = (0..4).map(|target| ended.target(target)["requested_ns"].clone()).collect();
        assert_eq!(requested, [2_000, 1_000_000, 5_000, 0], "{python}");
        assert_eq!(ended.target(2)["frequency"], 7, "{python}");
    });
}
