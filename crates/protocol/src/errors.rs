//! Every error a client can be told, in Redis' words.
//!
//! A text begins with its code (`ERR`, `WRONGTYPE`, `NOGROUP`…) and has neither the `-` before it nor the
//! line end after it on the wire: those are the writer's. What the client sent and the error repeats is
//! made harmless here: it ends at a NUL, and line ends become blanks.

use std::fmt;

use millstream_engine::Refusal;

/// A command refused: the words the client sees.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandError(Text);

#[derive(Clone, PartialEq, Eq)]
enum Text {
    Fixed(&'static str),
    Composed(Box<[u8]>),
}

impl CommandError {
    /// An error whose text is known beforehand, its code included.
    pub const fn fixed(text: &'static str) -> CommandError {
        CommandError(Text::Fixed(text))
    }

    /// An error put together from parts, its code included. Line ends become blanks.
    pub fn composed(parts: &[&[u8]]) -> CommandError {
        let mut text = parts.concat();
        for byte in &mut text {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        CommandError(Text::Composed(text.into_boxed_slice()))
    }

    /// The text, code first; one line.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Fixed(text) => text.as_bytes(),
            Text::Composed(text) => text,
        }
    }

    /// The first word, by which errors are counted.
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
    /// [`Refusal::NoGroup`] is better told with its names: see [`no_key_or_group`], [`no_group_in_xreadgroup`] and
    /// [`no_group_for_key`].
    fn from(refusal: Refusal) -> CommandError {
        CommandError::fixed(match refusal {
            // Parsers refuse these too, in the same words.
            Refusal::IdIsZero => return ID_IS_ZERO,
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
            Refusal::RememberedOtherwise => {
                "ERR IID already exists for this producer with a different stream ID"
            }
            Refusal::HashNotAnInteger => "ERR hash value is not an integer",
            Refusal::HashNotAFloat => "ERR hash value is not a float",
            Refusal::IntegerOverflow => "ERR increment or decrement would overflow",
            Refusal::FloatOverflow => "ERR increment would produce NaN or Infinity",
            Refusal::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Refusal::SameObject => "ERR source and destination objects are the same",
            _ => "ERR the request was refused",
        })
    }
}

/// Declares the fixed texts, and for the tests a list of them all.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub const $name: CommandError = CommandError::fixed($text);)*

        #[cfg(test)]
        const ALL: &[(&str, CommandError)] = &[$((stringify!($name), $name)),*];
    };
}

texts! {
    // Any command.

    /// Options or arguments that make no sense together.
    SYNTAX = "ERR syntax error";
    /// Not a 64-bit integer in its canonical spelling.
    NOT_AN_INTEGER = "ERR value is not an integer or out of range";
    /// A count below zero, or no count at all.
    NOT_POSITIVE = "ERR value is out of range, must be positive";
    /// An integer, but not one of 32 bits.
    NOT_A_SMALL_INTEGER = "ERR value is out of range, value must between -2147483648 and 2147483647";
    /// Not a floating-point number.
    NOT_A_FLOAT = "ERR value is not a valid float";
    /// An increment that is no finite number.
    NOT_FINITE = "ERR value is NaN or Infinity";
    /// DECRBY of the one number that has no opposite.
    DECREMENT_OVERFLOW = "ERR decrement would overflow";
    /// A time to wait, in milliseconds, that is no integer.
    TIMEOUT_NOT_AN_INTEGER = "ERR timeout is not an integer or out of range";
    /// A time to wait, in seconds, that is no number.
    TIMEOUT_NOT_A_FLOAT = "ERR timeout is not a float or out of range";
    /// A time to wait below zero.
    TIMEOUT_NEGATIVE = "ERR timeout is negative";
    /// A time to wait beyond the end of time.
    TIMEOUT_OUT_OF_RANGE = "ERR timeout is out of range";
    /// No database of that number.
    DB_OUT_OF_RANGE = "ERR DB index is out of range";

    // Streams.

    /// No stream id where one must be.
    INVALID_STREAM_ID = "ERR Invalid stream ID specified as stream command argument";
    /// An interval that begins after the greatest id.
    INVALID_INTERVAL_START = "ERR invalid start ID for the interval";
    /// An interval that ends before the smallest id.
    INVALID_INTERVAL_END = "ERR invalid end ID for the interval";
    /// XADD with the id of no entry.
    ID_IS_ZERO = "ERR The ID specified in XADD must be greater than 0-0";
    /// A second trimming strategy, of either kind.
    TRIM_TWICE = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
    /// MAXLEN below zero.
    MAXLEN_NEGATIVE = "ERR The MAXLEN argument must be >= 0.";
    /// LIMIT below zero.
    LIMIT_NEGATIVE = "ERR The LIMIT argument must be >= 0.";
    /// LIMIT with nothing to limit.
    LIMIT_WITHOUT_TRIM = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
    /// LIMIT of an exact trim.
    LIMIT_WITHOUT_TILDE = "ERR syntax error, LIMIT cannot be used without the special ~ option";
    /// XTRIM that says nothing about what to keep.
    TRIM_MISSING = "ERR syntax error, XTRIM must be called with a trimming strategy";
    /// XADD that names a producer twice.
    IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times";
    /// XADD with IDMPAUTO of nobody.
    IDMPAUTO_PRODUCER_EMPTY = "ERR syntax error, IDMPAUTO requires a non-empty producer ID";
    /// XADD with IDMP of nobody.
    IDMP_PRODUCER_EMPTY = "ERR syntax error, IDMP requires a non-empty producer ID";
    /// XADD with IDMP of an entry without a name.
    IDMP_IID_EMPTY = "ERR syntax error, IDMP requires a non-empty idempotent ID";
    /// XADD with a producer and an id of its own.
    IDMP_WITH_ID = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs";
    /// XDELEX, XACKDEL, XEXTEND: a count of ids that is none.
    NUMIDS_NOT_POSITIVE = "ERR Number of IDs must be a positive integer";
    /// XDELEX, XACKDEL, XEXTEND: fewer ids than counted.
    NUMIDS_TOO_MANY = "ERR The `numids` parameter must match the number of arguments";
    /// XDELEX, XACKDEL, XEXTEND without ids.
    IDS_MISSING = "ERR IDS option is required";
    /// XNACK for no known reason.
    XNACK_MODE = "ERR mode must be SILENT, FAIL, or FATAL";
    /// XNACK: a count of ids that is none.
    XNACK_NUMIDS = "ERR numids must be a positive integer";
    /// XNACK: fewer ids than counted.
    XNACK_NUMIDS_TOO_MANY = "ERR number of IDs doesn't match numids";
    /// XNACK of entries delivered fewer times than never.
    XNACK_RETRYCOUNT = "ERR Invalid RETRYCOUNT value, must be >= 0";
    /// XNACK without ids.
    XNACK_IDS_MISSING = "ERR syntax error, expected IDS keyword";
    /// XCFGSET of nothing.
    XCFGSET_NOTHING = "ERR At least one parameter must be specified";
    /// XCFGSET with a second duration.
    IDMP_DURATION_TWICE = "ERR IDMP-DURATION specified multiple times";
    /// XCFGSET of a time too short or too long.
    IDMP_DURATION_RANGE = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
    /// XCFGSET with a second size.
    IDMP_MAXSIZE_TWICE = "ERR IDMP-MAXSIZE specified multiple times";
    /// XCFGSET of too few or too many names.
    IDMP_MAXSIZE_RANGE = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
    /// XIDMPRECORD of nobody.
    RECORD_PRODUCER_EMPTY = "ERR producer ID must be non-empty";
    /// XIDMPRECORD without a name.
    RECORD_IID_EMPTY = "ERR idempotent ID must be non-empty";
    /// XADOPT from itself.
    ADOPTS_ITSELF = "ERR a consumer cannot adopt its own entries";
    /// A bound on entries that is none.
    MAXCOUNT_NOT_POSITIVE = "ERR MAXCOUNT must be a positive integer";
    /// A bound on bytes that is none.
    MAXSIZE_NOT_POSITIVE = "ERR MAXSIZE must be a positive integer";
    /// Fewer entries in all than of each stream.
    MAXCOUNT_BELOW_COUNT = "ERR MAXCOUNT must be greater than or equal to COUNT";
    /// CLAIM of rows idle for no number.
    CLAIM_NOT_AN_INTEGER = "ERR min-idle-time is not an integer or out of range";
    /// CLAIM of rows idle for less than no time.
    CLAIM_NEGATIVE = "ERR min-idle-time must be a positive integer";
    /// XREAD of keys and ids that do not pair.
    XREAD_UNBALANCED =
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.";
    /// XREADGROUP of keys and ids that do not pair.
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
    /// XREAD of `>`.
    NEW_IN_XREAD = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                    <consumer> option.";
    /// XREADGROUP of `$`.
    LAST_IN_XREADGROUP = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                          history of this consumer by specifying a proper ID, or use the > ID to get new \
                          messages. The $ ID would just return an empty result set.";
    /// XREADGROUP of `+`.
    LAST_ENTRY_IN_XREADGROUP = "ERR The + ID is meaningless in the context of XREADGROUP: you want to read \
                                the history of this consumer by specifying a proper ID, or use the > ID to \
                                get new messages. The + ID would just return an empty result set.";
    /// XCLAIM of rows idle for no number.
    XCLAIM_MIN_IDLE = "ERR Invalid min-idle-time argument for XCLAIM";
    /// XCLAIM with IDLE of no number.
    XCLAIM_IDLE = "ERR Invalid IDLE option argument for XCLAIM";
    /// XCLAIM with TIME of no number.
    XCLAIM_TIME = "ERR Invalid TIME option argument for XCLAIM";
    /// XCLAIM with RETRYCOUNT of no number.
    XCLAIM_RETRYCOUNT = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
    /// XAUTOCLAIM of rows idle for no number.
    XAUTOCLAIM_MIN_IDLE = "ERR Invalid min-idle-time argument for XAUTOCLAIM";
    /// XAUTOCLAIM of no rows, or of more than there can be.
    XAUTOCLAIM_COUNT = "ERR COUNT must be > 0";
    /// A group that has read fewer entries than none.
    ENTRIESREAD_NEGATIVE = "ERR value for ENTRIESREAD must be positive or -1";
    /// A stream that was given fewer entries than none.
    ENTRIESADDED_NEGATIVE = "ERR entries_added must be positive";
    /// XSETID below the deleted id named beside it.
    SETID_BELOW_GIVEN_MAX_DELETED =
        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";

    // Keys and values.

    /// SCAN from no cursor.
    INVALID_CURSOR = "ERR invalid cursor";
    /// EXPIRE that wants both ways.
    EXPIRE_NX_AND_OTHERS = "ERR NX and XX, GT or LT options at the same time are not compatible";
    /// EXPIRE that wants both ways.
    EXPIRE_GT_AND_LT = "ERR GT and LT options at the same time are not compatible";
    /// SWAPDB whose first database is no number.
    INVALID_FIRST_DB = "ERR invalid first DB index";
    /// SWAPDB whose second database is no number.
    INVALID_SECOND_DB = "ERR invalid second DB index";
    /// OBJECT FREQ: nothing counts accesses.
    FREQ_NOT_TRACKED = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                        that when switching between policies at runtime LRU and LFU data will take some time \
                        to adjust.";

    // Transactions.

    /// MULTI within MULTI.
    NESTED_MULTI = "ERR MULTI calls can not be nested";
    /// EXEC of nothing.
    EXEC_WITHOUT_MULTI = "ERR EXEC without MULTI";
    /// DISCARD of nothing.
    DISCARD_WITHOUT_MULTI = "ERR DISCARD without MULTI";
    /// WATCH too late.
    WATCH_IN_MULTI = "ERR WATCH inside MULTI is not allowed";
    /// EXEC after a command that could not be queued.
    EXEC_ABORTED = "EXECABORT Transaction discarded because of previous errors.";
    /// A command that has no place in a transaction.
    NOT_IN_TRANSACTION = "ERR Command not allowed inside a transaction";

    // Connections.

    /// The client must say who it is first.
    NO_AUTH = "NOAUTH Authentication required.";
    /// HELLO before the client said who it is.
    NO_AUTH_HELLO = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                     <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                     RESP protocol version at the same time";
    /// The wrong password, or no such user.
    WRONG_PASS = "WRONGPASS invalid username-password pair or user is disabled.";
    /// AUTH where no password is set.
    NO_PASSWORD_SET = "ERR AUTH <password> called without any password configured for the default user. Are \
                       you sure your configuration is correct?";
    /// HELLO of a protocol that does not exist.
    NO_PROTO = "NOPROTO unsupported protocol version";
    /// HELLO of no number.
    HELLO_NOT_AN_INTEGER = "ERR Protocol version is not an integer or out of range";
    /// No room for another client.
    MAX_CLIENTS = "ERR max number of clients reached";
    /// Without a password, only this machine is served.
    PROTECTED_MODE = "DENIED This server runs in protected mode: no password is set, so it serves only clients \
                      on its own machine. To serve others, set a password (--requirepass, or CONFIG SET \
                      requirepass), or, where the network itself is trusted, turn the protection off with \
                      --protected-mode no.";

    // CLIENT.

    /// A name that could not stand in CLIENT LIST.
    INVALID_CLIENT_NAME = "ERR Client names cannot contain spaces, newlines or special characters.";
    /// CLIENT LIST of an id that is no number.
    INVALID_CLIENT_ID = "ERR Invalid client ID";
    /// CLIENT KILL of an id that no client can have.
    CLIENT_ID_NOT_POSITIVE = "ERR client-id should be greater than 0";
    /// CLIENT KILL of an age that no client can have.
    MAXAGE_NOT_POSITIVE = "ERR maxage should be greater than 0";
    /// CLIENT KILL with an age that is no number.
    MAXAGE_NOT_AN_INTEGER = "ERR maxage is not an integer or out of range";
    /// CLIENT KILL of an address nobody has.
    NO_SUCH_CLIENT = "ERR No such client";
    /// CLIENT UNBLOCK in an unknown way.
    UNBLOCK_REASON = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
    /// CLIENT PAUSE in an unknown way.
    PAUSE_MODE = "ERR CLIENT PAUSE mode must be WRITE or ALL";
    /// What CLIENT UNBLOCK … ERROR makes the blocked client see.
    UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    /// CLIENT TRACKING ON.
    NO_TRACKING = "ERR client-side caching is not supported: CLIENT TRACKING can only be OFF";

    // The server.

    /// SLOWLOG GET of fewer entries than none.
    SLOWLOG_COUNT = "ERR count should be greater than or equal to -1";
    /// CONFIG REWRITE.
    NO_CONFIG_FILE = "ERR The configuration file is never written; change it by hand";
    /// COMMAND GETKEYS of an unknown command.
    GETKEYS_UNKNOWN = "ERR Invalid command specified";
    /// COMMAND GETKEYS of a command with too few or too many arguments.
    GETKEYS_ARITY = "ERR Invalid number of arguments specified for command";
    /// COMMAND GETKEYS of a command that has none.
    GETKEYS_NO_KEYS = "ERR The command has no key arguments";
    /// COMMAND GETKEYS of a command whose keys cannot be found.
    GETKEYS_INVALID = "ERR Invalid arguments specified for command";
    /// SAVE and its kin where nothing is written down.
    NOT_DURABLE = "ERR nothing can be saved: this server keeps its data in memory only (appendonly no)";
    /// BGSAVE, or SAVE, while one is being taken.
    SAVE_RUNS = "ERR Background save already in progress";
    /// BGSAVE while the log is made shorter.
    REWRITE_RUNS_INSTEAD = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
        SCHEDULE in order to schedule a BGSAVE whenever possible.";
    /// BGREWRITEAOF while one runs.
    REWRITE_RUNS = "ERR Background append only file rewriting already in progress";
    /// WAITAOF for a disk that is not written to.
    WAITAOF_NOT_DURABLE = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    /// WAITAOF for more disks than a server has.
    NOT_ZERO_OR_ONE = "ERR value is out of range, value must between 0 and 1";
    /// SHUTDOWN ABORT of nothing.
    NO_SHUTDOWN = "ERR No shutdown in progress.";
    /// CLUSTER on a server that stands alone.
    NO_CLUSTER = "ERR This instance has cluster support disabled";
    /// REPLICAOF.
    NO_REPLICATION = "ERR replication is not supported by this server";
    /// EVAL, EVAL_RO, SCRIPT LOAD.
    NO_SCRIPTING = "ERR scripts are not supported by this server. To run several commands as one, send them \
                    between MULTI and EXEC; to run them only if nothing changed meanwhile, WATCH the keys first";
    /// EVALSHA of a script nobody loaded.
    NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL.";
    /// FCALL.
    NO_FUNCTION = "ERR Function not found";
    /// FUNCTION DELETE.
    NO_LIBRARY = "ERR Library not found";
    /// FUNCTION LOAD and RESTORE.
    NO_FUNCTIONS = "ERR functions are not supported by this server. To run several commands as one, send them \
                    between MULTI and EXEC";
    /// SCRIPT KILL and FUNCTION KILL.
    NOT_BUSY = "NOTBUSY No scripts in execution right now.";
    /// SCRIPT FLUSH in an unknown way.
    SCRIPT_FLUSH_MODE = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
    /// FUNCTION FLUSH in an unknown way.
    FUNCTION_FLUSH_MODE = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
    /// FUNCTION LIST LIBRARYNAME without a name.
    LIBRARY_NAME_MISSING = "ERR library name argument was not given";
}

/// A command with too few or too many arguments. Subcommands are named `xgroup|create`.
pub fn wrong_arity(name: &str) -> CommandError {
    CommandError::composed(&[b"ERR wrong number of arguments for '", name.as_bytes(), b"' command"])
}

/// A command nobody knows, and what came with it, cut short.
pub fn unknown_command(argv: &[&[u8]]) -> CommandError {
    const SHOWN: usize = 128;
    let (name, args) = argv.split_first().map_or((&b""[..], argv), |(name, args)| (*name, args));
    let name = at_most(name, SHOWN);
    if args.is_empty() {
        return CommandError::composed(&[b"ERR unknown command '", name, b"'"]);
    }
    let mut preview = Vec::new();
    for arg in args {
        if preview.len() >= SHOWN {
            break;
        }
        let room = SHOWN - preview.len();
        preview.extend_from_slice(&[b"'", at_most(arg, room), b"' "].concat());
    }
    CommandError::composed(&[b"ERR unknown command '", name, b"', with args beginning with: ", &preview])
}

/// A subcommand nobody knows. `container` in capitals.
pub fn unknown_subcommand(subcommand: &[u8], container: &str) -> CommandError {
    let subcommand = at_most(subcommand, 128);
    let container = container.as_bytes();
    CommandError::composed(&[b"ERR unknown subcommand '", subcommand, b"'. Try ", container, b" HELP."])
}

/// A known subcommand whose arguments make no sense. `container` in capitals.
pub fn subcommand_syntax(subcommand: &[u8], container: &str) -> CommandError {
    CommandError::composed(&[
        b"ERR unknown subcommand or wrong number of arguments for '",
        at_most(subcommand, 128),
        b"'. Try ",
        container.as_bytes(),
        b" HELP.",
    ])
}

/// XPENDING, XCLAIM, XAUTOCLAIM, XNACK, XEXTEND, XADOPT: no such key, or no such group in it.
pub fn no_key_or_group(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (shown(key), shown(group));
    CommandError::composed(&[b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'"])
}

/// XREADGROUP: no such key, or no such group in it.
pub fn no_group_in_xreadgroup(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::composed(&[
        b"NOGROUP No such key '",
        shown(key),
        b"' or consumer group '",
        shown(group),
        b"' in XREADGROUP with GROUP option",
    ])
}

/// XGROUP and XINFO: the key has no such group.
pub fn no_group_for_key(group: &[u8], key: &[u8]) -> CommandError {
    let (group, key) = (shown(group), shown(key));
    CommandError::composed(&[b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"])
}

/// Declares errors that repeat one argument: what comes before it, and what after.
macro_rules! repeating {
    ($($(#[$doc:meta])* $name:ident = $before:literal, $after:literal;)*) => {
        $($(#[$doc])* pub fn $name(argument: &[u8]) -> CommandError {
            CommandError::composed(&[$before.as_bytes(), shown(argument), $after.as_bytes()])
        })*
    };
}

repeating! {
    /// An option that XCLAIM does not have.
    unrecognized_xclaim_option = "ERR Unrecognized XCLAIM option '", "'";
    /// An option that XNACK does not have.
    unrecognized_xnack_option = "ERR Unrecognized XNACK option '", "'";
    /// An option that EXPIRE does not have.
    unsupported_option = "ERR Unsupported option ", "";
    /// An option that HELLO does not have.
    hello_option = "ERR Syntax error in HELLO option '", "'";
    /// A kind of client that does not exist.
    unknown_client_type = "ERR Unknown client type '", "'";
    /// CLIENT KILL of a user who does not exist.
    no_such_user = "ERR No such user '", "'";
    /// CLIENT SETINFO of an attribute that does not exist.
    unrecognized_client_attribute = "ERR Unrecognized option '", "'";
    /// CLIENT SETINFO with a value that could not stand in CLIENT LIST. The attribute is named as typed.
    invalid_client_attribute = "ERR ", " cannot contain spaces, newlines or special characters.";
    /// CONFIG SET of a setting that does not exist.
    unknown_setting = "ERR Unknown option or number of arguments for CONFIG SET - '", "'";
    /// ACL CAT of a category that does not exist.
    unknown_category = "ERR Unknown category '", "'";
    /// FUNCTION LIST with an option it does not have.
    unknown_argument = "ERR Unknown argument ", "";
}

/// A time to live that is none.
pub fn invalid_expire_time(command: &str) -> CommandError {
    CommandError::composed(&[b"ERR invalid expire time in '", command.as_bytes(), b"' command"])
}

/// Nothing can be written: the disk is full, or has failed.
pub fn not_writable(reason: &str) -> CommandError {
    CommandError::composed(&[b"MISCONF ", reason.as_bytes()])
}

/// A snapshot that could not be taken, or read back.
pub fn not_saved(reason: &str) -> CommandError {
    CommandError::composed(&[b"ERR ", reason.as_bytes()])
}

/// EXEC that could not even be understood: the transaction is gone, for this reason.
pub fn exec_aborted_because(reason: &CommandError) -> CommandError {
    let text = reason.as_bytes();
    let text = text.strip_prefix(b"ERR ").unwrap_or(text);
    CommandError::composed(&[b"EXECABORT Transaction discarded because of: ", text])
}

/// CONFIG SET that a setting refuses.
pub fn setting_refused(name: &[u8], reason: &str) -> CommandError {
    CommandError::composed(&[
        b"ERR CONFIG SET failed (possibly related to argument '",
        shown(name),
        b"') - ",
        reason.as_bytes(),
    ])
}

/// What the client sent, as far as an error repeats it.
fn shown(arg: &[u8]) -> &[u8] {
    arg.iter().position(|&byte| byte == 0).map_or(arg, |end| &arg[..end])
}

fn at_most(arg: &[u8], len: usize) -> &[u8] {
    let arg = shown(arg);
    &arg[..arg.len().min(len)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_texts_are_one_line_and_begin_with_their_code() {
        for (name, error) in ALL {
            let text = error.as_bytes();
            assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)), "{name}");
            assert!(!text.windows(2).any(|pair| pair == b"  "), "{name}: two blanks");
            assert!(error.code().iter().all(u8::is_ascii_uppercase), "{name}");
            assert!(error.code().len() < text.len(), "{name}");
        }
    }

    #[test]
    fn what_a_client_sent_cannot_break_the_line() {
        let error = no_group_in_xreadgroup(b"k\0k", b"a\r\nb\0c");
        assert_eq!(
            error.as_bytes(),
            b"NOGROUP No such key 'k' or consumer group 'a  b' in XREADGROUP with GROUP option"
        );
        assert_eq!(error.code(), b"NOGROUP");
    }

    #[test]
    fn unknown_commands_show_their_first_arguments() {
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
    fn an_aborted_transaction_names_its_reason_without_the_code() {
        assert_eq!(
            exec_aborted_because(&wrong_arity("exec")).as_bytes(),
            b"EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
        );
    }
}
