//! Errors of the API: `application/problem+json`, with a code for programs and a way out for people.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

/// An error of the API.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    way_out: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, code, detail: detail.into(), way_out: None }
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

    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("type".to_owned(), "about:blank".into());
        object.insert("title".to_owned(), self.status.canonical_reason().unwrap_or("Error").into());
        object.insert("status".to_owned(), self.status.as_u16().into());
        object.insert("detail".to_owned(), self.detail.as_str().into());
        object.insert("code".to_owned(), self.code.into());
        object.insert("way_out".to_owned(), self.way_out.clone().into());
        Value::Object(object)
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
