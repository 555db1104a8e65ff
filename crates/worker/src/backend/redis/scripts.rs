//! Small scripts for servers that lack a command: each looks at the owner and acts on it in one step.
//!
//! On such servers XCLAIM drops a pending row whose entry is gone. The scripts therefore look for the entry first,
//! and leave such a row where it is, to be found by [`AUTOCLAIM`] and dead-lettered.

use std::sync::OnceLock;

use redis::{ToRedisArgs, Value};

use super::super::{Error, ErrorKind};
use super::Redis;
use super::commands::command;
use super::errors::says;

/// The most rows in one script: a script holds up everybody else.
pub(super) const ROWS_PER_SCRIPT: usize = 500;

/// A script, and its name on the server.
pub(super) struct Script {
    code: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(code: &'static str) -> Script {
        Script { code, hash: OnceLock::new() }
    }

    /// Runs it. The first key decides on which server of a cluster.
    pub(super) async fn run(
        &self,
        redis: &Redis,
        keys: &[&str],
        arguments: impl ToRedisArgs,
    ) -> Result<Value, Error> {
        if !redis.has(|natives| natives.scripts).await? {
            let message = "the server has neither scripts nor the commands that would do without them";
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let hash = self.hash.get_or_init(|| redis::Script::new(self.code).get_hash().to_owned());
        let command = |verb: &str, script: &str| command!(verb, script, keys.len(), keys, &arguments);
        match redis.link.command(keys[0], command("EVALSHA", hash)).await {
            Err(error) if says(&error, "NOSCRIPT") => {
                redis.link.command(keys[0], command("EVAL", self.code)).await
            }
            answer => answer,
        }
    }
}

/// Restarts the idle time of rows that are the consumer's. KEYS: stream. ARGV: group, consumer, ids.
/// Gives the ids that are the consumer's.
pub(super) static EXTEND: Script = Script::new(
    r"
local ours = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local row = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])
  if row.err then return row end
  if #row > 0 then
    ours[#ours + 1] = id
    if #redis.call('XRANGE', KEYS[1], id, id) > 0 then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'JUSTID')
    end
  end
end
return ours",
);

/// Releases deliveries that are the consumer's and the last: their rows become nobody's, as if untouched since 1970.
/// KEYS: stream. ARGV: group, consumer, nobody, then of each row its id, which delivery it is, and how many it is to count.
/// Gives how many there were.
pub(super) static RELEASE: Script = Script::new(
    r"
local released = 0
for i = 4, #ARGV, 3 do
  local id = ARGV[i]
  local row = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])
  if row.err then return row end
  if #row > 0 and row[1][4] == tonumber(ARGV[i + 1]) and #redis.call('XRANGE', KEYS[1], id, id) > 0 then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'TIME', 0, 'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
    released = released + 1
  end
end
return released",
);

/// Moves rows to dead letters: those of the consumer, and those whose entry is gone, which nobody can work on.
/// KEYS: stream, then of each row its dead-letter stream. ARGV: group, consumer, then of each row its id, how many
/// arguments its fields are, and those. Gives the ids that moved.
pub(super) static DEAD_LETTER: Script = Script::new(
    r"
local moved, i = {}, 3
for letter = 2, #KEYS do
  local id, fields = ARGV[i], tonumber(ARGV[i + 1])
  local row = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if row.err then return row end
  if #row > 0 and (row[1][2] == ARGV[2] or #redis.call('XRANGE', KEYS[1], id, id) == 0) then
    redis.call('XADD', KEYS[letter], '*', unpack(ARGV, i + 2, i + 1 + fields))
    redis.call('XACK', KEYS[1], ARGV[1], id)
    moved[#moved + 1] = id
  end
  i = i + 2 + fields
end
return moved",
);

/// Gives all rows of a consumer to its heir, with times and counts as they are, and removes the consumer. Rows whose
/// entry is gone cannot change hands; while there are any, the consumer stays with them.
/// KEYS: stream. ARGV: group, consumer, heir. Gives how many rows moved.
pub(super) static REMOVE_CONSUMER: Script = Script::new(
    r"
local moved, from, gone = 0, '-', false
while true do
  local rows = redis.pcall('XPENDING', KEYS[1], ARGV[1], from, '+', 500, ARGV[2])
  if rows.err then return rows end
  if #rows == 0 then break end
  for _, row in ipairs(rows) do
    local id = row[1]
    if #redis.call('XRANGE', KEYS[1], id, id) > 0 then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'IDLE', row[3], 'RETRYCOUNT', row[4], 'JUSTID')
      moved = moved + 1
    else
      gone = true
    end
  end
  from = '(' .. rows[#rows][1]
end
if not gone then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
return moved",
);

/// Removes a consumer unless it holds something. KEYS: stream. ARGV: group, consumer. Gives whether it is gone.
pub(super) static REMOVE_EMPTY_CONSUMER: Script = Script::new(
    r"
local rows = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if rows.err then return rows end
if #rows > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1",
);

/// Claims idle rows; one that was released natively has an idle time of -1. KEYS: stream. ARGV: group, consumer, least idle time, first id, most rows to take, most rows
/// to look at. Gives the last id looked at, or nothing if there are no more rows, and of each row its id, the number
/// of deliveries and its fields, or nothing where they are gone.
pub(super) static AUTOCLAIM: Script = Script::new(
    r"
local rows = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], '+', ARGV[6])
if rows.err then return rows end
local taken, last, most = {}, false, tonumber(ARGV[5])
for at, row in ipairs(rows) do
  if #taken == most then break end
  if row[3] < 0 or row[3] >= tonumber(ARGV[3]) then
    local entry = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
    if entry then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'RETRYCOUNT', row[4] + 1, 'JUSTID')
      taken[#taken + 1] = {row[1], row[4] + 1, entry[2]}
    else
      taken[#taken + 1] = {row[1], row[4], false}
    end
  end
  last = row[1]
  if at == #rows and #rows < tonumber(ARGV[6]) then last = false end
end
return {last, taken}",
);

/// Makes an entry pending again, as nobody's. KEYS: stream. ARGV: group, nobody, id. Gives whether there is the entry.
pub(super) static RESTORE: Script = Script::new(
    r"
local row = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if row.err then return row end
if #redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3]) == 0 then return 0 end
if #row == 0 then
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'TIME', 0, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
end
return 1",
);
