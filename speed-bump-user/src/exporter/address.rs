//! The address that numbers are served at, as people write it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// `9400` and `:9400` are of the loopback address; `0.0.0.0:9400` and `[::]:9400` of all.
///
/// # Errors
/// It is no address with a port.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    address.parse().map_err(|_| format!("`{text}` is no address with a port: write it as 127.0.0.1:9400"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_address_it_is_the_loopback_one() {
        let of = |text: &str| parse(text).map(|address| address.to_string());
        for text in ["9400", ":9400", "127.0.0.1:9400", "localhost:9400"] {
            assert_eq!(of(text), Ok("127.0.0.1:9400".to_owned()), "{text}");
        }
        assert_eq!(of("[::]:1"), Ok("[::]:1".to_owned()));
        for text in ["", "host:1", "1.2.3.4", ":99999", "localhost:"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
