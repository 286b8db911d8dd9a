//! Quantiles of latency (`--latency p99`): what few requests call shows there, and nowhere else.

use crate::planted::planted_large;

#[test]
fn what_every_fiftieth_request_calls_matters_to_the_p99_and_not_to_the_p50() {
    let Some(service) = planted_large("tail") else { return };
    let rules = ["--max-slowdown", "30%", "--threshold", "0.25"];
    let functions = ["compact", "render"];
    let of = |quantile| ["--latency", quantile, "--closed-loop"];
    let found = service.decided_by(&rules, &functions[..1], "40s", &of("p99"), &[("compact", "matters")]);
    found.assert_sensitivity("compact", 1.0);
    assert_eq!(found.json["by"], "p99");
    assert!(found.printed.contains("; 99 of 100 take "), "{}", found.printed);
    let found = service.found(&functions, &of("p50"), &[&rules[..], &["--for", "30s"]].concat());
    found.assert_not_wrong("compact", "does-not-matter", 0.0);
    found.assert_not_wrong("render", "matters", 1.0);
}
