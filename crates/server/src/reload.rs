//! SIGHUP: the server reads its settings and its TLS files again.
//!
//! It compares the settings with those that it read before. So a value that CONFIG SET has changed stays until the
//! operator changes the setting in the file. Either all changes are applied, or none if one of them is invalid.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::event_log::Level;
use crate::settings::{Changeable, Id, SETTINGS, Setting, Settings, Value};
use crate::state::Server;

/// Reads the settings that the operator has set. The error is a text for people.
pub(crate) type ReadSettings = Arc<dyn Fn() -> Result<Settings, String> + Send + Sync>;

/// The settings as the operator has set them, and how to read them again.
pub(crate) struct Configured {
    pub(crate) settings: Settings,
    /// `None` if the program that runs the server has no file to read.
    pub(crate) read: Option<ReadSettings>,
}

/// Installs the handler of SIGHUP. Call it before the data is loaded, which can take long: from now on, SIGHUP does not
/// end the process, and the returned receiver remembers it.
pub(crate) fn catch_hangups() -> io::Result<Signal> {
    // The handler belongs to the process. The runtime is needed only to install it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let hangups = {
        let _context = runtime.enter();
        signal(SignalKind::hangup())
    };
    runtime.shutdown_background();
    hangups
}

pub(crate) fn listen_for_hangups(
    server: &Arc<Server>,
    mut hangups: Signal,
    mut configured: Configured,
) -> JoinHandle<()> {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let server = Arc::clone(&server);
            let reload = move || {
                configured.reload(&server);
                configured
            };
            // Files can be slow to read, and this thread accepts connections.
            match tokio::task::spawn_blocking(reload).await {
                Ok(same) => configured = same,
                Err(_) => return,
            }
        }
    })
}

impl Configured {
    fn reload(&mut self, server: &Server) {
        match self.try_reload(server) {
            Ok(done) => {
                server.event_log.write(Level::Notice, &format!("SIGHUP: {done}"));
                let fixed = self.need_restart(server);
                if !fixed.is_empty() {
                    let fixed = fixed.join(", ");
                    let message = format!("SIGHUP: restart the server to change {fixed}");
                    server.event_log.write(Level::Warning, &message);
                }
            }
            Err(error) => {
                let error: Vec<&str> = error.split_whitespace().collect();
                let message = format!("SIGHUP: nothing was changed: {}", error.join(" "));
                server.event_log.write(Level::Warning, &message);
            }
        }
    }

    /// Applies what has changed. Returns what was done.
    fn try_reload(&mut self, server: &Server) -> Result<String, String> {
        let new = match &self.read {
            Some(read) => read()?,
            None => self.settings.copied(),
        };
        let values: Vec<(Id, Value)> = settings(Changeable::Anytime)
            .map(|setting| (setting.id, new.value(setting.id)))
            .filter(|(id, value)| *value != self.settings.value(*id))
            .collect();
        let changes: Vec<String> = values.iter().map(|(id, value)| describe(*id, value)).collect();
        let has_tls = server.reload(values)?;
        self.settings = new;
        let changed = match changes.is_empty() {
            true => "no setting has changed".to_owned(),
            false => format!("changed {}", changes.join(", ")),
        };
        let tls = "; the server has read the TLS files again, and uses them for new connections";
        Ok(if has_tls { changed + tls } else { changed })
    }

    /// Returns the settings that were read and differ from those in force, and that only a restart can change.
    fn need_restart(&self, server: &Server) -> Vec<String> {
        settings(Changeable::AtStart)
            .map(|setting| (setting.id, self.settings.value(setting.id)))
            .filter(|(id, value)| *value != server.settings.value(*id))
            .map(|(id, value)| describe(id, &value))
            .collect()
    }
}

fn settings(changeable: Changeable) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.changeable == changeable)
}

/// Describes a change. Does not contain passwords.
fn describe(id: Id, value: &Value) -> String {
    let name = id.setting().name;
    match (id, value.clone().show(id)) {
        (Id::RequirePass, _) => name.to_owned(),
        (_, text) if text.is_empty() => format!("{name} to \"\""),
        (_, text) => format!("{name} to {text}"),
    }
}
