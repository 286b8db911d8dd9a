//! What the service waits for, in a line.

use super::words::name_and_place_of;
use crate::{printable::printable_name, record::Wait};

/// The most waits that the line has.
const MAX_LISTED: usize = 3;
/// Waits with a smaller share are not listed.
const MIN_SHARE: f64 = 0.01;

/// `the service waits: 71 % of the time in sleep (do_GET (app.py:12)), 5 % in recv (…)`; `None` without
/// waits.
pub(super) fn line(waits: &[Wait]) -> Option<String> {
    let mut listed = waits.iter().filter(|wait| wait.share >= MIN_SHARE);
    let first: Vec<&Wait> = listed.by_ref().take(MAX_LISTED).collect();
    let one = |(place, wait): (usize, &&Wait)| {
        let of_time = if place == 0 { " of the time" } else { "" };
        let function = name_and_place_of(&wait.name, Some(&wait.file), wait.line);
        let inside = wait.inside.as_ref().map(|name| format!(", inside {}", printable_name(name)));
        format!(
            "{:.0} %{of_time} in {} ({function}{})",
            wait.share * 100.0,
            wait.what,
            inside.unwrap_or_default()
        )
    };
    let mut parts: Vec<String> = first.iter().enumerate().map(one).collect();
    let rest: f64 = listed.map(|wait| wait.share).sum();
    if rest >= MIN_SHARE {
        parts.push(format!("{:.0} % elsewhere", rest * 100.0));
    }
    (!parts.is_empty()).then(|| format!("the service waits: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waits_are_told() {
        let wait = |name: &str, inside: Option<&str>, what: &str, share| Wait {
            name: name.to_owned(),
            file: "/srv/app.py".into(),
            line: Some(3),
            inside: inside.map(str::to_owned),
            what: what.to_owned(),
            share,
        };
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[wait("f", None, "recv", 0.004)]), None);
        let waits = [
            wait("get", Some("SocketIO.readinto"), "recv", 0.5),
            wait("serve\x1b", None, "epoll", 0.2),
            wait("a", None, "sleep", 0.1),
            wait("b", None, "a lock", 0.05),
            wait("c", None, "a lock", 0.02),
        ];
        assert_eq!(
            line(&waits).as_deref(),
            Some(
                "the service waits: 50 % of the time in recv (get (app.py:3), inside SocketIO.readinto), \
                 20 % in epoll (serve\\x1b (app.py:3)), 10 % in sleep (a (app.py:3)), 7 % elsewhere"
            )
        );
    }
}
