//! The functions of a report in sections: what the author of the service can change comes first.

use super::notes::tested;
use crate::{
    analysis::{
        factor::{Factor, FactorKind},
        findings::Findings,
        verdict::Verdict,
    },
    record::Origin,
};

/// Functions of the same origin.
pub(super) struct Section<'a> {
    /// Its title; `None` if it is the only section and needs none.
    pub(super) title: Option<&'static str>,
    /// In the order of the findings.
    pub(super) factors: Vec<&'a Factor>,
}

/// The most undecided functions that have a row in a text.
const UNDECIDED_ROWS: usize = 5;

/// Whether a function has no row in a text: it is one of many undecided ones, which share one line.
pub(super) fn is_folded(findings: &Findings) -> impl FnMut(&&Factor) -> bool {
    let is_undecided = |of: &&Factor| of.verdict == Verdict::Undecided;
    let all = tested(findings).filter(is_undecided).count();
    let mut rows = if all > UNDECIDED_ROWS + 1 { UNDECIDED_ROWS } else { all };
    move |of| {
        if !is_undecided(of) {
            return false;
        }
        let has_row = rows > 0;
        rows = rows.saturating_sub(1);
        !has_row
    }
}

/// The functions that were tested and have a row in a text, in sections.
pub(super) fn text_sections(findings: &Findings, most: usize) -> Vec<Section<'_>> {
    let mut is_folded = is_folded(findings);
    in_sections(tested(findings).filter(move |of| !is_folded(of)).take(most))
}

/// `… 3 more functions`, where a text has room for so many rows; `None` if all fit.
pub(super) fn more(findings: &Findings, most: usize) -> Option<String> {
    let mut is_folded = is_folded(findings);
    let more = tested(findings).filter(|of| !is_folded(of)).count().saturating_sub(most);
    (more > 0).then(|| format!("… {more} more functions"))
}

/// The first of the functions that were tested, in sections.
pub(super) fn sections(findings: &Findings, most: usize) -> Vec<Section<'_>> {
    in_sections(tested(findings).take(most))
}

fn in_sections<'a>(factors: impl Iterator<Item = &'a Factor>) -> Vec<Section<'a>> {
    let mut sections: Vec<Section<'a>> = Vec::new();
    for factor in factors {
        let title = title(factor);
        match sections.last_mut().filter(|last| last.title == title) {
            Some(last) => last.factors.push(factor),
            None => sections.push(Section { title, factors: vec![factor] }),
        }
    }
    // If the service's own functions and groups are the only section, it needs no title.
    let is_clear = |section: &Section<'a>| {
        let is_other = |of: &&&Factor| of.kind != FactorKind::Group && of.origin > Origin::Unknown;
        section.factors.first().filter(is_other).is_none()
    };
    if let [only] = sections.as_mut_slice()
        && is_clear(only)
    {
        only.title = None;
    }
    sections
}

fn title(factor: &Factor) -> Option<&'static str> {
    match (factor.kind, factor.origin) {
        (FactorKind::Group, _) => Some("groups"),
        (_, Origin::Unknown) => None,
        (_, Origin::Service) => Some("the service's own code"),
        (_, Origin::Library) => Some("libraries"),
        (_, Origin::Native) => Some("native code"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        record::{Experiment, Measured, Wait},
        report::{csv, html, markdown, text},
        simulated::Function,
        testing,
    };

    const ORIGINS: [Origin; 4] = [Origin::Native, Origin::Library, Origin::Service, Origin::Service];

    /// Functions with less and less time, in the opposite order of their origins.
    fn measured() -> Measured {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let names = ["deflate", "encode", "to_json", "handle"];
        let functions: Vec<_> =
            names.into_iter().zip([400, 300, 200, 100]).map(|(name, own)| (name, function, own)).collect();
        let mut measured = testing::measured(&functions);
        for (candidate, origin) in measured.candidates.iter_mut().zip(ORIGINS) {
            candidate.origin = origin;
        }
        measured.waits = vec![Wait {
            name: "handle".to_owned(),
            file: "/srv/app.py".into(),
            line: Some(7),
            inside: Some("recv_into".to_owned()),
            what: "recv".to_owned(),
            share: 0.39,
        }];
        measured.slices = (0..3)
            .map(|at| testing::at(at, testing::slice(crate::record::PhaseKind::Census, 0, CONTROL, 1e3, 0)))
            .collect();
        measured
    }

    const CONTROL: crate::record::Treatment = crate::record::Treatment::Control;
    const WAITS: &str = "the service waits: 39 % of the time in recv (handle (app.py:7), inside recv_into)";

    /// Asserts that these texts occur in this order.
    #[track_caller]
    fn assert_order(text: &str, parts: &[&str]) {
        let mut rest = text;
        for part in parts {
            let at = rest.find(part);
            assert!(at.is_some(), "{part} is not behind the others\n{text}");
            rest = &rest[at.unwrap() + part.len()..];
        }
    }

    const ROWS: [&str; 7] =
        ["the service's own code", "to_json", "handle", "libraries", "encode", "native code", "deflate"];

    #[test]
    fn each_form_of_a_report_has_the_services_own_code_first() {
        let experiment = Experiment::new(measured());
        let escaped = ROWS.map(|row| row.replace('\'', "&#39;"));
        let page = html::render(&experiment);
        let page_rows = if page.contains(ROWS[0]) { ROWS.map(str::to_owned) } else { escaped };
        assert_order(&page, &page_rows.each_ref().map(String::as_str));
        assert!(page.contains(WAITS), "{page}");
        let narrow = text::Style { columns: 60, colour: true };
        for text in [
            text::render(&experiment, text::Style::PLAIN),
            text::render(&experiment, narrow),
            markdown::render(&experiment),
        ] {
            assert_order(&text, &ROWS);
            assert!(text.contains(WAITS), "{text}");
        }
        let rows = csv::render(&experiment);
        assert_order(&rows, &["kind,origin,", "to_json", "python,service,", "encode", "python,library,"]);
        assert_order(&rows, &["deflate", "python,native,"]);
        let json = serde_json::to_string(&experiment).unwrap();
        assert_order(&json, &["\"waits\":[{", "\"what\":\"recv\"", "\"factors\":", "\"origin\":\"service\""]);
    }

    #[test]
    fn the_services_own_code_alone_needs_no_title() {
        for origin in [Origin::Service, Origin::Unknown] {
            let mut measured = measured();
            measured.candidates.iter_mut().for_each(|of| of.origin = origin);
            let text = text::render(&Experiment::new(measured), text::Style::PLAIN);
            assert!(ROWS.iter().all(|row| !row.contains(' ') || !text.contains(row)), "{text}");
        }
        let mut measured = measured();
        measured.candidates.iter_mut().for_each(|of| of.origin = Origin::Library);
        let text = text::render(&Experiment::new(measured), text::Style::PLAIN);
        assert_order(&text, &["libraries", "deflate"]);
    }

    #[test]
    fn many_undecided_functions_are_one_line() {
        let function = Function { calls: 1.0, sensitivity: 1.0, slack: 0.0 };
        let names: Vec<String> = (0..9).map(|number| format!("f{number}")).collect();
        let functions: Vec<_> = names.iter().map(|name| (name.as_str(), function, 50)).collect();
        let measured = Measured { slices: measured().slices, ..testing::measured(&functions) };
        let text = text::render(&Experiment::new(measured), text::Style::PLAIN);
        assert!(text.contains("f4 (") && !text.contains("f5 ("), "{text}");
        assert!(text.contains("4 more are undecided"), "{text}");
    }

    /// A record from before origins has one table.
    #[test]
    fn a_record_without_origins_and_waits_is_read() {
        let mut json = serde_json::to_value(measured()).unwrap();
        json.as_object_mut().unwrap().remove("waits");
        for candidate in json["candidates"].as_array_mut().unwrap() {
            candidate.as_object_mut().unwrap().remove("origin");
        }
        let read: Measured = serde_json::from_value(json).unwrap();
        assert!(read.candidates.iter().all(|of| of.origin == Origin::Unknown));
        let text = text::render(&Experiment::new(read), text::Style::PLAIN);
        assert_order(&text, &["deflate", "encode", "to_json", "handle"]);
    }
}
