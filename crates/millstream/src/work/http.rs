//! `--http`: posts every message to an HTTP endpoint. The status of the response decides the outcome:
//!
//! | response | outcome |
//! |---|---|
//! | 2xx | acknowledged |
//! | 408, 425, 429 | retried |
//! | other 4xx | rejected: dead-lettered immediately |
//! | no connection | delivered again; the delivery does not count |
//! | any other status, no response, timeout | retried |
//!
//! A retry honours the header `Retry-After` of the response, in seconds or as a date.
//!
//! hyper is the HTTP client, because nearly every Rust client is built on it and it brings no second runtime. rustls
//! does TLS, as it does for the store.

use std::error::Error as _;
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
use millstream_worker::trace::{TRACEPARENT, TRACESTATE};
use millstream_worker::{Failure, Message, Outcome, Reason};
use tokio::time::timeout;

use super::exec::{not_ready, retry, timed_out};
use super::payload::payload;
use super::retry_after;
use crate::ops::safe_text::printable;
use crate::ops::value::clipped;

/// Maximum time to establish a connection. At most half of the timeout, so that an endpoint that is not there does not
/// count as one that did not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an idle connection is kept for the next message. Most servers close theirs after a minute or more.
const IDLE_TIMEOUT: Duration = Duration::from_secs(55);
/// Maximum size of a response body that is read. A connection can be used again only if the body was read to its end.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of the response body in the error message.
const QUOTED_CHARS: usize = 200;

pub(super) struct Endpoint {
    url: Uri,
    headers: HeaderMap,
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Endpoint {
    /// Creates an endpoint from its URL and additional headers of the form `Name: value`.
    pub(super) fn new(url: &str, headers: &[String], timeout: Duration) -> Result<Endpoint, String> {
        let parsed: Uri = url.parse().map_err(|error| format!("invalid URL {url:?} of --http: {error}"))?;
        let secure = match (parsed.scheme_str(), parsed.authority()) {
            (_, Some(authority)) if authority.as_str().contains('@') => {
                return Err(
                    "the URL of --http must not contain a password: pass --header 'Authorization: …' instead"
                        .to_owned(),
                );
            }
            (Some("http"), Some(_)) => false,
            (Some("https"), Some(_)) => true,
            _ => {
                return Err(format!(
                    "invalid URL {url:?} of --http: expected http://HOST[:PORT]/PATH or https://…"
                ));
            }
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector(secure, CONNECT_TIMEOUT.min(timeout / 2))?);
        let headers = headers.iter().map(|header| parse_header(header)).collect::<Result<_, _>>()?;
        Ok(Endpoint { url: parsed, headers, timeout, client })
    }

    /// Handles one message. If the message is cancelled, the worker drops this future, and that closes the connection.
    pub(super) async fn run(&self, message: &Message) -> Outcome {
        match timeout(self.timeout, self.post(message)).await {
            Ok(outcome) => outcome,
            Err(_) => timed_out(self.timeout, None),
        }
    }

    async fn post(&self, message: &Message) -> Outcome {
        match self.client.request(self.request(message)).await {
            Ok(response) => {
                let after = retry_after(&response);
                let status = response.status();
                let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
                // The status is enough if the body cannot be read.
                let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                outcome_of(status, after, &body)
            }
            // No request was sent, so no handler has begun with the message.
            Err(error) if error.is_connect() => not_ready(self.describe(&error)),
            Err(error) => retry(self.describe(&error), "http", Reason::Failed),
        }
    }

    /// Says which server gave no response, and why. Leaves out the path and the query, which can hold a secret.
    fn describe(&self, error: &hyper_util::client::legacy::Error) -> String {
        let server = format!(
            "{}://{}",
            self.url.scheme_str().unwrap_or("http"),
            self.url.authority().map_or("", |authority| authority.as_str())
        );
        match error.source() {
            Some(cause) if error.is_connect() => {
                format!("cannot connect to {server}: {}", with_causes(cause))
            }
            _ => format!("no response from {server}: {}", with_causes(error)),
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
        let mut set = |name: &'static str, value: &[u8]| {
            // Values that are not valid in a header are left out. The body has them.
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        set("x-millstream-id", message.id.to_string().as_bytes());
        set("x-millstream-stream", message.logical_stream.as_bytes());
        set("x-millstream-group", message.group.as_bytes());
        set("x-millstream-attempt", message.attempt.to_string().as_bytes());
        if let Some(key) = message.key() {
            set("x-millstream-key", key);
        }
        if let Some(number) = message.partition {
            set("x-millstream-partition", number.to_string().as_bytes());
        }
        if let Some(fence) = message.fence {
            set("x-millstream-fence", fence.to_string().as_bytes());
        }
        if let Some(trace) = message.handler_trace() {
            set(TRACEPARENT, trace.to_string().as_bytes());
            if let Some(state) = trace.state {
                set(TRACESTATE, state.as_bytes());
            }
        }
        headers.extend(self.headers.clone());
        request
    }
}

/// Returns the connector. Reads the certificates of the system only for https.
fn connector(secure: bool, connect_timeout: Duration) -> Result<HttpsConnector<HttpConnector>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot configure TLS: {error}"))?;
    let config = if secure {
        config
            .with_native_roots()
            .map_err(|error| format!("cannot read the system's certificates: {error}"))?
    } else {
        config.with_root_certificates(rustls::RootCertStore::empty())
    };
    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    plain.set_connect_timeout(Some(connect_timeout));
    plain.set_nodelay(true);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(plain))
}

fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), String> {
    let invalid = || format!("invalid header {header:?}: expected 'Name: value'");
    let (name, value) = header.split_once(':').ok_or_else(invalid)?;
    let name = name.trim().parse().map_err(|_| invalid())?;
    Ok((name, value.trim().parse().map_err(|_| invalid())?))
}

/// Returns the wait that the response asks for with `Retry-After`.
fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    retry_after::parse(value, SystemTime::now()).map(|after| after.min(super::RETRY_AFTER_MAX))
}

/// Returns the outcome for a response.
fn outcome_of(status: StatusCode, after: Option<Duration>, body: &[u8]) -> Outcome {
    if status.is_success() {
        return Outcome::Ack;
    }
    let first_line = body.trim_ascii().split(|byte| *byte == b'\n').next().unwrap_or_default();
    let detail = match clipped(&printable(first_line), QUOTED_CHARS) {
        empty if empty.is_empty() => empty,
        line => format!(": {line}"),
    };
    let failure = |reason| Failure {
        error: format!("{status}{detail}"),
        error_type: format!("http {}", status.as_u16()),
        reason,
    };
    let retried = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    if status.is_client_error() && !retried.contains(&status) {
        return Outcome::Reject(failure(Reason::Rejected));
    }
    Outcome::Retry { after, failure: Some(failure(Reason::Failed)) }
}

/// Formats an error with its causes. The last cause is the reason why a connection failed.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::payload::tests::traced;
    use super::*;

    #[test]
    fn the_status_decides_the_outcome() {
        let outcome = |code: u16| {
            outcome_of(StatusCode::from_u16(code).unwrap(), Some(Duration::from_secs(3)), b" why\nmore")
        };
        for success in [200, 201, 202, 204, 299] {
            assert_eq!(outcome(success), Outcome::Ack);
        }
        for rejected in [400, 401, 404, 409, 410, 422] {
            let Outcome::Reject(failure) = outcome(rejected) else { panic!("{rejected}") };
            assert_eq!(failure.error_type, format!("http {rejected}"));
            assert!(failure.error.ends_with(": why"), "{}", failure.error);
        }
        for retried in [301, 304, 408, 425, 429, 500, 502, 503, 504] {
            let Outcome::Retry { after, failure } = outcome(retried) else { panic!("{retried}") };
            assert_eq!((after, failure.unwrap().reason), (Some(Duration::from_secs(3)), Reason::Failed));
        }
    }

    #[test]
    fn invalid_urls_and_headers_are_refused() {
        for (url, why) in [
            ("localhost", "http://HOST[:PORT]/PATH"),
            ("ftp://host/", "http://HOST[:PORT]/PATH"),
            ("http://me:secret@host/", "--header"),
            ("http://", "invalid URL"),
        ] {
            let error = Endpoint::new(url, &[], CONNECT_TIMEOUT).err().unwrap();
            assert!(error.contains(why), "{url}: {error}");
        }
        let header = |text: &str| Endpoint::new("http://host/", &[text.to_owned()], CONNECT_TIMEOUT).err();
        assert_eq!(header("Authorization: Bearer x"), None);
        assert!(header("Authorization").unwrap().contains("Name: value"));
    }

    #[tokio::test]
    async fn a_request_has_headers_that_describe_the_message() {
        let own = ["Authorization: Bearer x".to_owned()];
        let endpoint = Endpoint::new("http://host/hook?a=1", &own, CONNECT_TIMEOUT).unwrap();
        let message = Message { key_field: Some("tracestate".into()), ..traced() };
        let request = endpoint.request(&message);
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(request.uri(), "http://host/hook?a=1");
        assert_eq!(header("x-millstream-id").as_deref(), Some("7-1"));
        assert_eq!(header("x-millstream-attempt").as_deref(), Some("2"));
        assert_eq!(header("x-millstream-key").as_deref(), Some("foo=1"));
        assert_eq!(header("traceparent"), message.handler_trace().map(|trace| trace.to_string()));
        assert_eq!(header("tracestate").as_deref(), Some("foo=1"));
        assert_eq!(header("authorization").as_deref(), Some("Bearer x"));
    }
}
