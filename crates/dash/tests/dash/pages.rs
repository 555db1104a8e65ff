//! The pages and their files.

use std::path::PathBuf;

use millstream_dash::Options;
use millstream_dash::options::PublicUrl;

use crate::support::open;

#[tokio::test]
async fn every_page_path_returns_the_index() {
    let dash = open(Options::default()).await;
    for path in ["/", "/stream?s=a.b", "/group/reset", "/a", "/unknown"] {
        let reply = dash.get(path).await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("text/html; charset=utf-8")),
            "{path}"
        );
        assert!(!reply.text().contains("__ROOT__") && !reply.text().contains("__ASSETS__"));
    }
    for path in ["/favicon.ico", "/x.php", "/api/v1/none", "/api/", "/a/0/index.html", "/a/0/x.js"] {
        assert_eq!(dash.get(path).await.code(), "not_found", "{path}");
    }
    let tag = dash.get("/").await.header("etag").unwrap().to_owned();
    assert_eq!(dash.get_with("/", &format!("If-None-Match: {tag}\r\n")).await.status, 304);
}

#[tokio::test]
async fn files_can_come_from_a_folder_in_debug_builds() {
    let mut options = Options::default();
    options.assets = Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")));
    let dash = open(options).await;
    assert_eq!(dash.get("/").await.status, 200);
    for path in ["/a/dev/../Cargo.toml", "/a/dev/%2e%2e/Cargo.toml", "/a/dev/none.js", "/a/dev//etc/passwd"] {
        assert_eq!(dash.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_proxy_may_keep_or_remove_the_path_of_the_public_url() {
    let mut options = Options::default();
    options.public_url = Some(PublicUrl::parse("http://localhost/tools/mill").unwrap());
    let dash = open(options).await;
    for path in ["/tools/mill", "/tools/mill/", "/tools/mill/stream?s=x", "/"] {
        assert_eq!(dash.get(path).await.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
    }
    for path in ["/tools/mill/api/v1/status", "/api/v1/status"] {
        assert_eq!(dash.get(path).await.header("content-type"), Some("application/json"), "{path}");
    }
}
