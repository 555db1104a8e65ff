//! What a server can do, found out by trying, on a key that does not exist.
//!
//! A server that cannot write now (its disk or memory is full, or it is a replica) refuses a trial before it looks at it.
//! That tells nothing: it is asked again when it matters, and whoever wanted to know has the server's error until then.

use std::time::Duration;

use parking_lot::RwLock;
use redis::{Cmd, Value};

use super::super::{Capabilities, Consumer, Error, ErrorKind, Read, StreamId};
use super::commands::{self, command};
use super::link::Link;
use super::reply::{array, checked, text};

/// The key of the trials: nobody has it, and trying does not make it.
const KEY: &str = "millstream:probe";

/// Commands and options beyond Redis 6.2 that the server has; `None` where it could not be found out yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Natives {
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
    /// Whether lag is never unknown.
    exact_lag: bool,
}

/// What has been found out about a server so far.
#[derive(Debug)]
pub(super) struct Probe {
    found: RwLock<Natives>,
}

impl Probe {
    pub(super) async fn begin(link: &Link) -> Result<Probe, Error> {
        let (found, _) = Natives::try_out(link).await?;
        Ok(Probe { found: RwLock::new(found) })
    }

    /// Whether the server has it. Asks again if the server could not tell before.
    pub(super) async fn has(&self, link: &Link, native: fn(&Natives) -> Option<bool>) -> Result<bool, Error> {
        if let Some(has) = native(&self.found()) {
            return Ok(has);
        }
        let (found, cannot_tell) = Natives::try_out(link).await?;
        *self.found.write() = found;
        match (native(&found), cannot_tell) {
            (Some(has), _) => Ok(has),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(false),
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let found = self.found();
        let natives = [found.read_claims, found.nack, found.extend, found.idempotence];
        // Whoever relies on what is not known yet is told so by `has`.
        let [read_claims, releases, extends, idempotent_adds] = natives.map(|has| has.unwrap_or(true));
        let certain = natives.iter().all(Option::is_some);
        Capabilities { read_claims, releases, extends, idempotent_adds, exact_lag: found.exact_lag, certain }
    }

    pub(super) fn found(&self) -> Natives {
        *self.found.read()
    }
}

impl Natives {
    /// What the server has, and why some of it cannot be told now.
    async fn try_out(link: &Link) -> Result<(Natives, Option<Error>), Error> {
        // A server that is not ready must not pass for one that can do little.
        link.command(KEY, commands::ping()).await?;
        let answers = link.pipeline(KEY, trials()).await?;
        let mut answers = answers.into_iter();
        let mut next = || checked(answers.next().unwrap_or(Value::Nil));
        let mut cannot_tell = None;
        let mut told = |answer: Result<bool, Error>| {
            answer.map_err(|error| cannot_tell.get_or_insert(error).kind()).ok()
        };
        let natives = Natives {
            read_claims: told(misses_the_group(next())),
            nack: told(misses_the_group(next())),
            extend: told(misses_the_group(next())),
            adopt: told(misses_the_group(next())),
            idempotence: told(succeeds(next())),
            scripts: told(succeeds(next())),
            exact_lag: is_yes(next()),
        };
        Ok((natives, cannot_tell))
    }
}

fn trials() -> Vec<Cmd> {
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

/// A server that knows the command misses the group; one that does not says something else.
fn misses_the_group(answer: Result<Value, Error>) -> Result<bool, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::NoGroup => Ok(true),
        answer => succeeds(answer).map(|_| false),
    }
}

/// An error that passes says nothing about the command.
fn succeeds(answer: Result<Value, Error>) -> Result<bool, Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.is_passing() => Err(error),
        Err(_) => Ok(false),
    }
}

fn is_yes(answer: Result<Value, Error>) -> bool {
    answer.and_then(array).is_ok_and(|pair| {
        pair.into_iter().nth(1).is_some_and(|value| text(value).is_ok_and(|yes| yes == "yes"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_server_lacks_counts_as_absent() {
        let refused = |kind| Err(Error::new(kind, "no"));
        assert_eq!(misses_the_group(refused(ErrorKind::NoGroup)).ok(), Some(true));
        assert_eq!(misses_the_group(refused(ErrorKind::Refused)).ok(), Some(false));
        assert_eq!(misses_the_group(refused(ErrorKind::Busy)).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(succeeds(Ok(Value::Nil)).ok(), Some(true));
        assert_eq!(succeeds(refused(ErrorKind::Denied)).ok(), Some(false));
        assert_eq!(succeeds(refused(ErrorKind::Busy)).unwrap_err().kind(), ErrorKind::Busy);
    }
}
