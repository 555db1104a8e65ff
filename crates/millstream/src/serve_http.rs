//! `serve --http`: the dashboard of the running server, on a thread of its own.
//!
//! The thread has a low priority and its own runtime. If it panics, the dashboard ends and the server goes on. The
//! thread reaches the data only as a client of the server.

mod access;
mod audit;

use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use millstream_dash::Options;
use millstream_dash::options::PublicUrl;
use millstream_server::settings::{Id, Settings};
use millstream_server::{InProcess, Running};
use millstream_store::priority;
use millstream_worker::backend::Redis;
use millstream_worker::metrics::MoreSeries;
use millstream_worker::observe::{Sampler, SamplerOptions};
use millstream_worker::redaction::{DEFAULT_GLOBS, Redaction};
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use crate::ops::Failure;
use crate::ops::shell::line;
use access::UserAccess;

/// Starts the dashboard if the setting `http` has an address.
pub(crate) fn start(running: &mut Running, options: Options) -> Result<(), Failure> {
    let Some(listener) = running.take_http_listener() else { return Ok(()) };
    let server = running.in_process();
    let location = location(running);
    let history_bytes = running.settings().size(Id::HttpHistoryMemory);
    let started = thread::Builder::new().name("http".into()).spawn(move || {
        priority::lower();
        run(&server, || serve(listener, options, &server, location, history_bytes));
    });
    // Nothing waits for the thread: its connections end with the server.
    started
        .map(drop)
        .map_err(|error| Failure::Other(format!("cannot start the thread of the dashboard: {error}")))
}

/// Runs the dashboard, and logs why it has ended unless the server stops.
fn run(server: &InProcess, serve: impl FnOnce() -> io::Result<()>) {
    let ended = catch_unwind(AssertUnwindSafe(serve));
    if server.server().shutdown.has_begun() {
        return;
    }
    let reason = match ended {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked, which is a defect of Millstream".to_owned(),
    };
    let message =
        format!("the dashboard has ended, and the server goes on without it until it is restarted: {reason}");
    server.log_warning(&message);
}

/// Serves the dashboard until the server stops.
fn serve(
    listener: TcpListener,
    mut options: Options,
    server: &InProcess,
    location: String,
    history_bytes: usize,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _log = log_warnings(server.clone());
    let place = location.clone();
    let result = runtime.block_on(async {
        let access = Arc::new(UserAccess::new(server.clone(), listener.local_addr()?, location));
        options.audit = Some(audit::sink(server.clone()));
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let stopped = CancellationToken::new();
        let _stop = stopped.clone().drop_guard();
        // Sees all streams. The dashboard shows each visitor only those that its user may read.
        let (dialled, login) = (server.clone(), server.internal_login());
        let backend = Redis::over(move || dialled.connect_as(&login), "dashboard", &place);
        let sampler =
            Sampler::start(Arc::new(backend), SamplerOptions::default().history_memory(history_bytes));
        tokio::select! {
            result = millstream_dash::serve(listener, options, access, sampler, stopped) => result,
            // The in-process connections end with the server, so there is nothing to wait for.
            () = server.server().shutdown.begun() => Ok(()),
        }
    });
    runtime.shutdown_background();
    result
}

/// Writes the warnings of the dashboard into the log of the server, as long as the returned guard lives.
fn log_warnings(server: InProcess) -> DefaultGuard {
    let lines = LogLines(server);
    let subscriber = tracing_subscriber::fmt().with_max_level(Level::WARN).with_writer(lines);
    let subscriber = subscriber.without_time().with_level(false).with_target(false).with_ansi(false);
    tracing::subscriber::set_default(subscriber.finish())
}

/// Each write is one line.
#[derive(Clone)]
struct LogLines(InProcess);

impl MakeWriter<'_> for LogLines {
    type Writer = LogLines;

    fn make_writer(&self) -> LogLines {
        self.clone()
    }
}

impl io::Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.log_warning(&format!("dashboard: {}", String::from_utf8_lossy(line).trim()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the options of the dashboard that the settings describe.
pub(crate) fn options(settings: &Settings) -> Result<Options, Failure> {
    let words = |id| settings.text(id).split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let public_url = Some(settings.text(Id::HttpPublicUrl)).filter(|url| !url.is_empty());
    let public_url = public_url.map(|url| PublicUrl::parse(&url)).transpose();
    let mut options = Options::default();
    options.read_only = settings.is_on(Id::HttpReadOnly);
    options.more_series = MoreSeries {
        consumers: settings.is_on(Id::HttpMetricsConsumers),
        partitions: settings.is_on(Id::HttpMetricsPartitions),
    };
    options.payloads = settings.is_on(Id::HttpPayloads);
    let globs = DEFAULT_GLOBS.map(str::to_owned).into_iter().chain(words(Id::HttpRedact));
    options.redaction =
        Redaction::new(globs).map_err(|error| Failure::Other(format!("http-redact: {error}")))?;
    options.command_line = line;
    options.allowed_hosts = words(Id::HttpAllowHost);
    options.public_url = public_url.map_err(|error| Failure::Other(format!("http-public-url: {error}")))?;
    Ok(options)
}

/// Returns the URL under which the command line reaches the server.
fn location(running: &Running) -> String {
    match (running.addresses(), running.tls_addresses()) {
        ([address, ..], _) => format!("redis://{address}"),
        ([], [address, ..]) => format!("rediss://{address}"),
        ([], []) => format!("unix://{}", running.settings().text(Id::UnixSocket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_server::{Server, settings::Setting};

    fn set(settings: &Settings, pairs: &[(&str, &str)]) {
        for (name, value) in pairs {
            settings.set(Setting::find(name).unwrap().id, value).unwrap();
        }
    }

    #[test]
    fn a_panic_or_an_error_ends_the_dashboard_and_not_the_server() {
        let settings = Settings::new();
        set(&settings, &[("port", "0"), ("appendonly", "no")]);
        let running = Server::start(settings).unwrap();
        let server = running.in_process();
        run(&server, || panic!("a planted defect"));
        run(&server, || Err(io::Error::other("no more files")));
        let login = server.internal_login();
        assert!(!server.server().shutdown.has_begun() && server.connect_as(&login).is_ok());
        server.server().shutdown.begin();
    }

    #[test]
    fn options_follow_from_the_settings() {
        let settings = Settings::new();
        set(
            &settings,
            &[
                ("http-read-only", "yes"),
                ("http-payloads", "no"),
                ("http-allow-host", "ops.example  other.example"),
                ("http-public-url", "https://ops.example/streams"),
            ],
        );
        let options = options(&settings).unwrap();
        assert!(options.read_only && !options.payloads);
        assert_eq!(options.allowed_hosts, ["ops.example", "other.example"]);
        assert_eq!(options.public_url.unwrap().origin(), "https://ops.example");
        set(&settings, &[("http-public-url", "ops.example")]);
        assert!(super::options(&settings).is_err());
    }
}
