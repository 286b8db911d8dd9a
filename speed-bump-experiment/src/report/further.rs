//! The table of further metrics.

use crate::{analysis::further::Further, record::Quantity, report::words::name_and_place_of, units::Nanos};

/// Functions for each number.
const SHOWN: usize = 3;

/// The rows of the table, with the heading.
pub(super) fn rows(further: &[Further]) -> Vec<Vec<String>> {
    let heading = ["further metric", "without delays", "with added time of 1 % in", "changes by"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for of in further {
        let name = format!("{} ({})", of.metric, of.quantity.name());
        let without = shown(of.quantity, of.without);
        let mut moves: Vec<(String, String)> = of
            .moves
            .iter()
            .take(SHOWN)
            .map(|moved| {
                let function = name_and_place_of(&moved.name, moved.file.as_deref(), moved.line);
                let change = match (moved.by, moved.low.zip(moved.high)) {
                    (Some(by), Some((low, high))) => change(of, by, low, high),
                    _ => "-".to_owned(),
                };
                (function, change)
            })
            .collect();
        if moves.is_empty() {
            moves.push(("-".to_owned(), "-".to_owned()));
        }
        for (number, (function, change)) in moves.into_iter().enumerate() {
            let (name, without) =
                if number == 0 { (name.clone(), without.clone()) } else { Default::default() };
            rows.push(vec![name, without, function, change]);
        }
    }
    rows
}

/// `+0.98 % [0.90, 1.06]`; in the number's own unit if it is zero without delays.
fn change(of: &Further, by: f64, low: f64, high: f64) -> String {
    if of.without != 0.0 {
        let [by, low, high] = [by, low, high].map(|of_it| of_it / of.without.abs() * 100.0);
        return format!("{by:+.2} % [{low:.2}, {high:.2}]");
    }
    let [low, high] = [low, high].map(|value| shown(of.quantity, value));
    format!("{} [{low}, {high}]", shown(of.quantity, by))
}

fn shown(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Rate => format!("{}/s", digits(value)),
        Quantity::Mean => digits(value),
        Quantity::Latency | Quantity::P50 | Quantity::P99 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", Nanos(((value.abs() / 1e3).round() as u64).saturating_mul(1_000)))
        }
    }
}

/// A number with enough digits to see a change.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::further::Move;

    #[test]
    fn a_line_for_each_number_and_function() {
        let moved = |name: &str, by: Option<f64>| Move {
            name: name.to_owned(),
            file: Some("/srv/app.py".into()),
            line: Some(7),
            by,
            low: by.map(|by| by / 2.0),
            high: by.map(|by| by * 2.0),
        };
        let of = |metric: &str, quantity, without, moves| Further {
            metric: metric.to_owned(),
            quantity,
            without,
            moves,
        };
        let shown = rows(&[
            of("--sockets", Quantity::P99, 10e6, vec![moved("a", Some(0.1e6)), moved("b", None)]),
            of("--metric x", Quantity::Rate, 0.0, vec![moved("a", Some(0.5))]),
            of("--metric y", Quantity::Mean, 3.0, Vec::new()),
        ]);
        let lines: Vec<String> = shown.iter().map(|row| row.join(" ").trim().to_owned()).collect();
        assert_eq!(
            lines,
            [
                "further metric without delays with added time of 1 % in changes by",
                "--sockets (p99) 10ms a (app.py:7) +1.00 % [0.50, 2.00]",
                "b (app.py:7) -",
                "--metric x (rate) 0/s a (app.py:7) 0.5000/s [0.2500/s, 1.00/s]",
                "--metric y (mean) 3.00 - -",
            ]
        );
    }
}
