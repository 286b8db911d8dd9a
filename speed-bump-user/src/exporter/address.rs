//! Parses the address of `--prometheus`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Parses an address. `9400` and `:9400` mean the loopback address; `0.0.0.0:9400` and `[::]:9400` all
/// addresses.
///
/// # Errors
/// The text is not an address with a port.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    address
        .parse()
        .map_err(|_| format!("`{text}` is not an address with a port: write it like 127.0.0.1:9400"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_means_the_loopback_address() {
        let parsed = |text: &str| parse(text).map(|address| address.to_string());
        for text in ["9400", ":9400", "127.0.0.1:9400", "localhost:9400"] {
            assert_eq!(parsed(text), Ok("127.0.0.1:9400".to_owned()), "{text}");
        }
        assert_eq!(parsed("[::]:1"), Ok("[::]:1".to_owned()));
        for text in ["", "host:1", "1.2.3.4", ":99999", "localhost:"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
