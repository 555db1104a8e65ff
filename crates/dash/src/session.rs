//! Sessions of visitors who have logged in: random tokens in memory, gone at the end of the process. Also the cookie
//! that carries a token.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::access::Visitor;
use crate::options::SESSION_LIFETIME;

/// Maximum number of sessions. For another one, the oldest ends of the visitor who has the most.
const SESSIONS_MAX: usize = 1024;
/// How long a checked `Authorization` header is remembered, so that scripts do not log in for each request.
const BEARER_LIFETIME: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_digest: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Clone, Debug)]
struct Session {
    visitor: Visitor,
    ends_at: Instant,
}

impl Sessions {
    /// Starts a session and returns its token. `None` if the operating system gives no random bits.
    pub(crate) fn start(&self, visitor: Visitor, now: Instant) -> Option<String> {
        let mut bits = [0; 32];
        SystemRandom::new().fill(&mut bits).ok()?;
        let token = hex(&bits);
        self.insert(&token, Session { visitor, ends_at: now + SESSION_LIFETIME }, now);
        Some(token)
    }

    /// Remembers the visitor of an `Authorization` header for a minute.
    pub(crate) fn remember_bearer(&self, credentials: &str, visitor: Visitor, now: Instant) {
        self.insert(&bearer_key(credentials), Session { visitor, ends_at: now + BEARER_LIFETIME }, now);
    }

    /// Returns the visitor of an `Authorization` header that was checked in the last minute.
    pub(crate) fn of_bearer(&self, credentials: &str, now: Instant) -> Option<Visitor> {
        self.find(&bearer_key(credentials), now)
    }

    /// Returns the visitor of a token. `None` if the token is unknown, the session has ended, or the visitor is not
    /// valid any more.
    pub(crate) fn find(&self, token: &str, now: Instant) -> Option<Visitor> {
        let sessions = self.by_digest.lock();
        let session = sessions.get(&key(token))?;
        let is_running = session.ends_at > now && (session.visitor.is_valid)();
        is_running.then(|| session.visitor.clone())
    }

    pub(crate) fn end(&self, token: &str) {
        self.by_digest.lock().remove(&key(token));
    }

    fn insert(&self, token: &str, session: Session, now: Instant) {
        let mut sessions = self.by_digest.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, session| session.ends_at > now && (session.visitor.is_valid)());
        }
        if sessions.len() >= SESSIONS_MAX {
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for session in sessions.values() {
                *counts.entry(&session.visitor.name).or_default() += 1;
            }
            let count = |session: &Session| counts.get(&*session.visitor.name).copied();
            let ended = sessions.iter().max_by_key(|(_, session)| (count(session), Reverse(session.ends_at)));
            let ended = ended.map(|(key, _)| *key);
            ended.map(|key| sessions.remove(&key));
        }
        sessions.insert(key(token), session);
    }
}

/// Returns the key of a token. Sessions are found by the digest of the token, so that the time of a search tells
/// nothing about tokens.
fn key(token: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

/// Tokens of sessions are hexadecimal, so this is never one of them.
fn bearer_key(credentials: &str) -> String {
    format!("bearer {credentials}")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The cookie with the token of a session.
#[derive(Clone, Debug)]
pub(crate) struct Cookie {
    name: String,
    is_secure: bool,
}

impl Cookie {
    /// The name of the cookie has the port, because cookies do not know ports: a browser sends the cookie of one port
    /// to all ports of a host.
    pub(crate) fn new(port: &str, is_secure: bool) -> Cookie {
        let prefix = if is_secure { "__Host-" } else { "" };
        Cookie { name: format!("{prefix}millstream_{port}"), is_secure }
    }

    /// Finds the token in the value of a `Cookie` header.
    pub(crate) fn find<'a>(&self, header: &'a str) -> Option<&'a str> {
        header.split(';').find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.name).then_some(value)
        })
    }

    /// Returns the value of the `Set-Cookie` header that starts a session.
    pub(crate) fn set(&self, token: &str) -> String {
        self.with(token, SESSION_LIFETIME.as_secs())
    }

    /// Returns the value of the `Set-Cookie` header that ends a session.
    pub(crate) fn unset(&self) -> String {
        self.with("", 0)
    }

    fn with(&self, value: &str, max_age: u64) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::access::tests::visitor;

    #[tokio::test]
    async fn a_session_ends_after_twelve_hours_and_on_request() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let token = sessions.start(visitor("x").await, now).unwrap();
        assert_eq!(token.len(), 64);
        assert!(sessions.find(&token, now + SESSION_LIFETIME - Duration::from_secs(1)).is_some());
        assert!(sessions.find(&token, now + SESSION_LIFETIME).is_none());
        sessions.end(&token);
        assert!(sessions.find(&token, now).is_none());
        assert!(sessions.find("", now).is_none());
    }

    #[tokio::test]
    async fn the_session_of_a_visitor_who_may_no_longer_log_in_ends() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let is_valid = Arc::new(AtomicBool::new(true));
        let of_visitor = Arc::clone(&is_valid);
        let visitor =
            Visitor { is_valid: Arc::new(move || of_visitor.load(Ordering::Relaxed)), ..visitor("x").await };
        let token = sessions.start(visitor, now).unwrap();
        assert!(sessions.find(&token, now).is_some());
        is_valid.store(false, Ordering::Relaxed);
        assert!(sessions.find(&token, now).is_none());
    }

    #[tokio::test]
    async fn the_oldest_session_ends_if_there_are_too_many() {
        let (sessions, now, visitor) = (Sessions::default(), Instant::now(), visitor("x").await);
        let first = sessions.start(visitor.clone(), now).unwrap();
        for _ in 0..SESSIONS_MAX {
            sessions.start(visitor.clone(), now + Duration::from_secs(1)).unwrap();
        }
        assert!(sessions.find(&first, now).is_none());
        assert_eq!(sessions.by_digest.lock().len(), SESSIONS_MAX);
    }

    #[tokio::test]
    async fn many_logins_of_a_visitor_end_no_session_of_another() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.start(visitor("alice").await, now).unwrap();
        let bob = visitor("bob").await;
        for _ in 0..2 * SESSIONS_MAX {
            sessions.start(bob.clone(), now + Duration::from_secs(1)).unwrap();
        }
        assert!(sessions.find(&first, now).is_some());
    }

    #[tokio::test]
    async fn a_bearer_is_no_session() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        sessions.remember_bearer("secret", visitor("x").await, now);
        assert!(sessions.of_bearer("secret", now).is_some());
        assert!(sessions.find("secret", now).is_none());
        assert!(sessions.of_bearer("secret", now + BEARER_LIFETIME).is_none());
    }

    #[test]
    fn the_cookie_has_the_port_in_its_name() {
        let cookie = Cookie::new("8002", false);
        assert_eq!(cookie.find("a=b; millstream_8001=x; millstream_8002=y"), Some("y"));
        assert_eq!(cookie.set("t"), "millstream_8002=t; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
        assert!(Cookie::new("443", true).unset().starts_with("__Host-millstream_443=; Path=/; HttpOnly; "));
        assert!(Cookie::new("443", true).unset().ends_with("; Max-Age=0; Secure"));
    }
}
