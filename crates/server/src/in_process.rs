//! Connections from within the process. A part of the same program, such as the web interface, is a client of the
//! server like any other: it logs in as a user, and the rules of that user decide what it may do.
//!
//! Such a connection is one end of a socket pair; an I/O thread serves the other end. This module does not know what
//! the program does with its end.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::accept::start_on;
use crate::acl::{DenialContext, DenialReason, NewDenial, PasswordHash, User, hash};
use crate::command::{check_request, required_keys};
use crate::connection::Connection;
use crate::event_log::{EventKind, Level};
use crate::io_thread::IoThreadHandle;
use crate::registry::{ConnectionInfo, Transport};
use crate::settings::Id;
use crate::state::Server;
use crate::stats::Event;
use crate::table;

const ADDRESS: &str = "dashboard:0";
const NAME: &str = "dashboard";
/// Maximum number of in-process connections. They may exceed `maxclients` by this number, so that an operator can look
/// at a server that has too many clients.
pub(crate) const IN_PROCESS_MAX: usize = 64;
/// What a user must be allowed to run on a stream so that it may see the figures of the stream.
const LOOK_COMMANDS: [[&[u8]; 2]; 2] = [[b"XINFO", b"STREAM"], [b"XINFO", b"GROUPS"]];

/// Opens in-process connections to a server that runs. Clones share the server.
#[derive(Clone)]
pub struct InProcess {
    server: Arc<Server>,
    threads: Arc<[IoThreadHandle]>,
}

/// A user of the server that may open in-process connections.
#[derive(Clone)]
pub struct Login {
    user: Arc<User>,
    proof: Proof,
    server: Arc<Server>,
}

/// Why a [`Login`] is valid.
#[derive(Clone, PartialEq, Eq)]
enum Proof {
    /// The hash of the password with which the user has logged in.
    Password(PasswordHash),
    /// The user `default` needs no password.
    NotNeeded,
    Internal,
}

impl InProcess {
    pub(crate) fn new(server: Arc<Server>, threads: Arc<[IoThreadHandle]>) -> InProcess {
        InProcess { server, threads }
    }

    /// Returns the server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Logs a user in, at the same cost whether the user exists or not. `address` is where the user is, for the audit
    /// log and ACL LOG. Returns `None` if the name or the password is wrong, or the user is off.
    pub fn log_in(&self, user: &str, password: &str, address: &str) -> Option<Login> {
        let server = &self.server;
        let proof = Proof::Password(hash(password.as_bytes()));
        match server.users.authenticate(user.as_bytes(), password.as_bytes()) {
            Some(found) => {
                server.audit(EventKind::LoggedIn, address, Some(user), NAME);
                Some(Login { user: found, proof, server: Arc::clone(server) })
            }
            None => {
                self.note_failed_login(user, address);
                None
            }
        }
    }

    /// Counts and logs a failed login, as AUTH does. The audit log gets no name of a user that does not exist: it can
    /// be a mistyped password.
    fn note_failed_login(&self, user: &str, address: &str) {
        let server = &self.server;
        server.stats.note(Event::AuthFailure);
        let (reason, context) = (DenialReason::Auth, DenialContext::TopLevel);
        let client = format!("addr={address} name={NAME}");
        let denial = NewDenial { reason, context, object: b"AUTH", user: user.as_bytes(), client };
        server.acl_log.note(denial, server.store.now_ms(), server.settings.size(Id::AclLogMaxLen));
        let known = server.users.get(user.as_bytes()).map(|_| user);
        server.audit(EventKind::FailedLogin, address, known, NAME);
    }

    /// Returns the user `default` if it needs no password.
    pub fn default_login(&self) -> Option<Login> {
        let login = Login {
            user: Arc::clone(self.server.users.default_user()),
            proof: Proof::NotNeeded,
            server: Arc::clone(&self.server),
        };
        login.is_valid().then_some(login)
    }

    /// Returns a user that may run everything, for the program itself. No client can log in as this user.
    pub fn internal_login(&self) -> Login {
        let user = Arc::clone(self.server.users.internal_user());
        Login { user, proof: Proof::Internal, server: Arc::clone(&self.server) }
    }

    /// Writes a line of the level `warning` to the server's log.
    pub fn log_warning(&self, message: &str) {
        self.server.event_log.write(Level::Warning, message);
    }

    /// Adds something that a user has done through the program to the audit log. `address` is where the user is. `what`
    /// must contain no secrets and no data.
    pub fn audit(&self, address: &str, user: &str, what: &str) {
        self.server.audit(EventKind::Command, address, Some(user), what);
    }

    /// Adds a request to the program that it has refused to the audit log.
    pub fn audit_refusal(&self, address: &str, what: &str) {
        self.server.audit(EventKind::Refused, address, None, what);
    }

    /// Connects as a user. Returns the program's end of the connection, which is authenticated and in non-blocking
    /// mode.
    ///
    /// If the user is removed, the server closes the connection. If its rules change, they apply to the next command.
    pub fn connect_as(&self, login: &Login) -> io::Result<UnixStream> {
        let server = &self.server;
        if server.shutdown.has_begun() {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the server is stopping"));
        }
        if !login.is_valid() {
            return Err(gone(login));
        }
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        server.stats.note(Event::Connection);
        let (addr, laddr) = (ADDRESS.to_owned(), ADDRESS.to_owned());
        let info = ConnectionInfo { addr, laddr, fd: far.as_raw_fd(), transport: Transport::InProcess };
        let clients_max = server.settings.size(Id::MaxClients).saturating_add(IN_PROCESS_MAX);
        let has_room = server.clients.in_process_count() < IN_PROCESS_MAX;
        let added = has_room.then(|| server.clients.add(info, server.uptime_ms(), clients_max, false));
        let Some(client) = added.flatten() else {
            server.stats.note(Event::RejectedConnection);
            let text = format!("{IN_PROCESS_MAX} in-process connections are open, which is the maximum");
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        };
        client.labels.lock().name = NAME.to_owned();
        let thread = &self.threads[(client.id % self.threads.len() as u64) as usize];
        let mut connection = Connection::new(Arc::clone(server), Arc::clone(&thread.stats), client);
        if !connection.log_in(Arc::clone(&login.user)) {
            return Err(gone(login));
        }
        start_on(thread, connection, far, tokio::net::UnixStream::from_std, Connection::serve);
        Ok(near)
    }
}

/// Equal logins are valid as long as each other.
impl PartialEq for Login {
    fn eq(&self, other: &Login) -> bool {
        Arc::ptr_eq(&self.user, &other.user) && self.proof == other.proof
    }
}

impl Login {
    /// Returns the name of the user.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(self.user.name()).into_owned()
    }

    /// Whether the user could log in now as it has before: it was not removed or disabled, and its password is still
    /// right.
    pub fn is_valid(&self) -> bool {
        match &self.proof {
            Proof::Password(hash) => self.user.accepts(hash),
            Proof::NotNeeded => !self.server.requires_login(),
            Proof::Internal => true,
        }
    }

    /// Whether the user may see the figures of a stream: it may run XINFO STREAM and XINFO GROUPS on this key. A denial
    /// is not counted and not logged.
    pub fn may_read(&self, key: &[u8]) -> bool {
        self.user.is_unrestricted()
            || LOOK_COMMANDS.iter().all(|[command, subcommand]| self.may_run(&[command, subcommand, key]))
    }

    /// Whether the user may see the figures of the server: it may run INFO. A denial is not counted and not logged.
    pub fn may_see_figures(&self) -> bool {
        self.user.is_unrestricted() || self.may_run(&[b"INFO"])
    }

    /// Whether the user may see what other users do: it may run ACL LOG. A denial is not counted and not logged.
    pub fn may_see_others(&self) -> bool {
        self.user.is_unrestricted() || self.may_run(&[b"ACL", b"LOG"])
    }

    /// Whether the user may run a command, given with its subcommand, on some key. A denial is not counted and not
    /// logged.
    pub fn may_run_somewhere(&self, command: &[&str]) -> bool {
        let argv: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        self.user.is_unrestricted()
            || table::find(&argv).is_ok_and(|spec| check_request(&self.user, spec, &argv, &[]).is_ok())
    }

    fn may_run(&self, argv: &[&[u8]]) -> bool {
        table::find(argv)
            .is_ok_and(|spec| check_request(&self.user, spec, argv, &required_keys(spec, argv)).is_ok())
    }
}

fn gone(login: &Login) -> io::Error {
    let text = format!("the user {} may no longer log in", login.name());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Setting, Settings};
    use std::io::{Read, Write};

    fn start(pairs: &[(&str, &str)]) -> InProcess {
        let settings = Settings::new();
        for (name, value) in [("port", "0"), ("appendonly", "no")].iter().chain(pairs) {
            settings.set(Setting::find(name).unwrap().id, value).unwrap();
        }
        Server::start(settings).unwrap().in_process()
    }

    fn connect(server: &InProcess, login: &Login) -> UnixStream {
        let stream = server.connect_as(login).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    }

    fn ask(mut stream: &UnixStream, request: &str) -> String {
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let mut reply = vec![0; 1 << 16];
        let count = stream.read(&mut reply).unwrap();
        String::from_utf8(reply[..count].to_vec()).unwrap()
    }

    fn set_user(server: &InProcess, rules: &str) {
        let admin = connect(server, &server.internal_login());
        assert_eq!(ask(&admin, &format!("ACL SETUSER {rules}")), "+OK\r\n");
    }

    #[test]
    fn connection_has_the_rights_of_its_user() {
        let server = start(&[("requirepass", "secret"), ("timeout", "1")]);
        set_user(&server, "alice on >pw ~orders:* +@read +xadd +acl|whoami +client|list");
        assert!(server.default_login().is_none());
        let alice = server.log_in("alice", "pw", "10.0.0.9:1").unwrap();
        let stream = connect(&server, &alice);
        assert_eq!(ask(&stream, "ACL WHOAMI"), "$5\r\nalice\r\n");
        assert!(ask(&stream, "XADD orders:eu * a b").starts_with('$'));
        assert!(ask(&stream, "XADD mails * a b").starts_with("-NOPERM"));
        assert!(ask(&stream, "FLUSHALL").starts_with("-NOPERM"));
        let listed = ask(&stream, "CLIENT LIST");
        assert!(listed.contains(" addr=dashboard:0 ") && listed.contains(" name=dashboard "), "{listed}");
        assert!(listed.contains(" user=alice "), "{listed}");
        set_user(&server, "alice -xadd");
        assert!(ask(&stream, "XADD orders:eu * a b").starts_with("-NOPERM"));
        server.server().shutdown.begin();
    }

    #[test]
    fn user_that_is_removed_disabled_or_has_a_new_password_is_logged_out() {
        let server = start(&[]);
        set_user(&server, "alice on >pw +@all ~*");
        let alice = server.log_in("alice", "pw", "").unwrap();
        for (rules, undo) in [("alice off", "alice on"), ("alice <pw >new", "alice >pw")] {
            set_user(&server, rules);
            assert!(!alice.is_valid(), "{rules}");
            assert_eq!(server.connect_as(&alice).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            set_user(&server, undo);
            assert!(alice.is_valid(), "{undo}");
        }
        let mut stream = connect(&server, &alice);
        assert_eq!(ask(&stream, "PING"), "+PONG\r\n");
        let admin = connect(&server, &server.internal_login());
        assert_eq!(ask(&admin, "ACL DELUSER alice"), ":1\r\n");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert!(!alice.is_valid() && !alice.may_read(b"orders"));
        // A new user of the same name is another user.
        set_user(&server, "alice on >pw +@all ~*");
        assert!(!alice.is_valid());
        server.server().shutdown.begin();
    }

    #[test]
    fn default_user_is_logged_in_while_it_needs_no_password() {
        let server = start(&[]);
        let visitor = server.default_login().unwrap();
        assert!(visitor.is_valid() && visitor.may_read(b"orders"));
        let admin = connect(&server, &server.internal_login());
        assert_eq!(ask(&admin, "CONFIG SET requirepass secret"), "+OK\r\n");
        assert!(!visitor.is_valid() && server.default_login().is_none());
        assert_eq!(ask(&connect(&server, &server.internal_login()), "PING"), "+PONG\r\n");
        server.server().shutdown.begin();
    }

    #[test]
    fn failed_login_is_counted_and_logged() {
        let server = start(&[("requirepass", "secret")]);
        assert!(server.log_in("default", "wrong", "10.0.0.9:1").is_none());
        assert!(server.log_in("(internal)", "", "10.0.0.9:1").is_none());
        let admin = connect(&server, &server.internal_login());
        let log = ask(&admin, "ACL LOG");
        assert!(log.contains("addr=10.0.0.9:1 name=dashboard") && log.contains("(internal)"), "{log}");
        assert!(ask(&admin, "INFO stats").contains("acl_access_denied_auth:2\r\n"));
        server.server().shutdown.begin();
    }

    #[test]
    fn only_streams_that_a_user_may_inspect_are_readable() {
        let server = start(&[]);
        set_user(&server, "reader on >pw %R~orders:* +@read");
        set_user(&server, "writer on >pw ~orders:* +xadd");
        let readable = |user: &str, key: &[u8]| server.log_in(user, "pw", "").unwrap().may_read(key);
        assert!(readable("reader", b"orders:eu") && !readable("reader", b"mails"));
        assert!(!readable("writer", b"orders:eu"));
        let sees_figures = |user: &str| server.log_in(user, "pw", "").unwrap().may_see_figures();
        assert!(!sees_figures("reader"));
        set_user(&server, "reader +info");
        assert!(sees_figures("reader"));
        let sees_others = |user: &str| server.log_in(user, "pw", "").unwrap().may_see_others();
        assert!(!sees_others("reader"));
        set_user(&server, "reader +acl|log");
        assert!(sees_others("reader"));
        let admin = connect(&server, &server.internal_login());
        assert!(ask(&admin, "INFO stats").contains("acl_access_denied_cmd:0\r\n"));
        server.server().shutdown.begin();
    }

    #[test]
    fn in_process_connections_exceed_maxclients_up_to_a_limit() {
        let server = start(&[("maxclients", "1")]);
        let login = server.internal_login();
        let open: Vec<_> = (0..IN_PROCESS_MAX).map(|_| connect(&server, &login)).collect();
        assert!(ask(&open[0], "INFO clients").contains(&format!("connected_clients:{IN_PROCESS_MAX}\r\n")));
        assert_eq!(server.connect_as(&login).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(open);
        while server.connect_as(&login).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        server.server().shutdown.begin();
        assert!(server.connect_as(&login).is_err());
    }
}
