//! The files of the pages: embedded, or from a folder in debug builds. Knows their names and types, not their contents.
//!
//! `index.html` is the answer to the path of every page. Two words in it are replaced: `__ROOT__` by the relative path
//! of the root, such as `./` or `../`, and `__ASSETS__` by the relative path of the other files, such as `./a/HASH/`.
//! So pages work below any path of a proxy. The hash changes with any file, so browsers keep the files forever.

use std::path::PathBuf;

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// Part of the paths of the embedded files; changes with any of them.
const HASH: &str = env!("MILLSTREAM_DASH_ASSETS");
const INDEX: &str = "index.html";
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

struct Asset {
    name: &'static str,
    bytes: &'static [u8],
    gzip: Option<&'static [u8]>,
}

static EMBEDDED: &[Asset] = &include!(concat!(env!("OUT_DIR"), "/assets.rs"));

#[derive(Debug)]
pub(crate) struct Assets {
    folder: Option<PathBuf>,
}

impl Assets {
    /// Serves the embedded files, or those of a folder in debug builds.
    pub(crate) fn new(folder: Option<PathBuf>) -> Assets {
        Assets { folder: folder.filter(|_| cfg!(debug_assertions)) }
    }

    pub(crate) fn index(&self, path: &str, request: &HeaderMap) -> Response {
        let depth = path.trim_start_matches('/').matches('/').count();
        let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
        let Some(html) = self.read(INDEX) else { return missing(INDEX).into_response() };
        let html = String::from_utf8_lossy(&html)
            .replace("__ASSETS__", &format!("{root}a/{}/", self.hash()))
            .replace("__ROOT__", &root);
        let tag = format!("\"{}-{depth}\"", self.hash());
        if self.folder.is_none() && is_unchanged(request, &tag) {
            return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
        }
        let headers = [
            (header::CONTENT_TYPE, content_type(INDEX).to_owned()),
            (header::CACHE_CONTROL, "no-cache".to_owned()),
            (header::ETAG, tag),
        ];
        (headers, html).into_response()
    }

    pub(crate) fn file(&self, hash: &str, name: &str, request: &HeaderMap) -> Response {
        if hash != self.hash() || name == INDEX {
            return missing(name).into_response();
        }
        if self.folder.is_some() {
            let headers = [(header::CONTENT_TYPE, content_type(name)), (header::CACHE_CONTROL, "no-store")];
            return match self.read(name) {
                Some(bytes) => (headers, bytes).into_response(),
                None => missing(name).into_response(),
            };
        }
        let Some(asset) = EMBEDDED.iter().find(|asset| asset.name == name) else {
            return missing(name).into_response();
        };
        let tag = format!("\"{HASH}\"");
        let headers: [(HeaderName, &str); 4] = [
            (header::CONTENT_TYPE, content_type(name)),
            (header::CACHE_CONTROL, IMMUTABLE),
            (header::VARY, "Accept-Encoding"),
            (header::ETAG, &tag),
        ];
        if is_unchanged(request, &tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        match asset.gzip.filter(|_| accepts_gzip(request)) {
            Some(gzip) => (headers, [(header::CONTENT_ENCODING, "gzip")], gzip).into_response(),
            None => (headers, asset.bytes).into_response(),
        }
    }

    fn hash(&self) -> &'static str {
        if self.folder.is_some() { "dev" } else { HASH }
    }

    /// Reads a file. `None` if it does not exist.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        match &self.folder {
            None => EMBEDDED.iter().find(|asset| asset.name == name).map(|asset| asset.bytes.to_vec()),
            Some(folder) => {
                let is_inside = name.split('/').all(|part| !part.is_empty() && !part.starts_with('.'));
                if is_inside { std::fs::read(folder.join(name)).ok() } else { None }
            }
        }
    }
}

pub(crate) fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    accepted.split(',').any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = quality.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

fn is_unchanged(request: &HeaderMap, tag: &str) -> bool {
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or("");
    known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag)
}

fn missing(name: &str) -> Problem {
    Problem::not_found(format!("there is no file {name}")).way_out("reload the page")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "webmanifest" => "application/json",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_unless_its_quality_is_zero() {
        let accepts = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            accepts_gzip(&headers)
        };
        assert!(accepts("br, gzip") && accepts("GZIP;q=0.5"));
        assert!(
            !accepts("br")
                && !accepts("gzip;q=0")
                && !accepts("gzip;q=0.0")
                && !accepts_gzip(&HeaderMap::new())
        );
    }

    #[test]
    fn files_outside_the_folder_are_not_read() {
        let assets = Assets::new(Some(concat!(env!("CARGO_MANIFEST_DIR"), "/assets").into()));
        assert!(assets.read(INDEX).is_some());
        for name in ["../Cargo.toml", "/etc/passwd", "./index.html", "", ".git"] {
            assert!(assets.read(name).is_none(), "{name}");
        }
    }
}
