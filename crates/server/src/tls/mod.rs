//! TLS: the configuration in force and its reload, handshakes, and encrypted sockets.
//!
//! A new configuration is built whole before it replaces the one in force. Connections keep the configuration with
//! which they began.

mod config;
mod handshake;
mod sessions;
mod stream;

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use tokio::net::TcpStream;

use crate::settings::{Id, Settings, Value};
use config::{Fingerprint, TlsSettings};
use handshake::HandshakeThread;

pub use config::TlsError;
pub(crate) use handshake::HandshakeError;
pub(crate) use stream::TlsStream;

pub(crate) struct Tls {
    config: RwLock<Arc<ServerConfig>>,
    /// The files from which the configuration was last built, whether or not that succeeded.
    files: Mutex<Fingerprint>,
    thread: HandshakeThread,
}

/// A configuration that is complete, and not yet in force.
pub(crate) struct NewConfig {
    config: Arc<ServerConfig>,
    files: Fingerprint,
}

impl NewConfig {
    /// Builds a configuration from the settings and from `proposed` values, which replace those of the settings.
    fn build(settings: &Settings, proposed: &[(Id, Value)]) -> Result<NewConfig, TlsError> {
        let settings = current(settings, proposed);
        // Taken before the files are read, so that `files_have_changed` notices a change during the read.
        let files = settings.fingerprint();
        Ok(NewConfig { config: Arc::new(settings.build()?), files })
    }
}

fn current(settings: &Settings, proposed: &[(Id, Value)]) -> TlsSettings {
    TlsSettings::new(|id| match proposed.iter().find(|(other, _)| *other == id) {
        Some((_, value)) => value.clone().show(id),
        None => settings.show(id),
    })
}

impl Tls {
    pub(crate) fn configure(settings: &Settings) -> Result<NewConfig, TlsError> {
        NewConfig::build(settings, &[])
    }

    /// Puts a first configuration in force and starts the thread for handshakes.
    pub(crate) fn start(first: NewConfig) -> io::Result<Tls> {
        Ok(Tls {
            config: RwLock::new(first.config),
            files: Mutex::new(first.files),
            thread: HandshakeThread::start()?,
        })
    }

    pub(crate) async fn accept(&self, socket: TcpStream) -> Result<TlsStream, HandshakeError> {
        let config = Arc::clone(&self.config.read());
        self.thread.run(config, socket).await
    }

    /// Builds the configuration for a change of settings, if one of them concerns TLS.
    pub(crate) fn prepare(
        &self,
        settings: &Settings,
        proposed: &[(Id, Value)],
    ) -> Result<Option<NewConfig>, TlsError> {
        match proposed.iter().any(|(id, _)| TlsSettings::includes(*id)) {
            true => NewConfig::build(settings, proposed).map(Some),
            false => Ok(None),
        }
    }

    pub(crate) fn replace(&self, new: NewConfig) {
        *self.config.write() = new.config;
        *self.files.lock() = new.files;
    }

    /// Reads the files again, for a change of settings. If one cannot be used, [`Tls::files_have_changed`] returns
    /// false until a file changes.
    pub(crate) fn read_again(
        &self,
        settings: &Settings,
        proposed: &[(Id, Value)],
    ) -> Result<NewConfig, TlsError> {
        *self.files.lock() = current(settings, &[]).fingerprint();
        NewConfig::build(settings, proposed)
    }

    pub(crate) fn files_have_changed(&self, settings: &Settings) -> bool {
        *self.files.lock() != current(settings, &[]).fingerprint()
    }
}
