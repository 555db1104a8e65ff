//! `millstream dash`: serves the dashboard for any store. Parses the options; `millstream_dash` does the rest.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use millstream_dash::options::PublicUrl;
use millstream_dash::{LoginKind, OneStore, Options};
use millstream_worker::Admin;
use millstream_worker::observe::{Sampler, SamplerOptions};
use millstream_worker::redaction::{DEFAULT_GLOBS, Redaction};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::ops::Failure;
use crate::ops::address::parse_address;
use crate::ops::connection::{CommonOptions, DASH_PASSWORD_VARIABLE};
use crate::ops::log::LogOptions;
use crate::ops::policy::parse_bytes;
use crate::ops::shell::line;
use crate::ops::time::parse_duration;

const EXAMPLES: &str = "\
Examples:
  millstream dash
  millstream dash --url redis://127.0.0.1:6379 --listen 127.0.0.1:8080
  millstream dash --url embedded:DATA --read-only --redact 'card*' --redact data.user.email
  MILLSTREAM_DASH_PASSWORD=... millstream dash --listen 0.0.0.0:8002 --public-url https://ops.example/millstream

Fields whose names contain password, secret or token, and the field authorization, are always hidden.";

/// Serve the dashboard: web pages and a JSON API to watch and operate streams
#[derive(Args, Debug)]
// The hidden --json gets an error message of its own.
#[command(after_help = EXAMPLES, mut_arg("json", |json| json.hide(true)))]
pub(crate) struct Dash {
    /// Address to listen on; port 0 chooses a free port. Without a password, only a loopback address is allowed
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8002", value_parser = parse_address)]
    listen: String,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// Never show the values of fields
    #[arg(long)]
    no_payloads: bool,
    /// Hide values whose field name or path in a JSON payload matches this glob pattern; can be repeated
    #[arg(long, value_name = "GLOB")]
    redact: Vec<String>,
    /// Read the password that visitors enter from this file [env: MILLSTREAM_DASH_PASSWORD is the password itself]
    #[arg(long, value_name = "FILE")]
    dash_password_file: Option<PathBuf>,
    /// URL under which visitors reach the dashboard, if a proxy is in front of it
    #[arg(long, value_name = "URL", value_parser = PublicUrl::parse)]
    public_url: Option<PublicUrl>,
    /// Host name under which browsers may reach the dashboard, in addition to localhost; can be repeated
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Append a record of each action to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Time between two looks at the store while somebody watches; all visitors share them
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,
    /// Maximum memory of the history of streams and groups
    #[arg(long, value_name = "BYTES", default_value = "64mb", value_parser = parse_bytes)]
    history_memory: u64,
    /// Serve the pages from this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    assets: Option<PathBuf>,
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    common: CommonOptions,
}

impl Dash {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        if self.common.json {
            return Err(Failure::Usage("dash has no JSON output; its API answers at /api/v1".to_owned()));
        }
        let options = self.options()?;
        let password = self.password()?;
        let listener = TcpListener::bind(&self.listen)
            .await
            .map_err(|error| Failure::Other(format!("cannot listen on {}: {error}", self.listen)))?;
        let address = listener.local_addr()?;
        let login = if password.is_some() { LoginKind::Password } else { LoginKind::None };
        millstream_dash::check_address(address, login).map_err(|error| {
            Failure::Usage(format!(
                "{error}\nset a password with --dash-password-file FILE or {DASH_PASSWORD_VARIABLE}, or listen on 127.0.0.1"
            ))
        })?;
        let backend = self.common.connect().await?;
        let location = backend.location();
        let sampling = SamplerOptions::default()
            .interval(self.interval)
            .history_memory(usize::try_from(self.history_memory).unwrap_or(usize::MAX));
        let sampler = Sampler::start(Arc::clone(&backend), sampling);
        let access = Arc::new(access(backend, password));
        self.log.start("info", |line| {
            // If standard error is closed, there is no place left to report it.
            let _ = io::stderr().write_all(line);
        })?;
        info!("serving the dashboard of {location} at http://{address}/");
        let stopped = CancellationToken::new();
        millstream_dash::serve(listener, options, access, sampler, stopped)
            .await
            .map_err(|error| Failure::Other(error.to_string()))
    }

    fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::default();
        options.read_only = self.read_only;
        options.payloads = !self.no_payloads;
        let globs = DEFAULT_GLOBS.into_iter().chain(self.redact.iter().map(String::as_str));
        options.redaction = Redaction::new(globs).map_err(Failure::Usage)?;
        options.command_line = line;
        options.public_url.clone_from(&self.public_url);
        options.allowed_hosts.clone_from(&self.allow_host);
        options.assets.clone_from(&self.assets);
        if let Some(path) = &self.audit {
            let file = OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
                Failure::Other(format!("cannot write the record of actions to {}: {error}", path.display()))
            })?;
            let (file, path) = (Mutex::new(file), path.clone());
            options.audit = Some(Arc::new(move |record| {
                if let Err(error) = file.lock().write_all(format!("{record}\n").as_bytes()) {
                    tracing::error!("cannot write a record of an action to {}: {error}", path.display());
                }
            }));
        }
        Ok(options)
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let password = match &self.dash_password_file {
            None => std::env::var(DASH_PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()),
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                Failure::Other(format!("cannot read the password file {}: {error}", path.display()))
            })?),
        };
        let password = password.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        match password {
            Some(password) if password.is_empty() => {
                Err(Failure::Usage("the password file is empty: write a password into it".to_owned()))
            }
            password => Ok(password),
        }
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let is_valid = (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&interval);
    if is_valid { Ok(interval) } else { Err("expected 100ms to 60s".to_owned()) }
}

fn access(backend: Arc<dyn Admin>, password: Option<String>) -> OneStore {
    match password {
        Some(password) => OneStore::with_password(backend, password),
        None => OneStore::open(backend),
    }
}
