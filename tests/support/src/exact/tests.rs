use super::*;

#[test]
fn a_delay_is_exact_from_itself_to_a_tenth_more() {
    exact("at least", 1_000, 1_000);
    exact("at most", 1_000, 1_100);
}

#[test]
#[should_panic(expected = "a short one: the least of many calls with a delay of 1000 ns took 999 ns")]
fn less_is_not_exact() {
    exact("a short one", 1_000, 999);
}

#[test]
#[should_panic(expected = "took 1101 ns, not 1000 to 1100 ns")]
fn a_tenth_and_more_is_not_exact() {
    exact("a long one", 1_000, 1_101);
}

fn target(requested: u64, delivered: u64) -> Value {
    serde_json::json!({ "delivered_ns": delivered, "functions": [{ "requested_ns": requested }] })
}

#[test]
fn slack_is_allowed_on_either_side() {
    exact_within("a little less", 1_000, 10, 990);
    exact_within("a little more", 1_000, 10, 1_110);
}

#[test]
#[should_panic(expected = "took 1111 ns, not 990 to 1110 ns")]
fn slack_has_an_end() {
    exact_within("a long one", 1_000, 10, 1_111);
}

#[test]
fn what_was_delivered_fits_into_what_the_calls_took() {
    delivered(&target(500, 500), 500);
    delivered(&target(500, 660), 600);
}

#[test]
#[should_panic(expected = "Some(499) ns delivered")]
fn less_than_was_requested_is_not_delivered() {
    delivered(&target(500, 499), 600);
}

#[test]
#[should_panic(expected = "in calls that took 600 ns")]
fn more_than_the_calls_took_is_not_delivered() {
    delivered(&target(500, 661), 600);
}
