//! The rules that every request passes before its handler: which host it names, which page sent it, who logged in, and
//! whether it may change anything. Also the headers of every answer. Knows nothing about routes except which of them
//! need no login.
//!
//! A browser on the visitor's machine runs pages of strangers, and those can send requests to any address. Three rules
//! keep them out. A name that a stranger's DNS server resolves to this machine is not an allowed `Host`. A request that
//! can change something must come from our own origin and have headers that no foreign page can send without
//! permission, which the dashboard never grants. And no foreign page may read or load the API, because a search is
//! work for the store.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::{LoginError, LoginKind, Visitor};
use crate::app::{App, Caller, login_required};
use crate::options::{ANSWER_TIMEOUT, Options, PROBES, REQUESTS_MAX};
use crate::problem::Problem;
use crate::session::Cookie;
use crate::throttle::Pace;

/// Pages load only files of the dashboard, and browsers never treat text as markup or a script.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const METRICS_PATH: &str = "/metrics";
const SESSION_PATH: &str = "/api/v1/session";
/// The routes below `/api/` that need no login.
const OPEN_PATHS: [&str; 3] = ["/api/v1/status", SESSION_PATH, "/api/v1/openapi.json"];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_MILLSTREAM: HeaderName = HeaderName::from_static("x-millstream");

/// The way out of a page that is served under an address of its own.
const OPEN_OWN_ADDRESS: &str = "open the dashboard under its own address; behind a proxy, set its public URL";

/// The address of the client, if the dashboard itself accepted the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// Admits a request and runs its handler, or refuses it. Sets the headers of the answer.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let is_page = !is_api(head.uri.path()) && head.uri.path() != METRICS_PATH;
    let admitted = match app.request_slots.try_acquire() {
        Err(_) if !PROBES.contains(&head.uri.path()) => Err(too_busy()),
        slot => admit(&app, &head).await.map(|caller| (caller, slot)),
    };
    let mut response = match admitted {
        Ok((caller, _slot)) => {
            head.extensions.insert(caller);
            answer(Request::from_parts(head, body), next).await
        }
        Err(problem) => {
            if head.method != Method::GET && head.method != Method::HEAD {
                app.audit.refusal(address_of(&head), head.uri.path(), &problem);
            }
            problem.into_response()
        }
    };
    secure(response.headers_mut(), is_page);
    response
}

fn too_busy() -> Problem {
    let detail = format!("the dashboard handles {REQUESTS_MAX} other requests");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_busy", detail).way_out("try again in a moment")
}

async fn answer(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail)
                .way_out("ask for less, or try again when the store is less busy")
                .into_response()
        }
    }
}

async fn admit(app: &App, request: &Parts) -> Result<Caller, Problem> {
    let (headers, method, path) = (&request.headers, &request.method, request.uri.path());
    let host = check_host(&app.options, request)?;
    let changes = *method != Method::GET && *method != Method::HEAD;
    if changes {
        check_origin(&app.options, headers, host, method)?;
    } else if is_api(path) || path == METRICS_PATH {
        check_fetch_site(headers)?;
    }
    let address = address_of(request);
    let cookie = cookie_for(&app.options, host);
    let now = Instant::now();
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let token = cookies.filter_map(|header| cookie.find(header)).next().map(str::to_owned);
    let mut visitor = token.as_deref().and_then(|token| app.sessions.find(token, now));
    if visitor.is_none() {
        visitor = match headers.get(header::AUTHORIZATION) {
            Some(header) => bearer(app, header, address, now).await?,
            None => app.access.anonymous(),
        };
    }
    let needs_login = (is_api(path) && !OPEN_PATHS.contains(&path)) || path == METRICS_PATH;
    if visitor.is_none() && needs_login {
        return Err(login_required());
    }
    if changes && app.options.read_only && path != SESSION_PATH {
        return Err(Problem::new(StatusCode::FORBIDDEN, "read_only", "this dashboard is read-only")
            .way_out("use a dashboard that was started without --read-only"));
    }
    Ok(Caller { visitor, address, cookie, token })
}

fn is_api(path: &str) -> bool {
    path.starts_with("/api/")
}

/// Returns the host that the request names, if it is allowed.
///
/// An address cannot be resolved to another one, so it is allowed. Of names, only `localhost` and those of the options
/// are.
fn check_host<'a>(options: &Options, request: &'a Parts) -> Result<&'a str, Problem> {
    let host = request.headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let is_single = request.headers.get_all(header::HOST).iter().count() == 1;
    let host = host.filter(|_| is_single).ok_or_else(|| wrong_host(""))?;
    let (name, _) = split_port(host).ok_or_else(|| wrong_host(host))?;
    let is_address = name.parse::<Ipv4Addr>().is_ok()
        || name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
    let is = |allowed: &str| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name);
    let is_public = options.public_url.as_ref().is_some_and(|url| is(&url.host));
    let is_allowed =
        is_address || is("localhost") || is_public || options.allowed_hosts.iter().any(|host| is(host));
    if is_allowed { Ok(host) } else { Err(wrong_host(host)) }
}

fn wrong_host(host: &str) -> Problem {
    let detail = format!("this dashboard does not answer for the host '{host}'");
    Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", detail).way_out(
        "use its IP address, or allow the host: dash --allow-host HOST, serve --http-allow-host HOST",
    )
}

/// Splits `HOST[:PORT]`. `None` if the port is not a number.
fn split_port(host: &str) -> Option<(&str, Option<&str>)> {
    let end = host.rfind(']').map_or(0, |at| at + 1);
    match host[end..].split_once(':') {
        None => Some((host, None)),
        Some((before, port)) => {
            port.parse::<u16>().is_ok().then_some((&host[..end + before.len()], Some(port)))
        }
    }
}

fn cookie_for(options: &Options, host: &str) -> Cookie {
    let is_https =
        options.public_url.as_ref().is_some_and(|url| url.is_https && url.host.eq_ignore_ascii_case(host));
    let port = split_port(host).and_then(|(_, port)| port);
    Cookie::new(port.unwrap_or(if is_https { "443" } else { "80" }), is_https)
}

/// Checks that a request that can change something does not come from a foreign page.
fn check_origin(options: &Options, headers: &HeaderMap, host: &str, method: &Method) -> Result<(), Problem> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_ours = |origin: &str| {
        let of_host = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        of_host.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
            || options.public_url.as_ref().is_some_and(|url| url.origin().eq_ignore_ascii_case(origin))
    };
    let refused = |detail: &str, way_out: &str| {
        Err(Problem::new(StatusCode::FORBIDDEN, "foreign_page", detail).way_out(way_out))
    };
    if text(&header::ORIGIN).is_some_and(|origin| !is_ours(origin)) {
        return refused("the header Origin names another page", OPEN_OWN_ADDRESS);
    }
    if text(&SEC_FETCH_SITE).is_some_and(|site| site != "same-origin") {
        return refused("the header Sec-Fetch-Site names another page", OPEN_OWN_ADDRESS);
    }
    if text(&X_MILLSTREAM) != Some("1") {
        return refused("the header X-Millstream: 1 is missing", "add this header to the request");
    }
    let content_type = text(&header::CONTENT_TYPE).unwrap_or("");
    let is_json = content_type.split(';').next().is_some_and(|name| name.trim() == "application/json");
    if *method == Method::POST && !is_json {
        return refused(
            "the header Content-Type: application/json is missing",
            "add this header to the request",
        );
    }
    Ok(())
}

fn check_fetch_site(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(&SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => {
            let detail = "the header Sec-Fetch-Site names another page";
            Err(Problem::new(StatusCode::FORBIDDEN, "foreign_page", detail).way_out(OPEN_OWN_ADDRESS))
        }
    }
}

/// Returns the visitor of an `Authorization` header: `Bearer PASSWORD`, or `Bearer USER:PASSWORD` where users log in.
async fn bearer(
    app: &App,
    header: &HeaderValue,
    address: IpAddr,
    now: Instant,
) -> Result<Option<Visitor>, Problem> {
    let text = header.to_str().unwrap_or("");
    let Some((scheme, secret)) = text.split_once(' ') else { return Ok(app.access.anonymous()) };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(app.access.anonymous());
    }
    if let Some(visitor) = app.sessions.of_bearer(secret, now) {
        return Ok(Some(visitor));
    }
    let (user, password) = match app.access.login_kind() {
        LoginKind::None => return Ok(app.access.anonymous()),
        LoginKind::Password => (None, secret),
        LoginKind::User => {
            secret.split_once(':').map_or((None, secret), |(user, password)| (Some(user), password))
        }
    };
    let visitor = log_in(app, user, password, address, now).await?;
    app.sessions.remember_bearer(secret, visitor.clone(), now);
    Ok(Some(visitor))
}

/// Checks a user and a password, and counts failures.
pub(crate) async fn log_in(
    app: &App,
    user: Option<&str>,
    password: &str,
    address: IpAddr,
    now: Instant,
) -> Result<Visitor, Problem> {
    let user = user.filter(|_| app.access.login_kind() == LoginKind::User);
    let attempt = app.throttle.begin(address, user, password, now);
    match attempt.pace {
        Pace::Known | Pace::AtOnce => {}
        Pace::Slow(wait) => tokio::time::sleep(wait).await,
        Pace::Never => {
            return Err(too_many_logins(
                "too many wrong passwords from this address, and too many logins wait",
            ));
        }
    }
    match app.access.login(user, password, address).await {
        Ok(visitor) => {
            app.throttle.succeeded(&attempt, now);
            Ok(visitor)
        }
        Err(error @ LoginError::Unavailable(_)) => {
            app.throttle.withdraw(&attempt);
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unreachable", error.to_string()))
        }
        Err(error @ LoginError::Refused) => {
            app.throttle.failed(&attempt);
            match attempt.pace {
                Pace::Slow(_) => Err(too_many_logins(format!("{error}, as were many before"))),
                _ => Err(Problem::new(StatusCode::UNAUTHORIZED, "wrong_password", error.to_string())),
            }
        }
    }
}

fn too_many_logins(detail: impl Into<String>) -> Problem {
    Problem::too_many("too_many_logins", detail).way_out("wait a minute, then try again")
}

/// Returns the address of the client. Behind a proxy it is that of the proxy: a header could be forged.
fn address_of(request: &Parts) -> IpAddr {
    let accepted = request.extensions.get::<PeerAddress>().map(|peer| peer.0);
    let mounted = request.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    accepted.or(mounted).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

fn secure(headers: &mut HeaderMap, is_page: bool) {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        // An answer can have a stricter policy of its own.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if !is_page || !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_split_off_hosts() {
        assert_eq!(split_port("localhost:8002"), Some(("localhost", Some("8002"))));
        assert_eq!(split_port("[::1]:80"), Some(("[::1]", Some("80"))));
        assert_eq!(split_port("[::1]"), Some(("[::1]", None)));
        for invalid in ["a:b", "a:1:2", "a:", "a:99999"] {
            assert_eq!(split_port(invalid), None, "{invalid}");
        }
    }
}
