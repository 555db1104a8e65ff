//! Who may use the dashboard of a server: the users of its ACL. Each acts through connections of its own, so the server
//! judges every action by the rules of the user.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use millstream_dash::access::LoginFuture;
use millstream_dash::{Access, LoginError, LoginKind, Visitor};
use millstream_server::{InProcess, Login};
use millstream_worker::Admin;
use millstream_worker::backend::Redis;
use parking_lot::Mutex;

/// The user that logs in if a visitor names none.
const DEFAULT_USER: &str = "default";

/// If this many backends exist, those that no visitor uses are closed.
const UNUSED_BACKENDS_MAX: usize = 8;

/// Lets the users of a server's ACL log in.
pub(super) struct UserAccess {
    server: InProcess,
    /// Whether only visitors on this machine reach the dashboard.
    is_local: bool,
    location: String,
    /// The backends of visitors. Those with the same login share one, because connections are limited.
    backends: Mutex<Vec<(Login, Arc<Redis>)>>,
}

impl UserAccess {
    pub(super) fn new(server: InProcess, address: SocketAddr, location: String) -> UserAccess {
        let is_local = address.ip().to_canonical().is_loopback();
        UserAccess { server, is_local, location, backends: Mutex::default() }
    }

    fn backend(&self, login: &Login) -> Arc<dyn Admin> {
        let mut backends = self.backends.lock();
        if let Some((_, ready)) = backends.iter().find(|(known, _)| known == login) {
            return Arc::clone(ready) as Arc<dyn Admin>;
        }
        backends.retain(|(login, _)| login.is_valid());
        if backends.len() >= UNUSED_BACKENDS_MAX
            && let Some(unused) = backends.iter().position(|(_, backend)| Arc::strong_count(backend) == 1)
        {
            backends.remove(unused);
        }
        let (server, of_backend) = (self.server.clone(), login.clone());
        let dial = move || server.connect_as(&of_backend);
        let backend = Arc::new(Redis::over(dial, &login.name(), &self.location));
        backends.push((login.clone(), Arc::clone(&backend)));
        backend
    }

    fn visitor(&self, login: Login) -> Visitor {
        let (reader, runner, session, observer, operator) =
            (login.clone(), login.clone(), login.clone(), login.clone(), login.clone());
        let server = self.server.clone();
        Visitor {
            name: login.name(),
            backend: self.backend(&login),
            may_see: Arc::new(move |stream| reader.may_read(stream.as_bytes())),
            may_run: Arc::new(move |command| runner.may_run_somewhere(command)),
            is_valid: Arc::new(move || session.is_valid()),
            is_operator: Arc::new(move || operator.may_see_others()),
            figures: Arc::new(move || match observer.may_see_figures() {
                true => server.server().figures(),
                false => String::new(),
            }),
        }
    }
}

impl Access for UserAccess {
    fn login_kind(&self) -> LoginKind {
        if self.is_local && !self.server.server().requires_login() {
            LoginKind::None
        } else {
            LoginKind::User
        }
    }

    fn login<'a>(&'a self, user: Option<&'a str>, password: &'a str, from: IpAddr) -> LoginFuture<'a> {
        // A login is a user at an address, whatever port the browser uses.
        let from = SocketAddr::new(from, 0).to_string();
        let user = user.unwrap_or(DEFAULT_USER);
        // Without a password, `default` is for visitors on this machine, as in the protected mode.
        let is_admitted = user != DEFAULT_USER || self.is_local || self.server.server().requires_login();
        let login = is_admitted.then(|| self.server.log_in(user, password, &from)).flatten();
        Box::pin(async move { login.map(|login| self.visitor(login)).ok_or(LoginError::Refused) })
    }

    fn anonymous(&self) -> Option<Visitor> {
        let login = self.server.default_login().filter(|_| self.is_local)?;
        Some(self.visitor(login))
    }
}
