//! Who may log in, and with which rights a visitor acts on the store. Knows neither HTTP nor sessions.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::observe::Look;
use subtle::ConstantTimeEq;

/// The future that [`Access::login`] returns.
pub type LoginFuture<'a> = Pin<Box<dyn Future<Output = Result<Visitor, LoginError>> + Send + 'a>>;

/// Decides who may log in, and with which rights each visitor acts on the store.
pub trait Access: Send + Sync + 'static {
    /// Returns what a visitor must enter.
    fn login_kind(&self) -> LoginKind;

    /// Checks a user and a password, or only a password. `from` is the address of the visitor.
    fn login<'a>(&'a self, user: Option<&'a str>, password: &'a str, from: IpAddr) -> LoginFuture<'a>;

    /// Returns the visitor without a login, or `None` if visitors must log in.
    fn anonymous(&self) -> Option<Visitor>;
}

/// What a visitor must enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginKind {
    /// Nothing.
    None,
    /// One password.
    Password,
    /// The name and the password of a user.
    User,
}

impl LoginKind {
    /// Returns the word that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            LoginKind::None => "none",
            LoginKind::Password => "password",
            LoginKind::User => "user",
        }
    }
}

/// Whether a visitor may run a command.
pub type MayRun = Arc<dyn Fn(&[&str]) -> bool + Send + Sync>;

/// Somebody who uses the dashboard.
#[derive(Clone)]
pub struct Visitor {
    /// The name in the record of actions.
    pub name: String,
    /// The store, with the rights of this visitor.
    pub backend: Arc<dyn Admin>,
    /// Whether the visitor may see a stream in answers that come from a look at all streams.
    pub may_see: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Whether the visitor may run a command, given with its subcommand, on any key at all. The store judges each call
    /// again.
    pub may_run: MayRun,
    /// Whether the visitor still exists and could log in as before. If not, its session has ended.
    pub is_valid: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether the visitor may see what others have done, and may stop their jobs.
    pub is_operator: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Returns the figures of the server itself as text for Prometheus. Empty if there are none, or the visitor may
    /// not see them.
    pub figures: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Visitor {
    /// Whether the visitor may see what a look knows about a stream. Who sees a logical stream may see all its
    /// partitions.
    pub(crate) fn sees(&self, look: &Look, stream: &str) -> bool {
        look.stream(stream).map_or_else(|| (self.may_see)(stream), |stream| stream.is_seen(&*self.may_see))
    }
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why nobody was logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// The user or the password is wrong, or the user is disabled.
    Refused,
    /// The store could not check them now, for this reason.
    Unavailable(String),
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginError::Refused => f.write_str("the user or the password is wrong"),
            LoginError::Unavailable(reason) => write!(f, "the login cannot be checked now: {reason}"),
        }
    }
}

impl std::error::Error for LoginError {}

/// One store for everybody, behind at most one password.
pub struct OneStore {
    backend: Arc<dyn Admin>,
    password: Option<String>,
}

impl OneStore {
    /// Lets everybody in.
    pub fn open(backend: Arc<dyn Admin>) -> OneStore {
        OneStore { backend, password: None }
    }

    /// Lets in visitors who know the password.
    pub fn with_password(backend: Arc<dyn Admin>, password: impl Into<String>) -> OneStore {
        OneStore { backend, password: Some(password.into()) }
    }

    fn visitor(&self) -> Visitor {
        let backend = Arc::clone(&self.backend);
        Visitor {
            name: "visitor".to_owned(),
            backend,
            may_see: Arc::new(|_| true),
            may_run: Arc::new(|_| true),
            is_valid: Arc::new(|| true),
            is_operator: Arc::new(|| true),
            figures: Arc::new(String::new),
        }
    }
}

impl fmt::Debug for OneStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneStore").field("has_password", &self.password.is_some()).finish_non_exhaustive()
    }
}

impl Access for OneStore {
    fn login_kind(&self) -> LoginKind {
        if self.password.is_some() { LoginKind::Password } else { LoginKind::None }
    }

    fn login<'a>(&'a self, _user: Option<&'a str>, password: &'a str, _from: IpAddr) -> LoginFuture<'a> {
        let is_right = self.password.as_ref().is_none_or(|expected| equal_secrets(expected, password));
        Box::pin(async move { if is_right { Ok(self.visitor()) } else { Err(LoginError::Refused) } })
    }

    fn anonymous(&self) -> Option<Visitor> {
        self.password.is_none().then(|| self.visitor())
    }
}

/// Compares secrets. The time depends neither on where they differ nor on the length of the expected one.
fn equal_secrets(expected: &str, given: &str) -> bool {
    let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest(expected).as_ref().ct_eq(digest(given).as_ref()).into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) async fn visitor(name: &str) -> Visitor {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        Visitor { name: name.to_owned(), ..OneStore::open(backend.admin().unwrap()).visitor() }
    }

    #[test]
    fn only_the_same_secrets_are_equal() {
        assert!(equal_secrets("a secret", "a secret"));
        for other in ["", "a", "a secreT", "a secret "] {
            assert!(!equal_secrets("a secret", other), "{other}");
        }
    }
}
