//! Lua scripts that replace commands which a server lacks. Each atomically checks who owns a pending entry and changes
//! it.
//!
//! On such servers XCLAIM removes a pending entry whose stream entry was deleted. The scripts check with XRANGE first
//! and leave such entries pending. [`AUTOCLAIM`] returns them, and the worker dead-letters them.

use std::sync::OnceLock;

use redis::{ToRedisArgs, Value};

use super::super::{Error, ErrorKind};
use super::Redis;
use super::commands::command;
use super::errors::starts_with;
use super::probe::Feature;

/// Maximum number of pending entries per script call. The server executes no other command while a script runs.
pub(super) const ROWS_PER_SCRIPT: usize = 500;

/// A script, and the hash that identifies it on the server.
pub(super) struct Script {
    code: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(code: &'static str) -> Script {
        Script { code, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.code).get_hash().to_owned())
    }

    /// Runs the script on the server, or on the node of the cluster that owns the first key.
    pub(super) async fn run(
        &self,
        redis: &Redis,
        keys: &[&str],
        arguments: impl ToRedisArgs,
    ) -> Result<Value, Error> {
        if !redis.has(Feature::Scripts, keys[0]).await? {
            let message = "the server supports neither Lua scripts nor the commands they replace; allow EVAL";
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let hash = self.hash();
        let command = |verb: &str, script: &str| command!(verb, script, keys.len(), keys, &arguments);
        match redis.connection.command(keys[0], command("EVALSHA", hash)).await {
            Err(error) if starts_with(&error, "NOSCRIPT") => {
                redis.connection.command(keys[0], command("EVAL", self.code)).await
            }
            reply => reply,
        }
    }
}

static SCRIPTS: [&Script; 9] = [
    &EXTEND,
    &RELEASE,
    &DEAD_LETTER,
    &REMOVE_CONSUMER,
    &REMOVE_EMPTY_CONSUMER,
    &AUTOCLAIM,
    &RESTORE,
    &TRIM_ACKNOWLEDGED,
    &MOVE_GROUP,
];

/// Returns the names of the commands that a script runs, as ACL rules have them. Finds the script by its hash or its
/// code.
pub(super) fn commands_of(hash_or_code: &str) -> Vec<String> {
    let is_meant = |script: &&&Script| script.hash() == hash_or_code || script.code == hash_or_code;
    let code = SCRIPTS.iter().find(is_meant).map_or("", |script| script.code);
    let calls =
        code.split("call('").skip(1).filter_map(|rest| rest.split_once("')").or(rest.split_once(')')));
    let name = |(call, _): (&str, &str)| {
        let mut words = call.split('\'').map(str::to_lowercase);
        let name = words.next().unwrap_or_default();
        match words.nth(1).filter(|_| ["xgroup", "xinfo"].contains(&&*name)) {
            Some(subcommand) => format!("{name}|{subcommand}"),
            None => name,
        }
    };
    let mut names: Vec<String> = calls.map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Resets the idle time of the consumer's pending entries. Returns the ids of those that the consumer owns.
///
/// KEYS: stream. ARGV: group, consumer, ids.
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

/// Releases those of the consumer's pending entries whose delivery count is as expected, and writes their retry
/// records. Returns their number.
///
/// A released entry moves to the consumer [`RELEASED_CONSUMER`](super::RELEASED_CONSUMER), with an idle time that says
/// when it [can be claimed](super::CLAIMABLE_IDLE_MS).
///
/// The record comes without its times: the script adds them by the clock of the server. The entry is released first. A
/// server without memory refuses a script whose first write needs memory, but not a later one.
///
/// KEYS: stream, hash of retry records. ARGV: group, consumer, new owner, idle time of an entry that can be claimed;
/// then for each entry its id, its expected delivery count, its new delivery count, its delay in ms, and its record as
/// a JSON object, or an empty text.
pub(super) static RELEASE: Script = Script::new(
    r#"
local records = redis.pcall('HLEN', KEYS[2])
if type(records) == 'table' then return records end
local time = redis.call('TIME')
local released, now = 0, time[1] * 1000 + math.floor(time[2] / 1000)
for i = 5, #ARGV, 5 do
  local id, delay, record = ARGV[i], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local row = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])
  if row.err then return row end
  if #row > 0 and row[1][4] == tonumber(ARGV[i + 1]) and #redis.call('XRANGE', KEYS[1], id, id) > 0 then
    local idle = string.format('%.0f', ARGV[4] - delay)
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'IDLE', idle, 'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
    if record ~= '' then
      local times = string.format('{"due_at_ms":%.0f,"failed_at_ms":%.0f', now + delay, now)
      local rest = record == '{}' and '}' or ',' .. string.sub(record, 2)
      redis.call('HSET', KEYS[2], id, times .. rest)
    end
    released = released + 1
  end
end
return released"#,
);

/// Moves pending entries to dead-letter streams and deletes their retry records. Returns the ids moved.
///
/// Moves only the consumer's own entries. Exception: a pending entry whose stream entry was deleted can belong to any
/// consumer.
///
/// KEYS: stream, hash of retry records, then for each entry its dead-letter stream. ARGV: group, consumer; then for
/// each entry its id, the number of arguments that its fields take, and its fields.
pub(super) static DEAD_LETTER: Script = Script::new(
    r"
local records = redis.pcall('HLEN', KEYS[2])
if type(records) == 'table' then return records end
local moved, i = {}, 3
for dead_letter = 3, #KEYS do
  local id, fields = ARGV[i], tonumber(ARGV[i + 1])
  local row = redis.pcall('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if row.err then return row end
  if #row > 0 and (row[1][2] == ARGV[2] or #redis.call('XRANGE', KEYS[1], id, id) == 0) then
    redis.call('XADD', KEYS[dead_letter], '*', unpack(ARGV, i + 2, i + 1 + fields))
    redis.call('XACK', KEYS[1], ARGV[1], id)
    if records > 0 then redis.call('HDEL', KEYS[2], id) end
    moved[#moved + 1] = id
  end
  i = i + 2 + fields
end
return moved",
);

/// Moves all pending entries of a consumer to another consumer, its heir, and removes the consumer. Returns the number
/// moved.
///
/// Idle times and delivery counts do not change. An entry that was deleted from the stream cannot move; if there is
/// one, the consumer is not removed.
///
/// KEYS: stream. ARGV: group, consumer, heir.
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

/// Removes a consumer that has no pending entries. Returns 1, or 0 if it has some.
///
/// KEYS: stream. ARGV: group, consumer.
pub(super) static REMOVE_EMPTY_CONSUMER: Script = Script::new(
    r"
local rows = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if rows.err then return rows end
if #rows > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1",
);

/// Claims idle and released pending entries, but not those that wait. A released entry has an idle time of -1 on a
/// server with XNACK. Elsewhere it belongs to [`RELEASED_CONSUMER`](super::RELEASED_CONSUMER), and its idle time says
/// [how long it waits](super::CLAIMABLE_IDLE_MS).
///
/// Returns the last id examined, or nil after the last pending entry; for each claimed entry its id, its delivery count
/// and its fields, or nil if it was deleted from the stream; and the time in ms until the first entry that waits can be
/// claimed, or -1.
///
/// KEYS: stream. ARGV: group, consumer, minimum idle time in ms, first id, maximum number of entries to claim, maximum
/// number of entries to examine, owner of released entries, idle time of one that can be claimed.
pub(super) static AUTOCLAIM: Script = Script::new(
    r"
local rows = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[4], '+', ARGV[6])
if rows.err then return rows end
local taken, last, max, due = {}, false, tonumber(ARGV[5]), -1
local min_idle, claimable = tonumber(ARGV[3]), tonumber(ARGV[8])
for at, row in ipairs(rows) do
  if #taken == max then break end
  local idle = row[3]
  if row[2] == ARGV[7] and idle < claimable then
    if due < 0 or claimable - idle < due then due = claimable - idle end
  elseif idle < 0 or idle >= min_idle then
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
return {last, taken, due}",
);

/// Makes an entry pending again, as if it had been released. Returns 1, or 0 if the stream does not have the entry.
///
/// KEYS: stream. ARGV: group, new owner, id.
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

/// Trims entries before the smallest id that any group still needs. Returns the number trimmed.
///
/// A group needs its first pending entry and what comes after it, and all entries after its position. Ids are compared
/// as text, because a number in Lua has only 53 bits.
///
/// KEYS: stream. ARGV: how many entries to trim at most; then ALL, or MAXLEN or MINID with its threshold; then `=` for
/// an exact trim or `~` for one of whole blocks. Without groups, ALL trims nothing, and the others trim as XTRIM does.
pub(super) static TRIM_ACKNOWLEDGED: Script = Script::new(
    r"
local function plus_one(number)
  local head, nines = string.match(number, '^(.-)(9*)$')
  local zeros = string.rep('0', #nines)
  if head == '' then return '1' .. zeros end
  return string.sub(head, 1, -2) .. string.char(string.byte(head, -1) + 1) .. zeros
end
local function after(id)
  local ms, seq = string.match(id, '(%d+)-(%d+)')
  if seq == '18446744073709551615' then return plus_one(ms) .. '-0' end
  return ms .. '-' .. plus_one(seq)
end
local function is_less(a, b)
  local a_ms, a_seq = string.match(a, '(%d+)-(%d+)')
  local b_ms, b_seq = string.match(b, '(%d+)-(%d+)')
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  return #a_ms < #b_ms or #a_ms == #b_ms and a_ms < b_ms
end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err then
  if string.find(groups.err, 'no such key', 1, true) then return 0 end
  return groups
end
local needed
for _, group in ipairs(groups) do
  local facts = {}
  for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
  local first = after(facts['last-delivered-id'])
  if facts['pending'] > 0 then
    local row = redis.call('XPENDING', KEYS[1], facts['name'], '-', '+', 1)[1]
    if is_less(row[1], first) then first = row[1] end
  end
  if not needed or is_less(first, needed) then needed = first end
end
local most, kind, threshold, exactness = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local trimmed = 0
if kind == 'MAXLEN' and needed then
  local excess = math.min(redis.call('XLEN', KEYS[1]) - tonumber(threshold), most)
  if exactness == '~' then
    if excess <= 0 then return 0 end
    return redis.call('XTRIM', KEYS[1], 'MINID', '~', needed, 'LIMIT', excess)
  end
  while trimmed < excess do
    local rows = redis.call('XRANGE', KEYS[1], '-', '(' .. needed, 'COUNT', math.min(excess - trimmed, 100))
    if #rows == 0 then break end
    trimmed = trimmed + redis.call('XTRIM', KEYS[1], 'MINID', '=', after(rows[#rows][1]))
  end
  return trimmed
end
if kind == 'MAXLEN' then return redis.call('XTRIM', KEYS[1], 'MAXLEN', exactness, threshold) end
if kind == 'MINID' and (not needed or is_less(threshold, needed)) then needed = threshold end
if not needed then return 0 end
trimmed = redis.call('XTRIM', KEYS[1], 'MINID', '~', needed, 'LIMIT', most)
if exactness == '=' and trimmed < most / 2 then
  trimmed = trimmed + redis.call('XTRIM', KEYS[1], 'MINID', '=', needed)
end
return trimmed",
);

/// Moves a group if it has not moved. Returns 1, 0 if it has another position, or nil if it does not exist.
///
/// KEYS: stream. ARGV: group, expected position, new position.
pub(super) static MOVE_GROUP: Script = Script::new(
    r"
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err then return groups end
for _, group in ipairs(groups) do
  local facts = {}
  for i = 1, #group, 2 do facts[group[i]] = group[i + 1] end
  if facts['name'] == ARGV[1] then
    if facts['last-delivered-id'] ~= ARGV[2] then return 0 end
    redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[3])
    return 1
  end
end
return false",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_script_are_found_in_its_code() {
        assert_eq!(commands_of(RESTORE.hash()), ["xclaim", "xpending", "xrange"]);
        assert_eq!(commands_of(DEAD_LETTER.code), ["hdel", "hlen", "xack", "xadd", "xpending", "xrange"]);
        assert_eq!(commands_of(RELEASE.code), ["hlen", "hset", "time", "xclaim", "xpending", "xrange"]);
        assert_eq!(commands_of(REMOVE_EMPTY_CONSUMER.hash()), ["xgroup|delconsumer", "xpending"]);
        assert_eq!(
            commands_of(TRIM_ACKNOWLEDGED.hash()),
            ["xinfo|groups", "xlen", "xpending", "xrange", "xtrim"]
        );
        assert_eq!(commands_of(MOVE_GROUP.code), ["xgroup|setid", "xinfo|groups"]);
        assert_eq!(commands_of("return 1"), [""; 0]);
    }
}
