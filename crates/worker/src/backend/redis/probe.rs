//! Detects which commands a server has, by sending each when it is first needed.
//!
//! A probe names the stream of the call that needs the feature, and a group that does not exist. So it changes nothing,
//! it needs no key but the stream, and on a cluster it reaches the node that owns the stream. A server without the
//! command or option replies with another error than one that has it.
//!
//! Some errors show nothing: the server rejects writes (its disk or memory is full, or it is a replica), or the user
//! lacks a permission. The feature then stays unknown, and the call that needs it fails with the server's error.

use std::time::Duration;

use parking_lot::RwLock;
use redis::{Cmd, Value};

use super::super::{Consumer, Error, ErrorKind, Read, StreamId};
use super::commands::{self, command};
use super::connection::Connection;
use super::errors::is_missing_key;
use super::reply::{array, text};

/// The group that probes name. It never exists.
pub(super) const PROBE_GROUP: &str = "millstream:probe";

/// A command, option or setting that not every server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// `XREADGROUP … CLAIM`.
    ReadClaims,
    /// XNACK.
    Nack,
    /// `XNACK … DELAY`.
    NackDelay,
    /// XEXTEND.
    Extend,
    /// XADOPT.
    Adopt,
    /// Trims with ACKED, which keep what a group still needs.
    AckedTrims,
    /// XINFO MISSED.
    Missed,
    /// XADD with a delay, and XDELAY.
    Delays,
    /// XPOLICY.
    Policies,
    /// `XADD … IDMP`.
    Idempotence,
    /// `XREADGROUP … MAXCOUNT`.
    ReadLimit,
    /// EVAL.
    Scripts,
    /// The setting `exact-lag` is on: the server always knows the lag.
    ExactLag,
}

const FEATURES: usize = Feature::ExactLag as usize + 1;

/// The features of a server, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct FeatureProbe {
    known: RwLock<[Option<bool>; FEATURES]>,
}

impl FeatureProbe {
    /// Returns whether the server has a feature. Sends the probe if that is not known yet.
    pub(super) async fn supports(
        &self,
        connection: &Connection,
        feature: Feature,
        stream: &str,
    ) -> Result<bool, Error> {
        if let Some(has) = self.known(feature) {
            return Ok(has);
        }
        let reply = connection.command(stream, feature.probe(stream)).await;
        self.learn(feature, reply)
    }

    /// Returns whether the server has a feature, or `None` if that is not known yet.
    pub(super) fn known(&self, feature: Feature) -> Option<bool> {
        self.known.read()[feature as usize]
    }

    /// Stores whether the server has a feature.
    pub(super) fn assume(&self, feature: Feature, has: bool) {
        self.known.write()[feature as usize] = Some(has);
    }

    /// Stores what the reply to a feature's probe shows.
    pub(super) fn learn(&self, feature: Feature, reply: Result<Value, Error>) -> Result<bool, Error> {
        // Redis 6.2 looks for the key before the subcommand, so the reply about a missing stream shows nothing.
        if matches!((feature, &reply), (Feature::Missed, Err(error)) if is_missing_key(error)) {
            return Ok(false);
        }
        let has = feature.is_shown_by(reply)?;
        self.assume(feature, has);
        Ok(has)
    }
}

impl Feature {
    /// Returns the command that shows whether the server has the feature.
    pub(super) fn probe(self, stream: &str) -> Cmd {
        let (group, id) = (PROBE_GROUP, StreamId::new(0, 1));
        let consumer = Consumer::new(stream, group, "c");
        match self {
            Feature::ReadClaims => {
                let claim_idle = Some(Duration::ZERO);
                commands::read_group(
                    &Read { stream, group, consumer: "c", count: 1, block: None, claim_idle },
                    None,
                )
            }
            Feature::ReadLimit => {
                command!("XREADGROUP", "GROUP", group, "c", "MAXCOUNT", 1, "STREAMS", stream, ">")
            }
            Feature::Nack => commands::release(stream, group, &[id]),
            // A server with the option checks it before it looks for the group. Every server refuses the command.
            Feature::NackDelay => commands::release_delayed(stream, group, &[id], -1),
            Feature::Extend => commands::extend(consumer, &[id]),
            Feature::Adopt => commands::adopt(consumer, "d"),
            // No entry has an id before 0-0, so the command removes nothing.
            Feature::AckedTrims => command!("XTRIM", stream, "MINID", "=", "0-0", "ACKED"),
            Feature::Missed => command!("XINFO", "MISSED", stream),
            // Every server refuses the id: a delay has a maximum of ten years.
            Feature::Delays => command!("XADD", stream, "*+315360000001", "f", "v"),
            Feature::Policies => command!("XPOLICY", "GET", stream),
            // Every server rejects the id 0-0, so the command adds nothing.
            Feature::Idempotence => command!("XADD", stream, "IDMP", "p", "i", "0-0", "f", "v"),
            Feature::Scripts => command!("EVAL", "return 1", 0),
            Feature::ExactLag => command!("CONFIG", "GET", "exact-lag"),
        }
    }

    /// Returns whether the reply to the probe shows that the server has the feature. Returns the error if it shows
    /// nothing.
    fn is_shown_by(self, reply: Result<Value, Error>) -> Result<bool, Error> {
        if let Err(error) = &reply
            && (error.is_transient() || error.kind() == ErrorKind::Denied)
        {
            return reply.map(|_| false);
        }
        Ok(match self {
            // A server without the feature takes IDMP for an invalid id.
            Feature::Idempotence => reply.is_err_and(|error| error.to_string().contains("IDMP")),
            Feature::NackDelay => reply.is_err_and(|error| error.to_string().contains("DELAY value")),
            Feature::Delays => reply.is_err_and(|error| {
                error.kind() == ErrorKind::WrongType || error.to_string().contains("delay is out of range")
            }),
            Feature::Missed | Feature::Policies => match reply {
                Ok(_) => true,
                Err(error) => is_missing_key(&error) || error.kind() == ErrorKind::WrongType,
            },
            Feature::Scripts => reply.is_ok(),
            Feature::ExactLag => is_yes(reply),
            // A server that looks for the group has accepted the command and its options.
            _ => match reply {
                Ok(_) => true,
                Err(error) => matches!(error.kind(), ErrorKind::NoGroup | ErrorKind::WrongType),
            },
        })
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
    fn only_replies_about_the_command_show_whether_a_server_has_it() {
        let reply = |kind| Err(Error::new(kind, "no"));
        let learnt = |feature: Feature, kind| feature.is_shown_by(reply(kind)).map_err(|error| error.kind());
        assert_eq!(learnt(Feature::Nack, ErrorKind::NoGroup), Ok(true));
        assert_eq!(learnt(Feature::Nack, ErrorKind::WrongType), Ok(true));
        assert_eq!(learnt(Feature::Nack, ErrorKind::Refused), Ok(false));
        for feature in [Feature::Nack, Feature::Scripts, Feature::Idempotence, Feature::ExactLag] {
            for kind in [ErrorKind::Busy, ErrorKind::NotWritable, ErrorKind::Unreachable, ErrorKind::Denied] {
                assert_eq!(learnt(feature, kind), Err(kind), "{feature:?}");
            }
        }
        assert_eq!(learnt(Feature::Scripts, ErrorKind::Refused), Ok(false));
        assert!(Feature::Scripts.is_shown_by(Ok(Value::Int(1))).unwrap());
        let refused = |text| Err(Error::new(ErrorKind::Refused, text));
        let knows_delay = |text| Feature::NackDelay.is_shown_by(refused(text)).unwrap();
        assert!(knows_delay("ERR Invalid DELAY value, must be >= 0"));
        assert!(!knows_delay("ERR Unrecognized XNACK option 'DELAY'"));
        assert_eq!(learnt(Feature::NackDelay, ErrorKind::NoGroup), Ok(false));
        let delays = |text| Feature::Delays.is_shown_by(refused(text)).unwrap();
        assert!(delays("ERR delay is out of range"));
        assert!(!delays("ERR Invalid stream ID specified as stream command argument"));
    }
}
