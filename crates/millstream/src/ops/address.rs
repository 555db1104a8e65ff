//! Where to listen, as a command line says it.

/// An address as it may be bound to; whether it is free is seen later.
pub(crate) fn parse_address(text: &str) -> Result<String, String> {
    let is_one =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if is_one { Ok(text.to_owned()) } else { Err("write it as 127.0.0.1:9091".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for right in ["127.0.0.1:0", "[::1]:9091", "localhost:80"] {
            assert_eq!(parse_address(right), Ok(right.to_owned()));
        }
        for wrong in ["", "9091", ":9091", "localhost", "localhost:", "localhost:99999"] {
            assert!(parse_address(wrong).is_err(), "{wrong}");
        }
    }
}
