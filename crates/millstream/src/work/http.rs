//! Messages posted to an HTTP endpoint, whose answer decides:
//!
//! | answer | what becomes of the message |
//! |---|---|
//! | 2xx | acknowledged |
//! | 408, 425, 429 | tried again |
//! | other 4xx | rejected: to the dead letters at once |
//! | anything else, no answer, took too long | tried again |
//!
//! `Retry-After` of an answer that asks for another try is honoured, in seconds or as a date.
//!
//! hyper does HTTP, because it is what nearly every Rust client stands on and brings no second runtime; rustls does TLS,
//! as it does for the store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use millstream_worker::{Failure, Message, Outcome, Reason};
use tokio::time::timeout;

use super::exec::{retry, too_late};
use super::payload::payload;
use super::retry_after;
use crate::ops::value::{clipped, text};

/// How long a connection may take to come about.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next message. Most servers close theirs after a minute or more.
const IDLE_TIME: Duration = Duration::from_secs(55);
/// How much of an answer is read: its beginning is told, and reading to the end lets the connection be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How much of an answer is told in the error.
const QUOTED_CHARS: usize = 200;

/// An endpoint that messages are posted to.
pub(super) struct Endpoint {
    url: Uri,
    headers: HeaderMap,
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Endpoint {
    /// The endpoint at a URL, with further headers as `Name: value`. An error says what is wrong with either.
    pub(super) fn new(url: &str, headers: &[String], timeout: Duration) -> Result<Endpoint, String> {
        let parsed: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let secure = match (parsed.scheme_str(), parsed.authority()) {
            (_, Some(authority)) if authority.as_str().contains('@') => {
                return Err("a URL with a password is not sent: give --header 'Authorization: …'".to_owned());
            }
            (Some("http"), Some(_)) => false,
            (Some("https"), Some(_)) => true,
            _ => return Err(format!("{url:?} is no URL of an endpoint; write it as http://host:port/path")),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .build(connector(secure)?);
        let headers = headers.iter().map(|header| parse_header(header)).collect::<Result<_, _>>()?;
        Ok(Endpoint { url: parsed, headers, timeout, client })
    }

    /// Handles one message. Dropped when the message is no longer ours, it closes the connection.
    pub(super) async fn run(&self, message: &Message) -> Outcome {
        match timeout(self.timeout, self.post(message)).await {
            Ok(outcome) => outcome,
            Err(_) => too_late(self.timeout, None),
        }
    }

    async fn post(&self, message: &Message) -> Outcome {
        match self.client.request(self.request(message)).await {
            Ok(response) => {
                let after = after(&response);
                let status = response.status();
                let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
                // Without its text an answer is still an answer.
                let text = body.map(|body| body.to_bytes()).unwrap_or_default();
                judge(status, after, &text)
            }
            Err(error) => retry(told_with_causes(&error), "http", Reason::Failed),
        }
    }

    fn request(&self, message: &Message) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(payload(message).to_string()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
            .insert(USER_AGENT, HeaderValue::from_static(concat!("millstream/", env!("CARGO_PKG_VERSION"))));
        let mut say = |name: &'static str, value: &[u8]| {
            // A name that no header can hold is in the body.
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        say("x-millstream-id", message.id.to_string().as_bytes());
        say("x-millstream-stream", message.stream.as_bytes());
        say("x-millstream-group", message.group.as_bytes());
        say("x-millstream-attempt", message.attempt.to_string().as_bytes());
        if let Some(trace) = message.field("traceparent") {
            say("traceparent", trace);
        }
        headers.extend(self.headers.clone());
        request
    }
}

/// What opens connections. Certificates of the system are read only where they are needed.
fn connector(secure: bool) -> Result<HttpsConnector<HttpConnector>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot speak TLS: {error}"))?;
    let config = if secure {
        config
            .with_native_roots()
            .map_err(|error| format!("cannot read the certificates of this system: {error}"))?
    } else {
        config.with_root_certificates(rustls::RootCertStore::empty())
    };
    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    plain.set_connect_timeout(Some(CONNECT_TIME));
    plain.set_nodelay(true);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(plain))
}

fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("{header:?} is no header; write it as 'Name: value'");
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    Ok((name, value.trim().parse().map_err(|_| wrong())?))
}

/// How long the answer asks to wait.
fn after<B>(response: &Response<B>) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    retry_after::parse(value, SystemTime::now()).map(|after| after.min(super::AFTER_MAX))
}

fn judge(status: StatusCode, after: Option<Duration>, body: &[u8]) -> Outcome {
    if status.is_success() {
        return Outcome::Ack;
    }
    let first_line = body.trim_ascii().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let said = match clipped(&text(first_line), QUOTED_CHARS) {
        nothing if nothing.is_empty() => nothing,
        line => format!(": {line}"),
    };
    let failure = |reason| Failure {
        error: format!("{status}{said}"),
        error_type: format!("http {}", status.as_u16()),
        reason,
    };
    let in_time = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    if status.is_client_error() && !in_time.contains(&status) {
        return Outcome::Reject(failure(Reason::Rejected));
    }
    Outcome::Retry { after, failure: Some(failure(Reason::Failed)) }
}

/// An error and its causes: the reason why a connection failed is at the end.
fn told_with_causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        told = format!("{told}: {next}");
        cause = next.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::payload::tests::sample;
    use super::*;

    #[test]
    fn the_status_decides() {
        let judged = |code: u16| {
            judge(StatusCode::from_u16(code).unwrap(), Some(Duration::from_secs(3)), b" why\nmore")
        };
        for done in [200, 201, 202, 204, 299] {
            assert_eq!(judged(done), Outcome::Ack);
        }
        for refused in [400, 401, 404, 409, 410, 422] {
            let Outcome::Reject(failure) = judged(refused) else { panic!("{refused}") };
            assert_eq!(failure.error_type, format!("http {refused}"));
            assert!(failure.error.ends_with(": why"), "{}", failure.error);
        }
        for again in [301, 304, 408, 425, 429, 500, 502, 503, 504] {
            let Outcome::Retry { after, failure } = judged(again) else { panic!("{again}") };
            assert_eq!((after, failure.unwrap().reason), (Some(Duration::from_secs(3)), Reason::Failed));
        }
    }

    #[test]
    fn what_cannot_be_posted_to_is_refused() {
        for (url, why) in [
            ("localhost", "http://host:port/path"),
            ("ftp://host/", "http://host:port/path"),
            ("http://me:secret@host/", "--header"),
            ("http://", "is no URL"),
        ] {
            let error = Endpoint::new(url, &[], CONNECT_TIME).err().unwrap();
            assert!(error.contains(why), "{url}: {error}");
        }
        let header = |text: &str| Endpoint::new("http://host/", &[text.to_owned()], CONNECT_TIME).err();
        assert_eq!(header("Authorization: Bearer x"), None);
        assert!(header("Authorization").unwrap().contains("Name: value"));
    }

    #[tokio::test]
    async fn a_request_says_what_the_message_is() {
        let own = ["Authorization: Bearer x".to_owned()];
        let endpoint = Endpoint::new("http://host/hook?a=1", &own, CONNECT_TIME).unwrap();
        let request = endpoint.request(&sample(&[("traceparent", b"00-a-b-01")]));
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(request.uri(), "http://host/hook?a=1");
        assert_eq!(header("x-millstream-id").as_deref(), Some("7-1"));
        assert_eq!(header("x-millstream-attempt").as_deref(), Some("2"));
        assert_eq!(header("traceparent").as_deref(), Some("00-a-b-01"));
        assert_eq!(header("authorization").as_deref(), Some("Bearer x"));
    }
}
