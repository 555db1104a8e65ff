//! Detects which commands a server has, by sending them for a key that does not exist.
//!
//! A server that rejects writes (its disk or memory is full, or it is a replica) rejects a probe without parsing it.
//! The feature then stays unknown. The next call that needs the feature probes again. If the feature is still unknown,
//! the call fails with the server's error.

use std::time::Duration;

use parking_lot::RwLock;
use redis::{Cmd, Value};

use super::super::{Capabilities, Consumer, Error, ErrorKind, Read, StreamId};
use super::commands::{self, command};
use super::connection::Connection;
use super::reply::{array, checked, text};

/// The key that the probes use. No stream has this name, and the probes do not create it.
const KEY: &str = "millstream:probe";

/// Which commands and options that not every server has, such as those newer than Redis 6.2, this server has. `None`
/// if not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerFeatures {
    /// `XREADGROUP … CLAIM`.
    pub(super) read_claims: Option<bool>,
    /// XNACK.
    pub(super) nack: Option<bool>,
    /// XEXTEND.
    pub(super) extend: Option<bool>,
    /// XADOPT.
    pub(super) adopt: Option<bool>,
    /// `XADD … IDMP`.
    pub(super) idempotence: Option<bool>,
    /// EVAL.
    pub(super) scripts: Option<bool>,
    /// The setting `exact-lag` is on: the server always knows the lag.
    exact_lag: bool,
}

/// The features of a server, as far as they are known.
#[derive(Debug)]
pub(super) struct FeatureProbe {
    features: RwLock<ServerFeatures>,
}

impl FeatureProbe {
    pub(super) async fn run(connection: &Connection) -> Result<FeatureProbe, Error> {
        let (features, _) = ServerFeatures::detect(connection).await?;
        Ok(FeatureProbe { features: RwLock::new(features) })
    }

    /// Returns whether the server has a feature. Probes again if that is not known yet.
    pub(super) async fn supports(
        &self,
        connection: &Connection,
        feature: fn(&ServerFeatures) -> Option<bool>,
    ) -> Result<bool, Error> {
        if let Some(has) = feature(&self.features()) {
            return Ok(has);
        }
        let (features, probe_error) = ServerFeatures::detect(connection).await?;
        *self.features.write() = features;
        match (feature(&features), probe_error) {
            (Some(has), _) => Ok(has),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(false),
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let ServerFeatures { read_claims, nack, extend, idempotence, exact_lag, .. } = self.features();
        let probed = [read_claims, nack, extend, idempotence];
        // Unknown features count as present: a call that relies on one gets an error from `supports`.
        let [read_claims, releases, extends, idempotent_adds] = probed.map(|has| has.unwrap_or(true));
        let confirmed = probed.iter().all(Option::is_some);
        Capabilities { read_claims, releases, extends, idempotent_adds, exact_lag, confirmed }
    }

    pub(super) fn features(&self) -> ServerFeatures {
        *self.features.read()
    }
}

impl ServerFeatures {
    /// Probes the server. Also returns the first error that left a feature unknown.
    async fn detect(connection: &Connection) -> Result<(ServerFeatures, Option<Error>), Error> {
        // Fail if the server is not ready, instead of treating its errors as missing features.
        connection.command(KEY, redis::cmd("PING")).await?;
        let replies = connection.pipeline(KEY, probe_commands()).await?;
        let mut replies = replies.into_iter();
        let mut next = || checked(replies.next().unwrap_or(Value::Nil));
        let mut probe_error = None;
        let mut known =
            |reply: Result<bool, Error>| reply.map_err(|error| probe_error.get_or_insert(error).kind()).ok();
        let features = ServerFeatures {
            read_claims: known(reports_missing_group(next())),
            nack: known(reports_missing_group(next())),
            extend: known(reports_missing_group(next())),
            adopt: known(reports_missing_group(next())),
            idempotence: known(succeeds(next())),
            scripts: known(succeeds(next())),
            exact_lag: is_yes(next()),
        };
        Ok((features, probe_error))
    }
}

fn probe_commands() -> Vec<Cmd> {
    let (id, claim_idle) = (StreamId::new(0, 1), Some(Duration::ZERO));
    let consumer = Consumer::new(KEY, "g", "c");
    let read = Read { stream: KEY, group: "g", consumer: "c", count: 1, block: None, claim_idle };
    vec![
        commands::read_group(&read, None),
        commands::release(KEY, "g", &[id]),
        commands::extend(consumer, &[id]),
        commands::adopt(consumer, "d"),
        command!("XADD", KEY, "NOMKSTREAM", "IDMP", "p", "i", "*", "f", "v"),
        command!("EVAL", "return 1", 0),
        command!("CONFIG", "GET", "exact-lag"),
    ]
}

/// Returns whether the reply is NOGROUP. A server without the command replies with another error.
fn reports_missing_group(reply: Result<Value, Error>) -> Result<bool, Error> {
    match reply {
        Err(error) if error.kind() == ErrorKind::NoGroup => Ok(true),
        reply => succeeds(reply).map(|_| false),
    }
}

/// Returns whether the command succeeded. A transient error, which does not show whether the command
/// exists, is returned as it is.
fn succeeds(reply: Result<Value, Error>) -> Result<bool, Error> {
    match reply {
        Ok(_) => Ok(true),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(false),
    }
}

fn is_yes(reply: Result<Value, Error>) -> bool {
    reply.and_then(array).is_ok_and(|pair| {
        pair.into_iter().nth(1).is_some_and(|value| text(value).is_ok_and(|yes| yes == "yes"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_leave_a_feature_unknown() {
        let failed = |kind| Err(Error::new(kind, "no"));
        assert_eq!(reports_missing_group(failed(ErrorKind::NoGroup)).ok(), Some(true));
        assert_eq!(reports_missing_group(failed(ErrorKind::Refused)).ok(), Some(false));
        assert_eq!(reports_missing_group(failed(ErrorKind::Busy)).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(succeeds(Ok(Value::Nil)).ok(), Some(true));
        assert_eq!(succeeds(failed(ErrorKind::Denied)).ok(), Some(false));
        assert_eq!(succeeds(failed(ErrorKind::Busy)).unwrap_err().kind(), ErrorKind::Busy);
    }
}
