//! Which requests are refused before any handler sees them.

use std::sync::Arc;

use millstream_dash::options::{
    ADDRESS_FAILURES_MAX, BODY_BYTES_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, LOGIN_FAILURES_MAX, PublicUrl,
};
use millstream_dash::{OneStore, Options};
use millstream_worker::observe::{Sampler, SamplerOptions};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{Dash, memory, open, start};

const STATUS: &str = "/api/v1/status";
const SESSION: &str = "/api/v1/session";

#[tokio::test]
async fn only_addresses_and_allowed_names_are_hosts() {
    let mut options = Options::default();
    options.allowed_hosts = vec!["ops.internal".to_owned()];
    options.public_url = Some(PublicUrl::parse("https://dash.example/").unwrap());
    let dash = open(options).await;
    for host in [
        "127.0.0.1:1",
        "10.0.0.1",
        "[::1]:8002",
        "localhost",
        "LOCALHOST:8002",
        "ops.internal",
        "dash.example",
    ] {
        for path in [STATUS, "/", "/livez"] {
            let reply = dash.send("GET", path, &format!("Host: {host}\r\n"), "").await;
            assert_eq!(reply.status, 200, "{host} {path}");
        }
    }
    let evil = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8002",
        "127.0.0.1:x",
        "",
        "a b",
        "localhost:1:2",
        "[::1].evil",
    ];
    for host in evil {
        for path in [STATUS, "/", "/livez", "/metrics", "/a/x/y.js", "/none"] {
            let reply = dash.send("GET", path, &format!("Host: {host}\r\n"), "").await;
            assert_eq!(reply.status, 421, "{host} {path}");
        }
    }
    assert_eq!(dash.send("GET", STATUS, "", "").await.status, 421);
    assert_eq!(dash.send("GET", STATUS, "Host: localhost\r\nHost: evil.example\r\n", "").await.status, 421);
}

/// Whether a request that logs in is admitted, by the headers that it has.
#[tokio::test]
async fn foreign_pages_cannot_change_anything() {
    let dash = open(Options::default()).await;
    let ours = format!("http://{}", dash.address);
    let other_port = "http://127.0.0.1:1".to_owned();
    for method in ["POST", "DELETE"] {
        for (origin, origin_is_ours) in [
            ("", true),
            (&*ours, true),
            (&*other_port, false),
            ("http://evil.example", false),
            ("null", false),
            (&*format!("{ours}.evil.example"), false),
        ] {
            for (site, site_is_ours) in [
                ("", true),
                ("same-origin", true),
                ("same-site", false),
                ("cross-site", false),
                ("none", false),
            ] {
                for ours_header in [true, false] {
                    for content_type in
                        ["application/json", "application/json; charset=utf-8", "text/plain", ""]
                    {
                        let mut headers = format!("Host: {}\r\n", dash.address);
                        let mut add = |name: &str, value: &str| {
                            if !value.is_empty() {
                                headers += &format!("{name}: {value}\r\n");
                            }
                        };
                        add("Origin", origin);
                        add("Sec-Fetch-Site", site);
                        add("X-Millstream", if ours_header { "1" } else { "" });
                        add("Content-Type", content_type);
                        let is_json = method == "DELETE" || content_type.starts_with("application/json");
                        let admitted = origin_is_ours && site_is_ours && ours_header && is_json;
                        let reply = dash.send(method, SESSION, &headers, r#"{"password":""}"#).await;
                        assert_eq!(reply.status != 403, admitted, "{method} {headers} {reply:?}");
                        assert!(admitted || reply.code() == "foreign_page");
                        assert_eq!(reply.header("access-control-allow-origin"), None);
                    }
                }
            }
        }
    }
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "FOO"] {
        let reply = dash
            .send(method, SESSION, &format!("Host: {}\r\nOrigin: http://evil.example\r\n", dash.address), "")
            .await;
        assert_eq!(reply.status, 403, "{method}");
        let reply = dash.send(method, SESSION, &dash.action_headers(), "").await;
        assert_eq!(reply.status, 405, "{method}");
    }
}

#[tokio::test]
async fn foreign_pages_cannot_load_the_api() {
    let dash = open(Options::default()).await;
    for (site, status) in
        [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403), ("x", 403)]
    {
        let reply = dash.get_with(STATUS, &format!("Sec-Fetch-Site: {site}\r\n")).await;
        assert_eq!(reply.status, status, "{site}");
        let metrics = dash.get_with("/metrics", &format!("Sec-Fetch-Site: {site}\r\n")).await;
        assert_eq!(metrics.status, status, "{site}");
    }
    // A link on another page may lead to the dashboard.
    assert_eq!(dash.get_with("/", "Sec-Fetch-Site: cross-site\r\n").await.status, 200);
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_browsers_strict() {
    let dash = open(Options::default()).await;
    let foreign = dash.send("GET", "/", "Host: evil.example\r\n", "").await;
    for reply in [
        foreign,
        dash.get("/").await,
        dash.get(STATUS).await,
        dash.get("/api/v1/none").await,
        dash.get("/a/x/y").await,
    ] {
        let policy = reply.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("cross-origin-opener-policy"), Some("same-origin"));
        assert_eq!(reply.header("cross-origin-resource-policy"), Some("same-origin"));
    }
    assert_eq!(dash.get(STATUS).await.header("cache-control"), Some("no-store"));
    assert_eq!(dash.get("/").await.header("cache-control"), Some("no-cache"));
}

async fn with_password() -> Dash {
    let store = memory().await;
    let access = OneStore::with_password(Arc::clone(&store), "open sesame");
    start(Options::default(), Arc::new(access), store).await
}

#[tokio::test]
async fn a_password_opens_a_session() {
    let dash = with_password().await;
    let before = dash.get(STATUS).await.json();
    assert_eq!((&before["login"], &before["logged_in"]), (&json!("password"), &json!(false)));
    assert!(before.get("place").is_none());
    for path in ["/api/v1/overview", "/metrics", "/api/v1/none"] {
        assert_eq!(dash.get(path).await.status, 401, "{path}");
    }
    assert_eq!(dash.post(SESSION, &json!({"password": "open"})).await.code(), "wrong_password");
    let reply = dash.post(SESSION, &json!({"password": "open sesame"})).await;
    assert_eq!(reply.status, 200);
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.starts_with(&format!("millstream_{}=", dash.address.port())), "{cookie}");
    assert!(cookie.contains("; HttpOnly; SameSite=Strict;"), "{cookie}");
    let cookie = format!("Cookie: a=b; {}\r\n", cookie.split(';').next().unwrap());
    let status = dash.get_with(STATUS, &cookie).await.json();
    assert_eq!((&status["logged_in"], &status["place"]), (&json!(true), &json!("memory")));
    assert!(!status.to_string().contains("sesame"));
    let headers = dash.action_headers() + &cookie;
    assert_eq!(dash.send("DELETE", SESSION, &headers, "").await.status, 204);
    assert_eq!(dash.get_with(STATUS, &cookie).await.json()["logged_in"], json!(false));
}

#[tokio::test]
async fn scripts_send_the_password_with_each_request() {
    let dash = with_password().await;
    for _ in 0..2 {
        let status = dash.get_with(STATUS, "Authorization: Bearer open sesame\r\n").await.json();
        assert_eq!(status["logged_in"], json!(true));
    }
    assert_eq!(
        dash.get_with(STATUS, "Authorization: Basic eDp5\r\n").await.json()["logged_in"],
        json!(false)
    );
    assert_eq!(dash.get_with(STATUS, "Authorization: Bearer open\r\n").await.status, 401);
}

#[tokio::test]
async fn wrong_passwords_of_others_keep_nobody_out() {
    let dash = Arc::new(with_password().await);
    for number in 0..LOGIN_FAILURES_MAX {
        // The limit applies to pages and scripts together.
        let reply = match number % 2 {
            0 => dash.post(SESSION, &json!({"password": "x"})).await,
            _ => dash.get_with("/metrics", "Authorization: Bearer x\r\n").await,
        };
        assert_eq!(reply.status, 401);
    }
    let reply = dash.post(SESSION, &json!({"password": "y"})).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("60")));
    // The right password takes a second, and from then on it is known.
    let of_script = Arc::clone(&dash);
    let metrics = || of_script.get_with("/metrics", "Authorization: Bearer open sesame\r\n");
    assert_eq!(metrics().await.status, 200);
    let mut attempts = JoinSet::new();
    for _ in 0..ADDRESS_FAILURES_MAX - LOGIN_FAILURES_MAX {
        let dash = Arc::clone(&dash);
        attempts.spawn(async move { dash.post(SESSION, &json!({"password": "z"})).await.status });
    }
    assert!(attempts.join_all().await.iter().all(|status| *status == 429));
    assert_eq!(metrics().await.status, 200);
    assert_eq!(dash.post(SESSION, &json!({"password": "open sesame"})).await.status, 200);
}

#[tokio::test]
async fn read_only_refuses_every_change_but_a_login() {
    let mut options = Options::default();
    options.read_only = true;
    let dash = open(options).await;
    for (method, path) in [
        ("POST", "/api/v1/entries"),
        ("POST", "/api/v1/none"),
        ("DELETE", "/api/v1/job?id=1"),
        ("PUT", "/"),
        ("POST", "/"),
    ] {
        let reply = dash.send(method, path, &dash.action_headers(), "{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "read_only"), "{method} {path}");
    }
    assert_eq!(dash.post(SESSION, &json!({"password": ""})).await.status, 200);
}

#[tokio::test]
async fn large_requests_are_refused_at_their_limits() {
    let dash = open(Options::default()).await;
    let body = |bytes: usize| format!("{{\"password\":\"{}\"}}", "x".repeat(bytes - 15));
    let post = async |body: String| dash.send("POST", SESSION, &dash.action_headers(), &body).await.status;
    assert_eq!(post(body(BODY_BYTES_MAX)).await, 200);
    assert_eq!(post(body(BODY_BYTES_MAX + 1)).await, 413);
    let long = format!("X: {}\r\n", "x".repeat(HEAD_BYTES_MAX - 200));
    assert_eq!(dash.get_with(STATUS, &long).await.status, 200);
    let long = format!("X: {}\r\n", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(dash.get_with(STATUS, &long).await.status, 431);
}

#[tokio::test]
async fn the_number_of_connections_is_limited() {
    let dash = open(Options::default()).await;
    // The dashboard accepts connections in their order, so these take their places before the next one.
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS_MAX - 1 {
        open.push(TcpStream::connect(dash.address).await.unwrap());
    }
    assert_eq!(dash.get("/livez").await.status, 200);
    open.push(TcpStream::connect(dash.address).await.unwrap());
    // The one that has sent nothing for longest gives way.
    assert_eq!(dash.get("/livez").await.status, 200);
    assert_eq!(open[0].read(&mut [0]).await.unwrap_or(0), 0);
    let busy = open.pop().unwrap().try_read(&mut [0]);
    assert_eq!(busy.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the last one is open");
}

#[tokio::test]
async fn without_a_password_only_loopback_addresses_are_served() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let store = memory().await;
    let access = Arc::new(OneStore::open(Arc::clone(&store)));
    let sampler = Sampler::start(store, SamplerOptions::default());
    let stopped = tokio_util::sync::CancellationToken::new();
    let error =
        millstream_dash::serve(listener, Options::default(), access, sampler, stopped).await.unwrap_err();
    assert!(error.to_string().contains("without a password"), "{error}");
}
