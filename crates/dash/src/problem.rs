//! Errors of the API: `application/problem+json`, with a code for programs and a way out for people.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse, Response};
use millstream_worker::backend::ErrorKind;
use millstream_worker::{Error, answers};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    way_out: Option<String>,
    more: Vec<(&'static str, Value)>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into(), way_out: None, more: Vec::new() }
    }

    /// The request is malformed.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// Something that the request names does not exist.
    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// A limit of the dashboard is reached.
    pub(crate) fn too_many(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, code, detail)
    }

    /// Says what to do next.
    pub(crate) fn way_out(mut self, way_out: impl Into<String>) -> Problem {
        self.way_out = Some(way_out.into());
        self
    }

    pub(crate) fn with(mut self, name: &'static str, value: Value) -> Problem {
        self.more.push((name, value));
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn to_json(&self) -> Value {
        json!(ProblemJson::new(self))
    }
}

answers! {
    /// Why a request failed (RFC 9457). `code` is for programs, `way_out` says what to do. After `preview_outdated`
    /// and `in_use`, `plan` is the plan now.
    pub(crate) struct ProblemJson(problem: &Problem) {
        #[serde(rename = "type")]
        kind: &'static str = "about:blank",
        title: &'static str = problem.status.canonical_reason().unwrap_or("Error"),
        status: u16 = problem.status.as_u16(),
        detail: String = problem.detail.clone(),
        code: &'static str = problem.code,
        way_out: Option<String> = problem.way_out.clone(),
        #[serde(flatten)]
        more: Map<String, Value> =
            problem.more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let (status, code) = match error.kind() {
            ErrorKind::Unreachable => (StatusCode::SERVICE_UNAVAILABLE, "unreachable"),
            ErrorKind::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            ErrorKind::NotWritable => (StatusCode::SERVICE_UNAVAILABLE, "not_writable"),
            ErrorKind::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
            ErrorKind::NoStore => (StatusCode::NOT_FOUND, "no_store"),
            ErrorKind::NoGroup => (StatusCode::NOT_FOUND, "no_group"),
            ErrorKind::Denied => (StatusCode::FORBIDDEN, "denied"),
            ErrorKind::WrongType => (StatusCode::CONFLICT, "wrong_type"),
            ErrorKind::Unsupported => (StatusCode::UNPROCESSABLE_ENTITY, "unsupported"),
            ErrorKind::BadUrl => (StatusCode::BAD_REQUEST, "bad_request"),
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
        };
        let way_out = match error.kind() {
            ErrorKind::Unreachable | ErrorKind::Busy => Some("try again when the store answers"),
            ErrorKind::NotWritable => Some("free space for the store, then try again"),
            ErrorKind::Denied => Some("ask for the permission, or log in as another user"),
            ErrorKind::WrongType => Some("choose the name of a stream"),
            _ => None,
        };
        let problem = Problem::new(status, code, error.to_string());
        match way_out {
            Some(text) => problem.way_out(text),
            None => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = self.to_json().to_string();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response
    }
}
