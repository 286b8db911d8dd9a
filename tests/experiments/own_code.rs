//! Without any flag, a sweep asks about the service's own code, with what it calls, and tells waits apart.

#![allow(clippy::unwrap_used)]

use serde_json::Value;

use crate::planted::{Found, planted_large};

/// The first row, and its origin.
fn first(found: &Found) -> (&str, &str) {
    let factor = &found.json["factors"][0];
    let text = |field: &str| factor[field].as_str().unwrap_or_default();
    (text("name"), text("origin"))
}

fn has_row_in(found: &Found, file: &str) -> bool {
    let factors = found.json["factors"].as_array().unwrap();
    factors.iter().any(|factor| factor["file"].as_str().is_some_and(|of| of.ends_with(file)))
}

/// The server waits for its client, and `do_GET` for a device: neither is work.
#[test]
fn the_first_row_of_a_server_is_its_own_code_and_no_wait_is_ranked() {
    let Some(service) = planted_large("http") else { return };
    let found = service.found(&[], &[], &["--for", "60s"]);
    let (name, origin) = first(&found);
    assert!(name == "render" || name.ends_with(".do_GET"), "{name}\n{}", found.printed);
    assert_eq!(origin, "service", "{}", found.printed);
    let factors = found.json["factors"].as_array().unwrap();
    assert!(factors.iter().all(|factor| factor["name"] != "SocketIO.readinto"), "{}", found.printed);
    assert!(found.printed.lines().any(|line| line.starts_with("the service waits: ")), "{}", found.printed);
    let slept = |wait: &Value| {
        let is_there = wait["name"].as_str().is_some_and(|name| name.ends_with(".do_GET"));
        is_there && wait["what"] == "sleep"
    };
    // The longest comes first.
    assert!(slept(&found.json["waits"][0]), "{}", found.printed);
    // A unit is 6 ms of a device and 0.4 ms of `render`: what `do_GET` is worth is a small part.
    let worth = |factor: &Value| factor["worth"].as_f64().unwrap_or(0.0);
    let all: f64 = factors.iter().map(worth).sum();
    assert!(all < 0.5, "{all}\n{}", found.printed);
}

/// Nearly all of a request is the standard library's encoder, which `to_json` calls.
#[test]
fn time_in_a_library_belongs_to_the_function_of_the_service_that_calls_it() {
    let Some(service) = planted_large("encoded") else { return };
    let found = service.decided_of(&[], "40s", &[], &[("to_json", "matters")]);
    assert_eq!(first(&found).1, "service", "{}", found.printed);
    assert!(!has_row_in(&found, "json/encoder.py"), "{}", found.printed);
    let own = found.factor("to_json")["own_ns_per_unit"].as_f64().unwrap();
    let unit = found.json["time_per_unit_ns"].as_f64().unwrap();
    assert!(own > 0.3 * unit, "{own} of {unit}\n{}", found.printed);
}

/// The loop has no function for a step: calls of one of its functions are the units.
#[test]
fn the_function_whose_calls_are_the_units_is_tried_as_others_are() {
    let Some(service) = planted_large("batch") else { return };
    let found = service.decided_of(&[], "30s", &[], &[("crunch_rows", "matters"), ("prepare", "matters")]);
    let unit = found.json["unit"]["name"].as_str().unwrap();
    assert!(unit.starts_with("call of crunch_rows") || unit.starts_with("call of prepare"), "{unit}");
    assert_eq!(first(&found).0, "crunch_rows", "{}", found.printed);
    for name in ["crunch_rows", "prepare"] {
        found.assert_sensitivity(name, 1.0);
    }
    // It waits for nothing, so that nobody asks it for its work.
    assert_eq!(found.json["rules"]["closed_loop"], true, "{}", found.printed);
}

/// A unit is a fifth of a second: a delay that shows is longer than 10 ms.
#[test]
fn functions_of_long_units_are_decided() {
    let Some(service) = planted_large("decoder") else { return };
    let found = service.decided_of(&[], "60s", &[], &[("forward", "matters"), ("sample", "matters")]);
    // Of `forward`, if the machine is quiet enough to see that its calls come evenly.
    let unit = [&found.json["unit"]["name"], &found.json["inner_unit"]["inside"]];
    let is_generate = |name: &&Value| name.as_str().is_some_and(|name| name.starts_with("call of generate"));
    assert!(unit.iter().any(is_generate), "{}", found.printed);
    for name in ["forward", "sample"] {
        found.assert_sensitivity(name, 1.0);
    }
}

/// A unit takes two seconds or more: forty seconds have a handful of them.
#[test]
fn progress_inside_of_long_units_is_counted() {
    let Some(service) = planted_large("decoding") else { return };
    let unit = ["--progress", "*/planted.py:generate"];
    let found = service.decided_of(&[], "40s", &unit, &[("forward", "matters")]);
    found.assert_sensitivity("forward", 1.0);
    let inner = &found.json["inner_unit"];
    assert!(inner["inside"].as_str().unwrap().starts_with("call of generate"), "{}", found.printed);
    let experiment = |field| inner["experiment"][field].as_f64().unwrap();
    let steps = experiment("steps") / experiment("units");
    assert!((steps - 200.0).abs() < 20.0, "{steps}\n{}", found.printed);
}
