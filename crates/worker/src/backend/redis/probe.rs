//! What a server can do, found out by trying, on a key that does not exist.

use redis::{Pipeline, Value, pipe};

use super::super::{Capabilities, Error};
use super::link::Link;
use super::reply::{array, checked, text};

/// The key of the trials: nobody has it, and trying does not make it.
const KEY: &str = "millstream:probe";

/// Commands and options beyond Redis 6.2 that the server has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Natives {
    /// `XREADGROUP … CLAIM`.
    pub(super) read_claims: bool,
    /// XNACK.
    pub(super) nack: bool,
    /// XEXTEND.
    pub(super) extend: bool,
    /// XADOPT.
    pub(super) adopt: bool,
    /// `XADD … IDMP`.
    pub(super) idempotence: bool,
    /// EVAL.
    pub(super) scripts: bool,
    /// Whether lag is never unknown.
    pub(super) exact_lag: bool,
}

impl Natives {
    pub(super) async fn probe(link: &Link) -> Result<Natives, Error> {
        // A server that is not ready must not pass for one that can do little.
        link.command(KEY, redis::cmd("PING")).await?;
        let answers = link.pipeline(KEY, trials()).await?;
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        Ok(Natives {
            read_claims: is_known(next()),
            nack: is_known(next()),
            extend: is_known(next()),
            adopt: is_known(next()),
            idempotence: checked(next()).is_ok(),
            scripts: checked(next()).is_ok(),
            exact_lag: is_yes(next()),
        })
    }

    pub(super) fn capabilities(self) -> Capabilities {
        Capabilities {
            read_claims: self.read_claims,
            releases: self.nack,
            extends: self.extend,
            idempotent_adds: self.idempotence,
            exact_lag: self.exact_lag,
        }
    }
}

fn trials() -> Pipeline {
    let mut trials = pipe();
    trials.cmd("XREADGROUP").arg("GROUP").arg("g").arg("c").arg("COUNT").arg(1).arg("CLAIM").arg(0);
    trials.arg("STREAMS").arg(KEY).arg(">");
    trials.cmd("XNACK").arg(KEY).arg("g").arg("SILENT").arg("IDS").arg(1).arg("0-1");
    trials.cmd("XEXTEND").arg(KEY).arg("g").arg("c").arg("IDS").arg(1).arg("0-1");
    trials.cmd("XADOPT").arg(KEY).arg("g").arg("c").arg("d");
    trials.cmd("XADD").arg(KEY).arg("NOMKSTREAM").arg("IDMP").arg("p").arg("i").arg("*").arg("f").arg("v");
    trials.cmd("EVAL").arg("return 1").arg(0);
    trials.cmd("CONFIG").arg("GET").arg("exact-lag");
    trials
}

/// A server that knows the command misses the group; one that does not says something else.
fn is_known(answer: Value) -> bool {
    checked(answer).is_err_and(|error| error.kind() == super::super::ErrorKind::NoGroup)
}

fn is_yes(answer: Value) -> bool {
    array(answer).is_ok_and(|pair| {
        pair.into_iter().nth(1).is_some_and(|value| text(value).is_ok_and(|yes| yes == "yes"))
    })
}
