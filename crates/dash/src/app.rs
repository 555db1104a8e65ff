//! What all requests share, and what a handler knows about its request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use millstream_worker::observe::Sampler;
use millstream_worker::redaction::Redaction;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Visitor};
use crate::assets::Assets;
use crate::audit::Audit;
use crate::facts::{self, Facts};
use crate::first_seen::FirstSeen;
use crate::jobs::Jobs;
use crate::options::{
    ANSWER_BYTES_MAX, BODY_BYTES_MAX, EVENT_STREAMS_MAX, Options, REQUESTS_MAX, SEARCHES_MAX,
};
use crate::problem::Problem;
use crate::session::{Cookie, Sessions};
use crate::sse::MayReceive;
use crate::throttle::Throttle;

pub(crate) struct App {
    pub(crate) options: Options,
    pub(crate) access: Arc<dyn Access>,
    pub(crate) sessions: Sessions,
    pub(crate) throttle: Throttle,
    pub(crate) assets: Assets,
    pub(crate) sampler: Sampler,
    /// The values that the dashboard hides from every visitor.
    pub(crate) redaction: Redaction,
    pub(crate) facts: Arc<Facts>,
    pub(crate) audit: Audit,
    pub(crate) first_seen: FirstSeen,
    pub(crate) jobs: Jobs,
    /// Requests that can still be handled.
    pub(crate) request_slots: Semaphore,
    /// Connections that can still receive events.
    pub(crate) event_slots: Arc<Semaphore>,
    /// Searches that can still run.
    pub(crate) search_slots: Arc<Semaphore>,
    /// Ends all events and jobs when the dashboard stops.
    pub(crate) stopped: CancellationToken,
}

impl App {
    /// Must be called in a tokio runtime.
    pub(crate) fn start(
        options: Options,
        access: Arc<dyn Access>,
        sampler: Sampler,
        stopped: CancellationToken,
    ) -> Arc<App> {
        let redaction = if options.payloads { options.redaction.clone() } else { Redaction::everything() };
        let facts = Arc::new(Facts::default());
        facts::keep_asking(&facts, sampler.clone(), stopped.clone());
        Arc::new(App {
            assets: Assets::new(options.assets.clone()),
            audit: Audit::new(options.audit.clone()),
            access,
            sessions: Sessions::default(),
            throttle: Throttle::default(),
            sampler,
            redaction,
            facts: Arc::clone(&facts),
            first_seen: FirstSeen::default(),
            jobs: Jobs::default(),
            request_slots: Semaphore::new(REQUESTS_MAX),
            event_slots: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            search_slots: Arc::new(Semaphore::new(SEARCHES_MAX)),
            stopped,
            options,
        })
    }
}

/// Returns whether a visitor may still receive events: its session has not ended, and it could log in as before.
pub(crate) fn while_admitted(app: &Arc<App>, visitor: &Visitor, caller: &Caller) -> MayReceive {
    let has_session = |token: &String| app.sessions.find(token, Instant::now()).is_some();
    let (app, visitor, token) = (Arc::clone(app), visitor.clone(), caller.token.clone().filter(has_session));
    Box::new(move || match &token {
        Some(token) => app.sessions.find(token, Instant::now()).is_some(),
        None => (visitor.is_valid)(),
    })
}

/// Who sent a request. Every request has one once the guard has admitted it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// `None` if nobody has logged in. Only few routes admit such a request.
    pub(crate) visitor: Option<Visitor>,
    pub(crate) address: IpAddr,
    pub(crate) cookie: Cookie,
    /// The token of the session, if the request has one.
    pub(crate) token: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Problem> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(login_required)
    }
}

pub(crate) fn login_required() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "login_required", "this request needs a login")
        .way_out("log in on the page, or send the header Authorization: Bearer PASSWORD")
}

/// The visitor of a request that needs a login.
pub(crate) struct LoggedIn(pub(crate) Visitor);

impl<S: Send + Sync> FromRequestParts<S> for LoggedIn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<LoggedIn, Problem> {
        let caller = parts.extensions.get::<Caller>();
        caller.and_then(|caller| caller.visitor.clone()).map(LoggedIn).ok_or_else(login_required)
    }
}

/// The parameters in the query of a request. Their types deny unknown ones: ignoring a condition would select
/// everything.
pub(crate) struct Params<T>(pub(crate) T);

/// The query of a request that has no parameters.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Params<T>, Problem> {
        axum::extract::Query::<T>::try_from_uri(&parts.uri)
            .map(|query| Params(query.0))
            .map_err(|error| Problem::bad_request(format!("invalid query: {}", error.body_text())))
    }
}

/// A request of a visitor who has logged in.
pub(crate) struct Asked<T = NoParams> {
    pub(crate) app: Arc<App>,
    pub(crate) visitor: Visitor,
    pub(crate) query: T,
}

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Asked<T>, Problem> {
        let LoggedIn(visitor) = LoggedIn::from_request_parts(parts, app).await?;
        let Params(query) = Params::from_request_parts(parts, app).await?;
        Ok(Asked { app: Arc::clone(app), visitor, query })
    }
}

/// A request to act.
pub(crate) struct Acting<T> {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) body: T,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Acting<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Acting<T>, Problem> {
        let (mut head, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut head, app).await?;
        let JsonBody(body) = JsonBody::from_request(Request::from_parts(head, body), app).await?;
        Ok(Acting { app: Arc::clone(app), caller, body })
    }
}

/// The JSON body of a request, which has no parameters in its query. Its type denies unknown members.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<JsonBody<T>, Problem> {
        let (mut head, body) = request.into_parts();
        Params::<NoParams>::from_request_parts(&mut head, state).await?;
        let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
            let detail = format!("the body exceeds {BODY_BYTES_MAX} bytes, or did not arrive completely");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
        })?;
        serde_json::from_slice(&body)
            .map(JsonBody)
            .map_err(|error| Problem::bad_request(format!("invalid body: {error}")))
    }
}

/// What a handler returns.
pub(crate) type Answer<T> = Result<T, Problem>;

/// An answer of the API.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        // Serialization fails only for maps whose keys are not text.
        let body = serde_json::to_string(&self.0).unwrap_or_default();
        if body.len() > ANSWER_BYTES_MAX {
            let detail = format!("the answer has {} bytes, and the limit is {ANSWER_BYTES_MAX}", body.len());
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "answer_too_large", detail);
            return problem.way_out("ask for fewer rows").into_response();
        }
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// The bytes of a file.
pub(crate) struct Attachment(pub(crate) Response);

impl IntoResponse for Attachment {
    fn into_response(self) -> Response {
        self.0
    }
}
