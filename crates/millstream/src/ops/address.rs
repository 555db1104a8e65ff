//! Addresses to listen on, as the command line gives them.

/// Checks that the text has the form `HOST:PORT`. Does not check whether the address can be bound.
pub(crate) fn parse_address(text: &str) -> Result<String, String> {
    let is_address =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if is_address {
        Ok(text.to_owned())
    } else {
        Err("expected HOST:PORT, for example 127.0.0.1:9091".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_host_and_a_port() {
        for valid in ["127.0.0.1:0", "[::1]:9091", "localhost:80"] {
            assert_eq!(parse_address(valid), Ok(valid.to_owned()));
        }
        for invalid in ["", "9091", ":9091", "localhost", "localhost:", "localhost:99999"] {
            assert!(parse_address(invalid).is_err(), "{invalid}");
        }
    }
}
