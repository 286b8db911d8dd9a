//! The page shows the numbers of the JSON, and draws everything where its number belongs.

use std::process::Command;

use serde_json::Value;
use speed_bump_experiment::{record::Experiment, report::html};

use crate::records::{HOSTILE_RECORD, LARGE};

/// Every text between a `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    text.split(begin).skip(1).map(|rest| rest.split_once(end).map_or(rest, |(of, _)| of)).collect()
}

fn values(text: &str) -> Vec<f64> {
    between(text, "<data value=\"", "\"").into_iter().map(|value| value.parse().unwrap()).collect()
}

fn json(experiment: &Experiment) -> Value {
    serde_json::to_value(experiment).unwrap()
}

/// The number that the page shows of two: the first, or the bound if there is no first.
fn shown(factor: &Value, keys: [&str; 2]) -> Option<f64> {
    keys.iter().find_map(|key| factor[*key].as_f64())
}

#[test]
fn the_table_has_the_numbers_of_the_json() {
    let page = html::render(&HOSTILE_RECORD);
    let body = between(between(&page, "<table class=\"forest", "</table>")[0], "<tbody", "</tbody>")[0];
    let rows = between(body, "<tr", "</tr>");
    let json = json(&HOSTILE_RECORD);
    let factors = json["factors"].as_array().unwrap();
    let looked_at: Vec<&Value> = factors.iter().filter(|of| of["verdict"] != "dismissed").collect();
    assert_eq!(rows.len(), looked_at.len());
    for (row, factor) in rows.iter().zip(looked_at) {
        let expected = [
            shown(factor, ["worth", "worth_high"]),
            shown(factor, ["sensitivity", "high"]),
            factor["own_ns_per_unit"].as_f64(),
            factor["calls_per_unit"].as_f64(),
        ];
        assert_eq!(values(row), expected.into_iter().flatten().collect::<Vec<_>>(), "{row}");
    }
}

/// The value at a place on an axis, computed from two of the axis's ticks.
fn value_at(axis: &str, percent: f64) -> f64 {
    let ticks: Vec<(f64, f64)> = between(axis, "<text x=\"", "</text>")
        .into_iter()
        .map(|tick| {
            let (at, label) = tick.split_once("%\"").unwrap();
            let label = label.split_once('>').unwrap().1.trim_end_matches(" %");
            (at.parse().unwrap(), label.parse().unwrap())
        })
        .collect();
    let ((x0, v0), (x1, v1)) = (ticks[0], *ticks.last().unwrap());
    v0 + (percent - x0) / (x1 - x0) * (v1 - v0)
}

#[test]
fn marks_and_intervals_lie_where_the_numbers_are() {
    let page = html::render(&HOSTILE_RECORD);
    let table = between(&page, "<table class=\"forest", "</table>")[0];
    let axes = between(table, "<svg class=\"axis\"", "</svg>");
    let json = json(&HOSTILE_RECORD);
    let factors = json["factors"].as_array().unwrap();
    let drawn: Vec<&Value> = factors.iter().filter(|of| of["sensitivity"].is_number()).collect();
    assert!(drawn.len() >= 4, "{drawn:?}");
    let mut compared = 0;
    let count = drawn.len();
    for (row, factor) in between(between(table, "<tbody", "</tbody>")[0], "<tr", "</tr>").iter().zip(drawn) {
        let columns = [["worth", "worth_low", "worth_high"], ["sensitivity", "low", "high"]];
        let drawings = between(row, "<svg class=\"row", "</td>");
        for ((axis, drawing), (keys, unit)) in
            axes.iter().zip(drawings).zip(columns.into_iter().zip([100.0, 1.0]))
        {
            let at = |text: &str| value_at(axis, text.trim_end_matches('%').parse().unwrap());
            let interval = drawing.rsplit("<line x1=\"").next().unwrap();
            let (low, rest) = interval.split_once('"').unwrap();
            let high = between(rest, "x2=\"", "\"")[0];
            let mark = between(rest, "<svg x=\"", "\"")[0];
            for (key, found) in keys.into_iter().zip([mark, low, high]) {
                let expected = factor[key].as_f64().unwrap() * unit;
                // Places are written in percent with two decimals.
                let most = (at("100") - at("0")) * 1e-3;
                compared += 1;
                assert!(
                    (at(found) - expected).abs() <= most,
                    "{key}: {found} is {}, not {expected}",
                    at(found)
                );
            }
        }
    }
    assert_eq!(compared, 2 * 3 * count);
}

#[test]
fn curves_have_the_numbers_of_the_json() {
    let page = html::render(&HOSTILE_RECORD);
    let json = json(&HOSTILE_RECORD);
    let factors = json["factors"].as_array().unwrap();
    let curves: Vec<&Value> = factors.iter().map(|of| &of["curve"]).filter(|of| of.is_object()).collect();
    let section = page.split_once("id=\"curves\"").unwrap().1.split_once("id=\"time\"").unwrap().0;
    let figures = between(section, "<figure>", "</figure>");
    assert_eq!(figures.len(), curves.len());
    assert!(curves.iter().any(|curve| curve["bend"].is_object()), "{json}");
    for (figure, curve) in figures.iter().zip(curves) {
        let mut expected: Vec<f64> = Vec::new();
        if let Some(bend) = curve["bend"].as_object() {
            let keys = ["slack_ns", "low_ns", "high_ns", "beyond"];
            expected.extend(keys.iter().map(|key| bend[*key].as_f64().unwrap()));
        }
        for dose in curve["doses"].as_array().unwrap() {
            let keys = ["delay_ns", "time_ns", "low_ns", "high_ns"];
            expected.extend(keys.iter().filter_map(|key| dose[*key].as_f64()));
        }
        assert_eq!(values(figure), expected);
        assert_eq!(figure.matches("<circle").count(), curve["doses"].as_array().unwrap().len());
    }
}

#[test]
fn the_timeline_has_a_stroke_for_each_slice_that_counts() {
    for (record, drawn) in [(&HOSTILE_RECORD, 1), (&LARGE, 2)] {
        let page = html::render(record);
        let slices = &record.measured.slices;
        // Of more than 4,000 slices every other one is drawn.
        assert!(slices.len() > 200 && slices.len().div_ceil(4_000) == drawn, "{}", slices.len());
        let drawing = between(&page, "<svg class=\"slices\"", "</svg>")[0];
        let counts = slices.iter().step_by(drawn).filter(|slice| slice.counts()).count();
        assert_eq!(drawing.matches('M').count(), counts);
    }
}

#[test]
fn all_checks_are_told_with_their_numbers() {
    let page = html::render(&HOSTILE_RECORD);
    let section = between(&page, "<section class=\"validity\"", "</section>")[0];
    let of = &HOSTILE_RECORD.findings.validity;
    let expected = [of.delivered_over_asked, of.drift, of.recovery, Some(of.slices as f64)];
    assert_eq!(values(section), expected.into_iter().flatten().collect::<Vec<_>>());
}

#[test]
fn a_page_of_a_thousand_functions_is_small() {
    let page = html::render(&LARGE);
    assert!(page.len() <= 300_000, "{} bytes", page.len());
    for name in LARGE.findings.factors.iter().take(40).map(|factor| &factor.name) {
        assert!(page.contains(name.as_str()), "{name}");
    }
    // If there is no room for all functions, the page says how many are left out.
    let rows = page.matches("function_").count();
    assert!(rows >= 900 || page.contains("more are in the JSON"), "{rows}");
}

#[test]
fn the_policy_lets_the_pages_own_script_run() {
    let page = html::render(&LARGE);
    let script = between(&page, "<script>", "</script>")[0];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    std::fs::write(&file, script).unwrap();
    let sums =
        Command::new("sh").args(["-c", "sha256sum \"$1\" | cut -c1-64", "sh"]).arg(&file).output().unwrap();
    let hex = String::from_utf8(sums.stdout).unwrap();
    let policy = between(&page, "script-src 'sha256-", "'")[0];
    assert_eq!(hex.trim(), hex_of(policy), "after a change of page.js, html.rs has another hash");
}

/// Base64 in hexadecimal digits.
fn hex_of(base64: &str) -> String {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String =
        base64.trim_end_matches('=').chars().map(|c| format!("{:06b}", alphabet.find(c).unwrap())).collect();
    bits.as_bytes()
        .chunks_exact(8)
        .map(|byte| format!("{:02x}", u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap()))
        .collect()
}
