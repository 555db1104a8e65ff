//! Every error that a command can return, with Redis' texts.
//!
//! A text begins with its code (`ERR`, `WRONGTYPE`, `NOGROUP`…). The reply writer adds the `-` before it and the line
//! end after it. A quoted argument ends at its first NUL byte, and its line ends become spaces.

use std::fmt;

use millstream_engine::Refusal;
use millstream_engine::policy::{DEAD_LETTERS_BYTES_MAX, PolicyField};

/// The error reply of a command.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandError(Text);

#[derive(Clone, PartialEq, Eq)]
enum Text {
    Fixed(&'static str),
    Composed(Box<[u8]>),
}

impl CommandError {
    /// Returns an error with a constant text, which includes its code.
    pub const fn fixed(text: &'static str) -> CommandError {
        CommandError(Text::Fixed(text))
    }

    /// Returns an error whose text is the concatenation of `parts`, which include the code. Line ends become spaces.
    pub fn composed(parts: &[&[u8]]) -> CommandError {
        let mut text = parts.concat();
        for byte in &mut text {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        CommandError(Text::Composed(text.into_boxed_slice()))
    }

    /// Returns the text: one line that begins with the code.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Fixed(text) => text.as_bytes(),
            Text::Composed(text) => text,
        }
    }

    /// Returns the code, which is the first word, such as `ERR`. INFO counts errors per code.
    pub fn code(&self) -> &[u8] {
        let text = self.as_bytes();
        text.iter().position(|&byte| byte == b' ').map_or(text, |end| &text[..end])
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandError({self})")
    }
}

impl std::error::Error for CommandError {}

impl From<Refusal> for CommandError {
    /// For [`Refusal::NoGroup`], prefer the errors that name the key and the group: [`no_key_or_group`],
    /// [`no_group_in_xreadgroup`] and [`no_group_for_key`].
    fn from(refusal: Refusal) -> CommandError {
        CommandError::fixed(match refusal {
            // Parsers return these errors too.
            Refusal::IdIsZero => return ID_IS_ZERO,
            Refusal::OutOfMemory => return OUT_OF_MEMORY,
            Refusal::NameTooLong => return NAME_TOO_LONG,
            Refusal::DelayOutOfRange => return XNACK_DELAY_RANGE,
            Refusal::DueOutOfRange => "ERR delay is out of range, must be at most 315360000000 milliseconds",
            Refusal::AdoptsItself => return ADOPTS_ITSELF,
            Refusal::NotAnInteger => return NOT_AN_INTEGER,
            Refusal::NotAFloat => return NOT_A_FLOAT,
            Refusal::NoSuchDatabase => return DB_OUT_OF_RANGE,
            Refusal::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Refusal::NoSuchKey => "ERR no such key",
            Refusal::NoGroup => "NOGROUP No such key or consumer group",
            Refusal::GroupNeedsKey => {
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                 MKSTREAM option to create an empty stream automatically."
            }
            Refusal::GroupExists => "BUSYGROUP Consumer Group name already exists",
            Refusal::TooManyGroups => {
                "ERR The stream has 65536 consumer groups, the maximum. Destroy groups that nobody reads from."
            }
            Refusal::IdNotGreater => {
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            }
            Refusal::IdsExhausted => {
                "ERR The stream has exhausted the last possible ID, unable to add more items"
            }
            Refusal::EntryTooLarge => "ERR Elements are too large to be stored",
            Refusal::NoFields => "ERR wrong number of arguments for 'xadd' command",
            Refusal::SetIdBelowMaxDeleted => {
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
            }
            Refusal::SetIdBelowLastEntry => {
                "ERR The ID specified in XSETID is smaller than the target stream top item"
            }
            Refusal::SetIdTooFewAdded => {
                "ERR The entries_added specified in XSETID is smaller than the target stream length"
            }
            Refusal::NoSuchEntry => "ERR No such message in stream",
            Refusal::IidConflict => "ERR IID already exists for this producer with a different stream ID",
            Refusal::HashNotAnInteger => "ERR hash value is not an integer",
            Refusal::HashNotAFloat => "ERR hash value is not a float",
            Refusal::IntegerOverflow => "ERR increment or decrement would overflow",
            Refusal::FloatOverflow => "ERR increment would produce NaN or Infinity",
            Refusal::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Refusal::PolicyNeedsLease(field) => return policy_needs_lease(field),
            Refusal::GroupNeedsLeaseOfStream(field) => return group_needs_lease(field, None),
            Refusal::DeadLettersToItself => "ERR DLQ must not be the stream itself",
            Refusal::SameObject => "ERR source and destination objects are the same",
            _ => "ERR the request was rejected",
        })
    }
}

/// Declares the constant errors, and a list of all of them for the tests.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub const $name: CommandError = CommandError::fixed($text);)*

        #[cfg(test)]
        const ALL: &[(&str, CommandError)] = &[$((stringify!($name), $name)),*];
    };
}

texts! {
    // Any command.

    /// Unknown, missing or incompatible options.
    SYNTAX = "ERR syntax error";
    /// Not a canonically spelled 64-bit integer.
    NOT_AN_INTEGER = "ERR value is not an integer or out of range";
    /// A count that is negative or not a number.
    NOT_POSITIVE = "ERR value is out of range, must be positive";
    /// An integer that does not fit in 32 bits.
    NOT_A_SMALL_INTEGER = "ERR value is out of range, value must between -2147483648 and 2147483647";
    /// Not a floating-point number.
    NOT_A_FLOAT = "ERR value is not a valid float";
    /// An increment that is not a finite number.
    NOT_FINITE = "ERR value is NaN or Infinity";
    /// DECRBY with the smallest 64-bit integer, which cannot be negated.
    DECREMENT_OVERFLOW = "ERR decrement would overflow";
    /// A timeout in milliseconds that is not an integer.
    TIMEOUT_NOT_AN_INTEGER = "ERR timeout is not an integer or out of range";
    /// A timeout in seconds that is not a number.
    TIMEOUT_NOT_A_FLOAT = "ERR timeout is not a float or out of range";
    /// A negative timeout.
    TIMEOUT_NEGATIVE = "ERR timeout is negative";
    /// A timeout so long that its deadline does not fit in 64 bits.
    TIMEOUT_OUT_OF_RANGE = "ERR timeout is out of range";
    /// A command with BLOCK or a timeout that names more than `BLOCKING_KEYS_MAX` keys.
    TOO_MANY_BLOCKING_KEYS = "ERR too many keys: a command that can block accepts at most 65536";
    /// A glob pattern that is longer than `PATTERN_BYTES_MAX`.
    PATTERN_TOO_LONG = "ERR the pattern is too long: a pattern has at most 4096 bytes";
    /// A pattern that takes too long to search.
    PATTERN_TOO_COMPLEX = "ERR the pattern is too complex: between two *, a pattern with ? or [...] has at most 128 characters or sets";
    /// A database number that does not exist.
    DB_OUT_OF_RANGE = "ERR DB index is out of range";

    // Streams.

    /// An argument that is not a valid stream id.
    INVALID_STREAM_ID = "ERR Invalid stream ID specified as stream command argument";
    /// A range that begins after the greatest possible id.
    INVALID_INTERVAL_START = "ERR invalid start ID for the interval";
    /// A range that ends before the smallest possible id.
    INVALID_INTERVAL_END = "ERR invalid end ID for the interval";
    /// XADD with the id `0-0`.
    ID_IS_ZERO = "ERR The ID specified in XADD must be greater than 0-0";
    /// A second MAXLEN or MINID.
    TRIM_TWICE = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
    /// A negative MAXLEN.
    MAXLEN_NEGATIVE = "ERR The MAXLEN argument must be >= 0.";
    /// A negative LIMIT.
    LIMIT_NEGATIVE = "ERR The LIMIT argument must be >= 0.";
    /// LIMIT without MAXLEN or MINID.
    LIMIT_WITHOUT_TRIM = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
    /// LIMIT with an exact threshold.
    LIMIT_WITHOUT_TILDE = "ERR syntax error, LIMIT cannot be used without the special ~ option";
    /// XTRIM with neither MAXLEN nor MINID.
    TRIM_MISSING = "ERR syntax error, XTRIM must be called with a trimming strategy";
    /// XADD with a second IDMP or IDMPAUTO.
    IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times";
    /// XADD IDMPAUTO with an empty producer id.
    IDMPAUTO_PRODUCER_EMPTY = "ERR syntax error, IDMPAUTO requires a non-empty producer ID";
    /// XADD IDMP with an empty producer id.
    IDMP_PRODUCER_EMPTY = "ERR syntax error, IDMP requires a non-empty producer ID";
    /// XADD IDMP with an empty idempotent id.
    IDMP_IID_EMPTY = "ERR syntax error, IDMP requires a non-empty idempotent ID";
    /// XADD IDMP or IDMPAUTO with an explicit entry id.
    IDMP_WITH_ID = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs";
    /// XDELEX, XACKDEL, XEXTEND: `numids` is not a positive integer.
    NUMIDS_NOT_POSITIVE = "ERR Number of IDs must be a positive integer";
    /// XDELEX, XACKDEL, XEXTEND: fewer ids than `numids`.
    NUMIDS_TOO_MANY = "ERR The `numids` parameter must match the number of arguments";
    /// XDELEX, XACKDEL, XEXTEND without IDS.
    IDS_MISSING = "ERR IDS option is required";
    /// XNACK with an unknown mode.
    XNACK_MODE = "ERR mode must be SILENT, FAIL, or FATAL";
    /// XNACK: `numids` is not a positive integer.
    XNACK_NUMIDS = "ERR numids must be a positive integer";
    /// XNACK: fewer ids than `numids`.
    XNACK_NUMIDS_TOO_MANY = "ERR number of IDs doesn't match numids";
    /// XNACK with a negative RETRYCOUNT.
    XNACK_RETRYCOUNT = "ERR Invalid RETRYCOUNT value, must be >= 0";
    /// XNACK with a negative DELAY.
    XNACK_DELAY = "ERR Invalid DELAY value, must be >= 0";
    /// XNACK with a DELAY of more than ten years.
    XNACK_DELAY_RANGE = "ERR DELAY is out of range, the maximum is ten years (315360000000 milliseconds)";
    /// XADD with `*@` and a time that is probably in seconds.
    DUE_TIME_IN_SECONDS = "ERR the time after *@ looks like seconds, it must be in milliseconds since 1970";
    /// XNACK without IDS.
    XNACK_IDS_MISSING = "ERR syntax error, expected IDS keyword";
    /// XCFGSET without a parameter.
    XCFGSET_NO_PARAMETER = "ERR At least one parameter must be specified";
    /// XCFGSET with a second IDMP-DURATION.
    IDMP_DURATION_TWICE = "ERR IDMP-DURATION specified multiple times";
    /// XCFGSET with an IDMP-DURATION out of range.
    IDMP_DURATION_RANGE = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
    /// XCFGSET with a second IDMP-MAXSIZE.
    IDMP_MAXSIZE_TWICE = "ERR IDMP-MAXSIZE specified multiple times";
    /// XCFGSET with an IDMP-MAXSIZE out of range.
    IDMP_MAXSIZE_RANGE = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
    /// XIDMPRECORD with an empty producer id.
    RECORD_PRODUCER_EMPTY = "ERR producer ID must be non-empty";
    /// XIDMPRECORD with an empty idempotent id.
    RECORD_IID_EMPTY = "ERR idempotent ID must be non-empty";
    /// XADOPT with the same consumer twice.
    ADOPTS_ITSELF = "ERR a consumer cannot adopt its own entries";
    /// XREAD, XREADGROUP: MAXCOUNT is not a positive integer.
    MAXCOUNT_NOT_POSITIVE = "ERR MAXCOUNT must be a positive integer";
    /// XREAD, XREADGROUP: MAXSIZE is not a positive integer.
    MAXSIZE_NOT_POSITIVE = "ERR MAXSIZE must be a positive integer";
    /// XREAD, XREADGROUP: MAXCOUNT, the limit for all streams together, is less than COUNT, the limit per stream.
    MAXCOUNT_BELOW_COUNT = "ERR MAXCOUNT must be greater than or equal to COUNT";
    /// XREADGROUP: CLAIM is not an integer.
    CLAIM_NOT_AN_INTEGER = "ERR min-idle-time is not an integer or out of range";
    /// XREADGROUP: CLAIM is negative.
    CLAIM_NEGATIVE = "ERR min-idle-time must be a positive integer";
    /// XREAD with more keys than ids, or more ids than keys.
    XREAD_UNBALANCED =
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.";
    /// XREADGROUP with more keys than ids, or more ids than keys.
    XREADGROUP_UNBALANCED =
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.";
    /// XREAD with GROUP.
    GROUP_IN_XREAD = "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
    /// XREAD with NOACK.
    NOACK_IN_XREAD = "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.";
    /// XREAD with CLAIM.
    CLAIM_IN_XREAD = "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.";
    /// XREADGROUP without GROUP.
    GROUP_MISSING = "ERR Missing GROUP option for XREADGROUP";
    /// XREAD with the id `>`.
    NEW_IN_XREAD = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                    <consumer> option.";
    /// XREADGROUP with the id `$`.
    LAST_IN_XREADGROUP = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                          history of this consumer by specifying a proper ID, or use the > ID to get new \
                          messages. The $ ID would just return an empty result set.";
    /// XREADGROUP with the id `+`.
    LAST_ENTRY_IN_XREADGROUP = "ERR The + ID is meaningless in the context of XREADGROUP: you want to read \
                                the history of this consumer by specifying a proper ID, or use the > ID to \
                                get new messages. The + ID would just return an empty result set.";
    /// XCLAIM: `min-idle-time` is not an integer.
    XCLAIM_MIN_IDLE = "ERR Invalid min-idle-time argument for XCLAIM";
    /// XCLAIM: IDLE is not an integer.
    XCLAIM_IDLE = "ERR Invalid IDLE option argument for XCLAIM";
    /// XCLAIM: TIME is not an integer.
    XCLAIM_TIME = "ERR Invalid TIME option argument for XCLAIM";
    /// XCLAIM: RETRYCOUNT is not an integer.
    XCLAIM_RETRYCOUNT = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
    /// XAUTOCLAIM: `min-idle-time` is not an integer.
    XAUTOCLAIM_MIN_IDLE = "ERR Invalid min-idle-time argument for XAUTOCLAIM";
    /// XAUTOCLAIM: COUNT is not a positive integer, or is too large.
    XAUTOCLAIM_COUNT = "ERR COUNT must be > 0";
    /// XGROUP: ENTRIESREAD is less than -1.
    ENTRIESREAD_NEGATIVE = "ERR value for ENTRIESREAD must be positive or -1";
    /// XSETID: ENTRIESADDED is negative.
    ENTRIESADDED_NEGATIVE = "ERR entries_added must be positive";
    /// XSETID: the id is smaller than MAXDELETEDID of the same request.
    SETID_BELOW_GIVEN_MAX_DELETED =
        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";

    // Keys and values.

    /// SCAN with a cursor that is not a number.
    INVALID_CURSOR = "ERR invalid cursor";
    /// EXPIRE with NX and another condition.
    EXPIRE_NX_AND_OTHERS = "ERR NX and XX, GT or LT options at the same time are not compatible";
    /// EXPIRE with GT and LT.
    EXPIRE_GT_AND_LT = "ERR GT and LT options at the same time are not compatible";
    /// SWAPDB: the first database is not a number.
    INVALID_FIRST_DB = "ERR invalid first DB index";
    /// SWAPDB: the second database is not a number.
    INVALID_SECOND_DB = "ERR invalid second DB index";
    /// OBJECT FREQ: the server does not count accesses.
    FREQ_NOT_TRACKED = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                        that when switching between policies at runtime LRU and LFU data will take some time \
                        to adjust.";

    // Transactions.

    /// MULTI inside a transaction.
    NESTED_MULTI = "ERR MULTI calls can not be nested";
    /// EXEC outside a transaction.
    EXEC_WITHOUT_MULTI = "ERR EXEC without MULTI";
    /// DISCARD outside a transaction.
    DISCARD_WITHOUT_MULTI = "ERR DISCARD without MULTI";
    /// WATCH inside a transaction.
    WATCH_IN_MULTI = "ERR WATCH inside MULTI is not allowed";
    /// WATCH of more keys than a client may watch.
    TOO_MANY_WATCHED_KEYS = "ERR too many keys: a client can watch at most 65536";
    /// EXEC after a command that could not be queued.
    EXEC_ABORTED = "EXECABORT Transaction discarded because of previous errors.";
    /// A command that adds data while more memory is in use than `maxmemory`.
    OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'.";
    /// A command that cannot be queued in a transaction.
    NOT_IN_TRANSACTION = "ERR Command not allowed inside a transaction";

    // Connections.

    /// A command before the client has authenticated.
    NO_AUTH = "NOAUTH Authentication required.";
    /// HELLO without AUTH before the client has authenticated.
    NO_AUTH_HELLO = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                     <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                     RESP protocol version at the same time";
    /// A wrong password or an unknown user.
    WRONG_PASS = "WRONGPASS invalid username-password pair or user is disabled.";
    /// AUTH on a server without a password.
    NO_PASSWORD_SET = "ERR AUTH <password> called without any password configured for the default user. Are \
                       you sure your configuration is correct?";
    /// A command on a key that the user may not access.
    NO_KEY_PERMISSION = "NOPERM No permissions to access a key";
    /// A queued command that the user may no longer run when EXEC runs it.
    NO_LONGER_PERMITTED = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
                           EXEC call. This command is no longer allowed for the following reason: no permission to \
                           execute the command or subcommand";
    /// A queued command on a key that the user may no longer access when EXEC runs it.
    NO_LONGER_PERMITTED_KEY = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
                               EXEC call. This command is no longer allowed for the following reason: no permission \
                               to touch the specified keys";
    /// HELLO with a protocol version other than 2 and 3.
    NO_PROTO = "NOPROTO unsupported protocol version";
    /// HELLO with a protocol version that is not an integer.
    HELLO_NOT_AN_INTEGER = "ERR Protocol version is not an integer or out of range";
    /// A connection beyond `maxclients`.
    MAX_CLIENTS = "ERR max number of clients reached";
    /// A connection from another machine to a server in protected mode without a password.
    PROTECTED_MODE = "DENIED This server runs in protected mode: the user default needs no password, so it accepts \
                      only connections from its own machine. To accept other clients, set a password (--requirepass, or \
                      CONFIG SET requirepass). If the network is trusted, you can turn protected mode off instead \
                      (--protected-mode no).";

    // ACL.

    /// ACL SETUSER with a name that a user cannot have.
    INVALID_USER_NAME = "ERR Usernames can't contain spaces or null characters";
    /// ACL DELUSER default.
    DEFAULT_USER_STAYS = "ERR The 'default' user cannot be removed";
    /// ACL GENPASS with a number of bits that is out of range.
    GENPASS_BITS = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number \
                    up to 4096";
    /// ACL GENPASS without a random source.
    NO_RANDOM_BYTES = "ERR the operating system returned no random bytes";

    // CLIENT.

    /// The name of a new group, consumer or user, or of a client, is too long.
    NAME_TOO_LONG = "ERR the name is too long: it can have at most 1024 bytes";
    /// CLIENT SETNAME with a name that is not printable ASCII without spaces.
    INVALID_CLIENT_NAME = "ERR Client names cannot contain spaces, newlines or special characters.";
    /// CLIENT LIST ID with an id that is not an integer.
    INVALID_CLIENT_ID = "ERR Invalid client ID";
    /// CLIENT KILL ID with an id that is not a positive integer.
    CLIENT_ID_NOT_POSITIVE = "ERR client-id should be greater than 0";
    /// CLIENT KILL MAXAGE with an age that is not positive.
    MAXAGE_NOT_POSITIVE = "ERR maxage should be greater than 0";
    /// CLIENT KILL MAXAGE with an age that is not an integer.
    MAXAGE_NOT_AN_INTEGER = "ERR maxage is not an integer or out of range";
    /// CLIENT KILL with an address that no client has.
    NO_SUCH_CLIENT = "ERR No such client";
    /// CLIENT UNBLOCK with an unknown reason.
    UNBLOCK_REASON = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
    /// CLIENT PAUSE with an unknown mode.
    PAUSE_MODE = "ERR CLIENT PAUSE mode must be WRITE or ALL";
    /// The reply to a blocked command after CLIENT UNBLOCK … ERROR.
    UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    /// CLIENT TRACKING ON.
    NO_TRACKING = "ERR client-side caching is not supported: CLIENT TRACKING can only be OFF";

    // The server.

    /// SLOWLOG GET with a count below -1.
    SLOWLOG_COUNT = "ERR count should be greater than or equal to -1";
    /// DEBUG, unless the setting `enable-debug-command` allows it.
    DEBUG_NOT_ALLOWED = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
                         can run it from a local connection, otherwise you need to set this option in the \
                         configuration file, and then restart the server.";
    /// DEBUG SLEEP with an invalid time.
    DEBUG_SLEEP_TIME = "ERR DEBUG SLEEP takes a number of seconds from 0 to 3600";
    /// CONFIG REWRITE.
    CONFIG_REWRITE = "ERR CONFIG REWRITE is not supported: this server never writes its configuration file. Edit \
                      the file instead";
    /// COMMAND GETKEYS of an unknown command.
    GETKEYS_UNKNOWN = "ERR Invalid command specified";
    /// COMMAND GETKEYS of a command with too few or too many arguments.
    GETKEYS_ARITY = "ERR Invalid number of arguments specified for command";
    /// COMMAND GETKEYS of a command without keys.
    GETKEYS_NO_KEYS = "ERR The command has no key arguments";
    /// COMMAND GETKEYS of a request whose keys cannot be found.
    GETKEYS_INVALID = "ERR Invalid arguments specified for command";
    /// SAVE, BGSAVE, BGREWRITEAOF, SHUTDOWN SAVE, DEBUG RELOAD NOSAVE or DEBUG LOADAOF on a server without a log.
    NOT_DURABLE = "ERR cannot save: this server keeps its data in memory only (appendonly no)";
    /// SAVE or BGSAVE while a snapshot is being taken.
    SAVE_IN_PROGRESS = "ERR Background save already in progress";
    /// BGSAVE while BGREWRITEAOF runs.
    BGSAVE_DURING_REWRITE = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
        SCHEDULE in order to schedule a BGSAVE whenever possible.";
    /// BGREWRITEAOF while another one runs.
    REWRITE_IN_PROGRESS = "ERR Background append only file rewriting already in progress";
    /// WAITAOF with `numlocal` 1 on a server without a log.
    WAITAOF_NOT_DURABLE = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    /// WAITAOF with a `numlocal` other than 0 and 1.
    NOT_ZERO_OR_ONE = "ERR value is out of range, value must between 0 and 1";
    /// SHUTDOWN ABORT while no shutdown is in progress.
    NO_SHUTDOWN = "ERR No shutdown in progress.";
    /// CLUSTER: this server is never part of a cluster.
    NO_CLUSTER = "ERR This instance has cluster support disabled";
    /// REPLICAOF with an address.
    NO_REPLICATION = "ERR replication is not supported by this server";
    /// EVAL, EVAL_RO and SCRIPT LOAD.
    NO_SCRIPTING = "ERR scripts are not supported by this server. To run several commands atomically, send them \
                    between MULTI and EXEC; to run them only if certain keys have not changed, WATCH these keys \
                    first";
    /// EVALSHA and EVALSHA_RO: no script can be loaded.
    NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL.";
    /// FCALL and FCALL_RO.
    NO_FUNCTION = "ERR Function not found";
    /// FUNCTION DELETE.
    NO_LIBRARY = "ERR Library not found";
    /// FUNCTION LOAD.
    NO_FUNCTIONS = "ERR functions are not supported by this server. To run several commands atomically, send them \
                    between MULTI and EXEC";
    /// SCRIPT KILL and FUNCTION KILL.
    NOT_BUSY = "NOTBUSY No scripts in execution right now.";
    /// SCRIPT FLUSH with an unknown mode.
    SCRIPT_FLUSH_MODE = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
    /// FUNCTION FLUSH with an unknown mode.
    FUNCTION_FLUSH_MODE = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
    /// FUNCTION LIST LIBRARYNAME without a name.
    LIBRARY_NAME_MISSING = "ERR library name argument was not given";
}

/// A command with too few or too many arguments. The name of a subcommand has the form `xgroup|create`.
pub fn wrong_arity(name: &str) -> CommandError {
    CommandError::composed(&[b"ERR wrong number of arguments for '", name.as_bytes(), b"' command"])
}

/// An unknown command. The text quotes at most about 128 bytes of the arguments.
pub fn unknown_command(argv: &[&[u8]]) -> CommandError {
    const QUOTED_BYTES_MAX: usize = 128;
    let (name, args) = argv.split_first().map_or((&b""[..], argv), |(name, args)| (*name, args));
    let name = quoted_prefix(name, QUOTED_BYTES_MAX);
    if args.is_empty() {
        return CommandError::composed(&[b"ERR unknown command '", name, b"'"]);
    }
    let mut preview = Vec::new();
    for arg in args {
        if preview.len() >= QUOTED_BYTES_MAX {
            break;
        }
        let left = QUOTED_BYTES_MAX - preview.len();
        preview.extend_from_slice(&[b"'", quoted_prefix(arg, left), b"' "].concat());
    }
    CommandError::composed(&[b"ERR unknown command '", name, b"', with args beginning with: ", &preview])
}

/// An unknown subcommand. `container` is the container command's name in upper case.
pub fn unknown_subcommand(subcommand: &[u8], container: &str) -> CommandError {
    let subcommand = quoted_prefix(subcommand, 128);
    let container = container.as_bytes();
    CommandError::composed(&[b"ERR unknown subcommand '", subcommand, b"'. Try ", container, b" HELP."])
}

/// A known subcommand with invalid arguments. `container` is the container command's name in upper case.
pub fn subcommand_syntax(subcommand: &[u8], container: &str) -> CommandError {
    CommandError::composed(&[
        b"ERR unknown subcommand or wrong number of arguments for '",
        quoted_prefix(subcommand, 128),
        b"'. Try ",
        container.as_bytes(),
        b" HELP.",
    ])
}

/// XPENDING, XCLAIM, XAUTOCLAIM, XNACK, XEXTEND, XADOPT: the key does not exist or has no such group.
pub fn no_key_or_group(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (quoted(key), quoted(group));
    CommandError::composed(&[b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"])
}

/// XREADGROUP: the key does not exist or has no such group.
pub fn no_group_in_xreadgroup(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::composed(&[
        b"NOGROUP No such key '",
        quoted(key),
        b"' or consumer group '",
        quoted(group),
        b"' in XREADGROUP with GROUP option",
    ])
}

/// XGROUP and XINFO: the key has no such group.
pub fn no_group_for_key(group: &[u8], key: &[u8]) -> CommandError {
    let (group, key) = (quoted(group), quoted(key));
    CommandError::composed(&[b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"])
}

/// Declares errors that quote one argument: the text before the argument, and the text after it.
macro_rules! quoting {
    ($($(#[$doc:meta])* $name:ident = $before:literal, $after:literal;)*) => {
        $($(#[$doc])* pub fn $name(argument: &[u8]) -> CommandError {
            CommandError::composed(&[$before.as_bytes(), quoted(argument), $after.as_bytes()])
        })*
    };
}

quoting! {
    /// An option that XCLAIM does not have.
    unrecognized_xclaim_option = "ERR Unrecognized XCLAIM option '", "'";
    /// An option that XNACK does not have.
    unrecognized_xnack_option = "ERR Unrecognized XNACK option '", "'";
    /// An option that EXPIRE does not have.
    unsupported_option = "ERR Unsupported option ", "";
    /// An option that HELLO does not have.
    hello_option = "ERR Syntax error in HELLO option '", "'";
    /// A client type that does not exist.
    unknown_client_type = "ERR Unknown client type '", "'";
    /// CLIENT KILL USER with a user that does not exist.
    no_such_user = "ERR No such user '", "'";
    /// ACL DRYRUN with a user that does not exist.
    user_not_found = "ERR User '", "' not found";
    /// ACL DRYRUN with a command that does not exist.
    command_not_found = "ERR Command '", "' not found";
    /// ACL SETUSER with a parenthesis that is not closed. Quotes the argument that opens it.
    unmatched_parenthesis = "ERR Unmatched parenthesis in acl selector starting at '", "'.";
    /// CLIENT SETINFO with an attribute that does not exist.
    unrecognized_client_attribute = "ERR Unrecognized option '", "'";
    /// CLIENT SETINFO with a value that is not printable ASCII without spaces. Quotes the attribute as sent.
    invalid_client_attribute = "ERR ", " cannot contain spaces, newlines or special characters.";
    /// CONFIG SET with a setting that does not exist.
    unknown_setting = "ERR Unknown option or number of arguments for CONFIG SET - '", "'";
    /// ACL CAT with a category that does not exist.
    unknown_category = "ERR Unknown category '", "'";
    /// An option that FUNCTION LIST does not have.
    unknown_argument = "ERR Unknown argument ", "";
}

/// An expiry time that is out of range. `command` is the command's name.
pub fn invalid_expire_time(command: &str) -> CommandError {
    CommandError::composed(&[b"ERR invalid expire time in '", command.as_bytes(), b"' command"])
}

/// A write that cannot be logged because the disk is full or has failed, or files of the data folder are missing.
pub fn not_writable(reason: &str) -> CommandError {
    CommandError::composed(&[b"MISCONF ", reason.as_bytes()])
}

/// A change that is too large for the log.
pub fn change_too_large(reason: &str) -> CommandError {
    CommandError::composed(&[b"ERR ", reason.as_bytes()])
}

/// A snapshot that could not be taken, or data that could not be loaded again.
pub fn not_saved(reason: &str) -> CommandError {
    CommandError::composed(&[b"ERR ", reason.as_bytes()])
}

/// A command that the user may not run. `command` is its full name, such as `xgroup|create`.
pub fn no_command_permission(user: &[u8], command: &str) -> CommandError {
    CommandError::composed(&[
        b"NOPERM User ",
        quoted(user),
        b" has no permissions to run the '",
        command.as_bytes(),
        b"' command",
    ])
}

/// ACL SETUSER with an invalid rule.
pub fn invalid_acl_rule(rule: &[u8], reason: &str) -> CommandError {
    let (rule, reason) = (quoted(rule), reason.as_bytes());
    CommandError::composed(&[b"ERR Error in ACL SETUSER modifier '", rule, b"': ", reason])
}

/// ACL LOAD or ACL SAVE that failed.
pub fn acl_file(reason: &str) -> CommandError {
    CommandError::composed(&[b"ERR ", reason.as_bytes()])
}

/// EXEC itself is invalid for this reason, so the server discards the transaction.
pub fn exec_aborted_because(reason: &CommandError) -> CommandError {
    let text = reason.as_bytes();
    let text = text.strip_prefix(b"ERR ").unwrap_or(text);
    CommandError::composed(&[b"EXECABORT Transaction discarded because of: ", text])
}

/// CONFIG SET with a value that the setting does not accept.
pub fn invalid_setting(name: &[u8], reason: &str) -> CommandError {
    CommandError::composed(&[
        b"ERR CONFIG SET failed (possibly related to argument '",
        quoted(name),
        b"') - ",
        reason.as_bytes(),
    ])
}

/// Returns the part of an argument that errors quote: the bytes before its first NUL byte.
fn quoted(arg: &[u8]) -> &[u8] {
    arg.iter().position(|&byte| byte == 0).map_or(arg, |end| &arg[..end])
}

/// Returns the part of an argument that errors quote, but at most `len` bytes.
fn quoted_prefix(arg: &[u8], len: usize) -> &[u8] {
    let arg = quoted(arg);
    &arg[..arg.len().min(len)]
}

/// XPOLICY SET with the same field twice.
pub fn policy_field_twice(field: PolicyField) -> CommandError {
    CommandError::composed(&[b"ERR ", field.name().as_bytes(), b" specified multiple times"])
}

/// XPOLICY SET with a field that does not exist.
pub fn policy_field_unknown(word: &[u8]) -> CommandError {
    let names = PolicyField::ALL.map(PolicyField::name).join(", ");
    let word = quoted_prefix(word, 128);
    CommandError::composed(&[b"ERR unknown field '", word, b"', expected ", names.as_bytes()])
}

/// XPOLICY SET with a group and a field that only streams have.
pub fn policy_field_of_streams(field: PolicyField) -> CommandError {
    CommandError::composed(&[b"ERR ", field.name().as_bytes(), b" is a field of streams, not of groups"])
}

/// XPOLICY SET with a value that the field does not accept.
pub fn policy_out_of_range(field: PolicyField) -> CommandError {
    if field == PolicyField::DeadLetters {
        return CommandError::composed(&[format!(
            "ERR DLQ must have at most {DEAD_LETTERS_BYTES_MAX} bytes"
        )
        .as_bytes()]);
    }
    let (first, last) = field.limits().into_inner();
    let unit = match field {
        PolicyField::MaxDeliver | PolicyField::MaxPending | PolicyField::MaxLength => "",
        PolicyField::MaxBytes => " bytes",
        _ => " milliseconds",
    };
    let rest = match field {
        PolicyField::Backoff => ", the first not greater than the second; or 0 0 for none",
        PolicyField::AckedAge => ", or -1 for none",
        _ => ", or 0 for none",
    };
    let two = if field == PolicyField::Backoff { "two numbers " } else { "" };
    let name = field.name();
    CommandError::composed(&[
        format!("ERR {name} must be {two}between {first} and {last}{unit}{rest}").as_bytes()
    ])
}

/// XPOLICY SET or RESET after which a field would have no effect.
pub fn policy_needs_lease(field: PolicyField) -> CommandError {
    CommandError::composed(&[
        b"ERR ",
        field.name().as_bytes(),
        b" needs LEASE: set LEASE on the group or the stream",
    ])
}

/// XPOLICY SET or RESET of a stream after which a field of a group would have no effect.
pub fn group_needs_lease(field: PolicyField, group: Option<&[u8]>) -> CommandError {
    let (field, rest) = (field.name().as_bytes(), &b" needs LEASE: set LEASE on the group first"[..]);
    match group {
        Some(group) => CommandError::composed(&[b"ERR ", field, b" of the group '", group, b"'", rest]),
        None => CommandError::composed(&[b"ERR ", field, b" of a group", rest]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_errors_are_one_line_and_begin_with_their_code() {
        for (name, error) in ALL {
            let text = error.as_bytes();
            assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)), "{name}");
            assert!(!text.windows(2).any(|pair| pair == b"  "), "{name}: two spaces in a row");
            assert!(error.code().iter().all(u8::is_ascii_uppercase), "{name}");
            assert!(error.code().len() < text.len(), "{name}");
        }
    }

    #[test]
    fn quoted_arguments_cannot_break_the_line() {
        let error = no_group_in_xreadgroup(b"k\0k", b"a\r\nb\0c");
        assert_eq!(
            error.as_bytes(),
            b"NOGROUP No such key 'k' or consumer group 'a  b' in XREADGROUP with GROUP option"
        );
        assert_eq!(error.code(), b"NOGROUP");
    }

    #[test]
    fn unknown_command_error_quotes_the_first_arguments() {
        let argv: [&[u8]; 4] = [b"FOO", b"bar", b"baz qux", b"a\r\nb"];
        assert_eq!(
            unknown_command(&argv).as_bytes(),
            b"ERR unknown command 'FOO', with args beginning with: 'bar' 'baz qux' 'a  b' "
        );
        assert_eq!(unknown_command(&argv[..1]).as_bytes(), b"ERR unknown command 'FOO'");
        let long = vec![b'a'; 500];
        let error = unknown_command(&[&long, &long, &long]);
        let a = "a".repeat(128);
        assert_eq!(error.to_string(), format!("ERR unknown command '{a}', with args beginning with: '{a}' "));
        assert_eq!(unknown_command(&[]).code(), b"ERR");
    }

    #[test]
    fn aborted_transaction_error_contains_the_reason_without_its_code() {
        assert_eq!(
            exec_aborted_because(&wrong_arity("exec")).as_bytes(),
            b"EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
        );
    }
}
