use super::*;

#[test]
fn a_candidate_is_called_by_its_caller_too() {
    let named = |kind: TargetKind, name: &str, caller: Option<&str>| {
        let candidate = Candidate {
            name: name.to_owned(),
            file: PathBuf::from("/srv/app.py"),
            line: None,
            caller: caller.map(str::to_owned),
            kind,
            origin: Origin::Service,
            calls: 1,
            own_ns: None,
            waited_ns: None,
            floor_ns: Nanos(0),
            sampled: None,
            sharing: None,
        };
        candidate.name_and_caller()
    };
    use TargetKind::{Native, Python};
    for (kind, name, caller, expected) in [
        (Python, "burn", None, "burn"),
        (Python, "K.burn", Some("cold_tail"), "K.burn from cold_tail"),
        (Python, "burn", Some("*/app.py:K.<locals>.f"), "burn from K.<locals>.f"),
        (Python, "burn", Some("<others>"), "burn from <others>"),
        (Native, "_ZN2ns1fEi", Some("ns::g"), "ns::f(int) from ns::g"),
        (Native, "_ZN2ns1fEi", None, "_ZN2ns1fEi"),
    ] {
        assert_eq!(named(kind, name, caller), expected);
    }
}
