//! Pages in a browser: that they are read at any width, light, dark and on paper, that scripts do what they
//! are for, and that names of a process do nothing. Pictures of them lie in target/screenshots.

use std::{fs, path::PathBuf};

use serde_json::json;
use speed_bump_experiment::{record::Experiment, report::html};
use speed_bump_testing::{
    browser::{Browser, Scheme},
    skip,
};

use crate::records::{HOSTILE_RECORD, LARGE};

/// Widths that people read at: a telephone, a tablet, a screen.
const WIDTHS: [u32; 3] = [360, 800, 1280];

/// A browser with a page open; `None` where there is no browser, which is told as a skip.
#[track_caller]
fn opened(experiment: &Experiment) -> Option<(Browser, tempfile::TempDir, PathBuf)> {
    if let Some(why) = Browser::obstacle() {
        skip!("{why}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.html");
    fs::write(&path, html::render(experiment)).unwrap();
    let browser = Browser::start().unwrap();
    browser.open(&path).unwrap();
    Some((browser, folder, path))
}

/// Text whose contrast to what it stands on is less than 4.5, the least that WCAG 2.2 has for text (1.4.3).
const FAINT: &str = r#"
    const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
    const luminance = (colour) => {
        const [r, g, b] = channels(colour).slice(0, 3).map((c) => {
            c /= 255;
            return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor, [, , , alpha] = channels(colour);
            if (alpha === undefined || alpha === 1) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
    let seen = 0;
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || element.closest("script, style, title")) continue;
        const style = getComputedStyle(element), inSvg = element instanceof SVGElement;
        const [a, b] = [inSvg ? style.fill : style.color, behind(element)].map(luminance);
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        seen += 1;
        if (contrast < 4.5) faint.push(texts.currentNode.textContent + " " + contrast);
    }
    return { seen, faint };
"#;

#[test]
fn it_is_read_at_any_width_light_and_dark() {
    for (name, experiment) in [("hostile", &*HOSTILE_RECORD), ("large", &*LARGE)] {
        let Some((browser, ..)) = opened(experiment) else { return };
        for width in WIDTHS {
            for scheme in [Scheme::Light, Scheme::Dark] {
                browser.show(width, 900, scheme).unwrap();
                let is = format!("{name}-{width}-{}", scheme.name());
                let needs = browser.run("return document.documentElement.scrollWidth").unwrap();
                assert!(needs.as_u64().unwrap() <= u64::from(width), "{is} is {needs} wide");
                let found = browser.run(FAINT).unwrap();
                assert!(found["seen"].as_u64().unwrap() > 50, "{is}: {found}");
                assert_eq!(found["faint"], json!([]), "{is}");
                browser.keep_picture(&format!("{is}.png")).unwrap();
            }
        }
        browser.keep_print(&format!("{name}.pdf")).unwrap();
    }
}

#[test]
fn names_of_a_process_do_nothing() {
    let Some((browser, ..)) = opened(&HOSTILE_RECORD) else { return };
    let found = browser.run(
        "return [typeof window.hostile, document.scripts.length, document.images.length,
            document.querySelectorAll('[onload], [onerror]').length, document.querySelectorAll('b').length]",
    );
    assert_eq!(found.unwrap(), json!(["undefined", 1, 0, 0, 0]));
    // They are there to be read.
    let text = browser.run("return document.body.textContent").unwrap();
    assert!(text.as_str().unwrap().contains("<script>window.hostile=1</script>"), "{text}");
    assert!(text.as_str().unwrap().contains(r"a\u{202e}gnp.exe\x1b[31m\r\nb"), "{text}");
}

#[test]
fn scripts_sort_and_filter() {
    let Some((browser, ..)) = opened(&LARGE) else { return };
    let own = "[...document.querySelector('.forest').tBodies[0].rows]
        .map((row) => +row.cells[4].querySelector('data').value)";
    let sorted = |clicks: usize| {
        for _ in 0..clicks {
            browser.run("document.querySelectorAll('.forest thead button')[4].click()").unwrap();
        }
        let values = browser.run(&format!("return {own}")).unwrap();
        values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let down = sorted(1);
    assert!(down.len() > 8 && down.is_sorted_by(|a, b| a >= b), "{down:?}");
    let up = sorted(1);
    assert!(up.is_sorted() && up != down, "{up:?}");
    let sort = browser.run("return document.querySelectorAll('.forest th')[4].getAttribute('aria-sort')");
    assert_eq!(sort.unwrap(), "ascending");
    let left = browser
        .run(
            "const filter = document.querySelector('input');
            filter.value = 'FUNCTION_901';
            filter.dispatchEvent(new Event('input'));
            return [...document.querySelector('.forest').tBodies[0].rows]
                .filter((row) => row.getClientRects().length).map((row) => row.cells[0].textContent)",
        )
        .unwrap();
    assert_eq!(left, json!(["a_package.a_module.AClass.function_901 app.py:7"]));
}

#[test]
fn what_lies_under_the_pointer_is_told() {
    let Some((browser, ..)) = opened(&HOSTILE_RECORD) else { return };
    let told = browser.run(
        "const timeline = document.querySelector('.timeline'), box = timeline.getBoundingClientRect();
        // A pointer is at a whole pixel, and a slice may take less than one.
        const times = (row) => [+row.cells[0].textContent, +row.cells[1].textContent];
        const at = (row) => Math.round(
            box.left + (times(row)[0] + times(row)[1]) / 2 / +timeline.dataset.end * box.width);
        const time = (x) => (x - box.left) / box.width * +timeline.dataset.end;
        const rows = [...document.querySelectorAll('.slices tbody tr')].slice(20);
        const row = rows.find((row) => times(row)[0] < time(at(row)) && time(at(row)) < times(row)[1]);
        const clientX = at(row);
        timeline.dispatchEvent(new PointerEvent('pointermove', { clientX }));
        return [document.querySelector('.under').textContent, row.cells[4].textContent]",
    );
    let told = told.unwrap();
    let (text, rate) = (told[0].as_str().unwrap(), told[1].as_str().unwrap());
    assert!(text.contains(&format!("{rate} units/s")), "{told}");
}

/// Screen readers are told of tables, their headings and their rows, also where the page is narrow and they
/// are drawn as paragraphs; and a keyboard reaches all that can be opened or pressed.
#[test]
fn it_is_read_without_eyes_or_a_mouse() {
    let Some((browser, ..)) = opened(&HOSTILE_RECORD) else { return };
    let looked_at = HOSTILE_RECORD.findings.factors.iter().filter(|of| of.calls_per_unit > 0.0).count();
    for width in WIDTHS {
        browser.show(width, 900, Scheme::Light).unwrap();
        let tree = browser.devtools("Accessibility.getFullAXTree", &json!({})).unwrap();
        let nodes = tree["nodes"].as_array().unwrap();
        let count = |role: &str| {
            nodes.iter().filter(|node| node["role"]["value"] == role && node["ignored"] != true).count()
        };
        assert!(count("table") >= 1 && count("row") > looked_at / 2, "{width}: {} rows", count("row"));
        assert!(count("columnheader") >= 6 && count("rowheader") >= 3, "{width}");
        assert!(count("heading") >= 5, "{width}");
    }
    // What is hidden takes no focus.
    let reached = browser.run(
        "const all = [...document.querySelectorAll('main button, main summary, main input')];
        const reached = all.filter((of) => { of.focus(); return document.activeElement === of; });
        return [all.length, reached.length]",
    );
    let reached = reached.unwrap();
    assert!(reached[0].as_u64() > Some(8) && reached[0] == reached[1], "{reached}");
}

/// Without scripts everything is there but what they add.
#[test]
fn it_is_read_without_scripts() {
    let Some((browser, _folder, path)) = opened(&HOSTILE_RECORD) else { return };
    let rows = "return document.querySelector('.forest').tBodies[0].rows.length";
    let with = browser.run(rows).unwrap();
    browser.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": true })).unwrap();
    browser.open(&path).unwrap();
    assert_eq!(browser.run(rows).unwrap(), with);
    let buttons = browser.run("return document.querySelectorAll('button').length").unwrap();
    assert_eq!(buttons, 0);
    browser.keep_picture("without-scripts.png").unwrap();
}
