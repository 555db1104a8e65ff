//! Parts of requests.

use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

use super::super::{StreamId, Trim};

/// An id as an argument, written where it is needed.
pub(super) struct Id(pub(super) StreamId);

impl ToRedisArgs for Id {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self.0);
    }
}

impl ToSingleRedisArg for Id {}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// The longest idle time a server is asked for, about 30 years. Where releases are emulated, released rows look untouched since
/// 1970: they match this, as released rows match any idle time, and no delivery is that long ago.
const IDLE_MS_MAX: u64 = 30 * 365 * 24 * 3600 * 1000;

pub(super) fn idle_millis(min_idle: Duration) -> u64 {
    millis(min_idle).min(IDLE_MS_MAX)
}

/// `MAXLEN ~ n` or `MAXLEN = n`.
pub(super) fn trim_arguments(command: &mut redis::Cmd, trim: Trim) {
    let (sign, length) = match trim {
        Trim::About(length) => ("~", length),
        Trim::Exactly(length) => ("=", length),
    };
    command.arg("MAXLEN").arg(sign).arg(length);
}
