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
        $($(#[$doc])* #[doc = concat!("`", $text, "`")] pub const $name: CommandError = CommandError::fixed($text);)*

        #[cfg(test)]
        const ALL: &[(&str, CommandError)] = &[$((stringify!($name), $name)),*];
    };
}

texts! {
    // Any command.

    SYNTAX = "ERR syntax error";
    NOT_AN_INTEGER = "ERR value is not an integer or out of range";
    NOT_POSITIVE = "ERR value is out of range, must be positive";
    NOT_A_SMALL_INTEGER = "ERR value is out of range, value must between -2147483648 and 2147483647";
    NOT_A_FLOAT = "ERR value is not a valid float";
    NOT_FINITE = "ERR value is NaN or Infinity";
    DECREMENT_OVERFLOW = "ERR decrement would overflow";
    TIMEOUT_NOT_AN_INTEGER = "ERR timeout is not an integer or out of range";
    TIMEOUT_NOT_A_FLOAT = "ERR timeout is not a float or out of range";
    TIMEOUT_NEGATIVE = "ERR timeout is negative";
    /// A timeout so long that its deadline does not fit in 64 bits.
    TIMEOUT_OUT_OF_RANGE = "ERR timeout is out of range";
    /// A command with BLOCK or a timeout that names more than `BLOCKING_KEYS_MAX` keys.
    TOO_MANY_BLOCKING_KEYS = "ERR too many keys: a command that can block accepts at most 65536";
    /// A glob pattern that is longer than `PATTERN_BYTES_MAX`.
    PATTERN_TOO_LONG = "ERR the pattern is too long: a pattern has at most 4096 bytes";
    /// A pattern that takes too long to search.
    PATTERN_TOO_COMPLEX = "ERR the pattern is too complex: between two *, a pattern with ? or [...] has at most 128 characters or sets";
    DB_OUT_OF_RANGE = "ERR DB index is out of range";

    // Streams.

    INVALID_STREAM_ID = "ERR Invalid stream ID specified as stream command argument";
    INVALID_INTERVAL_START = "ERR invalid start ID for the interval";
    INVALID_INTERVAL_END = "ERR invalid end ID for the interval";
    ID_IS_ZERO = "ERR The ID specified in XADD must be greater than 0-0";
    TRIM_TWICE = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
    MAXLEN_NEGATIVE = "ERR The MAXLEN argument must be >= 0.";
    LIMIT_NEGATIVE = "ERR The LIMIT argument must be >= 0.";
    LIMIT_WITHOUT_TRIM = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
    LIMIT_WITHOUT_TILDE = "ERR syntax error, LIMIT cannot be used without the special ~ option";
    TRIM_MISSING = "ERR syntax error, XTRIM must be called with a trimming strategy";
    IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times";
    IDMPAUTO_PRODUCER_EMPTY = "ERR syntax error, IDMPAUTO requires a non-empty producer ID";
    IDMP_PRODUCER_EMPTY = "ERR syntax error, IDMP requires a non-empty producer ID";
    IDMP_IID_EMPTY = "ERR syntax error, IDMP requires a non-empty idempotent ID";
    IDMP_WITH_ID = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs";
    NUMIDS_NOT_POSITIVE = "ERR Number of IDs must be a positive integer";
    NUMIDS_TOO_MANY = "ERR The `numids` parameter must match the number of arguments";
    IDS_MISSING = "ERR IDS option is required";
    XNACK_MODE = "ERR mode must be SILENT, FAIL, or FATAL";
    XNACK_NUMIDS = "ERR numids must be a positive integer";
    XNACK_NUMIDS_TOO_MANY = "ERR number of IDs doesn't match numids";
    XNACK_RETRYCOUNT = "ERR Invalid RETRYCOUNT value, must be >= 0";
    XNACK_DELAY = "ERR Invalid DELAY value, must be >= 0";
    XNACK_DELAY_RANGE = "ERR DELAY is out of range, the maximum is ten years (315360000000 milliseconds)";
    DUE_TIME_IN_SECONDS = "ERR the time after *@ looks like seconds, it must be in milliseconds since 1970";
    XNACK_IDS_MISSING = "ERR syntax error, expected IDS keyword";
    XCFGSET_NO_PARAMETER = "ERR At least one parameter must be specified";
    IDMP_DURATION_TWICE = "ERR IDMP-DURATION specified multiple times";
    IDMP_DURATION_RANGE = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
    IDMP_MAXSIZE_TWICE = "ERR IDMP-MAXSIZE specified multiple times";
    IDMP_MAXSIZE_RANGE = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
    RECORD_PRODUCER_EMPTY = "ERR producer ID must be non-empty";
    RECORD_IID_EMPTY = "ERR idempotent ID must be non-empty";
    ADOPTS_ITSELF = "ERR a consumer cannot adopt its own entries";
    MAXCOUNT_NOT_POSITIVE = "ERR MAXCOUNT must be a positive integer";
    MAXSIZE_NOT_POSITIVE = "ERR MAXSIZE must be a positive integer";
    /// XREAD, XREADGROUP: MAXCOUNT, the limit for all streams together, is less than COUNT, the limit per stream.
    MAXCOUNT_BELOW_COUNT = "ERR MAXCOUNT must be greater than or equal to COUNT";
    CLAIM_NOT_AN_INTEGER = "ERR min-idle-time is not an integer or out of range";
    CLAIM_NEGATIVE = "ERR min-idle-time must be a positive integer";
    XREAD_UNBALANCED =
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.";
    XREADGROUP_UNBALANCED =
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.";
    GROUP_IN_XREAD = "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
    NOACK_IN_XREAD = "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.";
    CLAIM_IN_XREAD = "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.";
    GROUP_MISSING = "ERR Missing GROUP option for XREADGROUP";
    NEW_IN_XREAD = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                    <consumer> option.";
    LAST_IN_XREADGROUP = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                          history of this consumer by specifying a proper ID, or use the > ID to get new \
                          messages. The $ ID would just return an empty result set.";
    LAST_ENTRY_IN_XREADGROUP = "ERR The + ID is meaningless in the context of XREADGROUP: you want to read \
                                the history of this consumer by specifying a proper ID, or use the > ID to \
                                get new messages. The + ID would just return an empty result set.";
    XCLAIM_MIN_IDLE = "ERR Invalid min-idle-time argument for XCLAIM";
    XCLAIM_IDLE = "ERR Invalid IDLE option argument for XCLAIM";
    XCLAIM_TIME = "ERR Invalid TIME option argument for XCLAIM";
    XCLAIM_RETRYCOUNT = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
    XAUTOCLAIM_MIN_IDLE = "ERR Invalid min-idle-time argument for XAUTOCLAIM";
    /// XAUTOCLAIM: COUNT is not a positive integer, or is too large.
    XAUTOCLAIM_COUNT = "ERR COUNT must be > 0";
    ENTRIESREAD_NEGATIVE = "ERR value for ENTRIESREAD must be positive or -1";
    ENTRIESADDED_NEGATIVE = "ERR entries_added must be positive";
    SETID_BELOW_GIVEN_MAX_DELETED =
        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";

    // Keys and values.

    INVALID_CURSOR = "ERR invalid cursor";
    EXPIRE_NX_AND_OTHERS = "ERR NX and XX, GT or LT options at the same time are not compatible";
    EXPIRE_GT_AND_LT = "ERR GT and LT options at the same time are not compatible";
    INVALID_FIRST_DB = "ERR invalid first DB index";
    INVALID_SECOND_DB = "ERR invalid second DB index";
    FREQ_NOT_TRACKED = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                        that when switching between policies at runtime LRU and LFU data will take some time \
                        to adjust.";

    // Transactions.

    NESTED_MULTI = "ERR MULTI calls can not be nested";
    EXEC_WITHOUT_MULTI = "ERR EXEC without MULTI";
    DISCARD_WITHOUT_MULTI = "ERR DISCARD without MULTI";
    WATCH_IN_MULTI = "ERR WATCH inside MULTI is not allowed";
    TOO_MANY_WATCHED_KEYS = "ERR too many keys: a client can watch at most 65536";
    EXEC_ABORTED = "EXECABORT Transaction discarded because of previous errors.";
    OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'.";
    NOT_IN_TRANSACTION = "ERR Command not allowed inside a transaction";

    // Connections.

    NO_AUTH = "NOAUTH Authentication required.";
    NO_AUTH_HELLO = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                     <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                     RESP protocol version at the same time";
    WRONG_PASS = "WRONGPASS invalid username-password pair or user is disabled.";
    NO_PASSWORD_SET = "ERR AUTH <password> called without any password configured for the default user. Are \
                       you sure your configuration is correct?";
    NO_KEY_PERMISSION = "NOPERM No permissions to access a key";
    /// A queued command that the user may no longer run when EXEC runs it.
    NO_LONGER_PERMITTED = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
                           EXEC call. This command is no longer allowed for the following reason: no permission to \
                           execute the command or subcommand";
    /// A queued command on a key that the user may no longer access when EXEC runs it.
    NO_LONGER_PERMITTED_KEY = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
                               EXEC call. This command is no longer allowed for the following reason: no permission \
                               to touch the specified keys";
    NO_PROTO = "NOPROTO unsupported protocol version";
    HELLO_NOT_AN_INTEGER = "ERR Protocol version is not an integer or out of range";
    MAX_CLIENTS = "ERR max number of clients reached";
    PROTECTED_MODE = "DENIED This server runs in protected mode: the user default needs no password, so it accepts \
                      only connections from its own machine. To accept other clients, set a password (--requirepass, or \
                      CONFIG SET requirepass). If the network is trusted, you can turn protected mode off instead \
                      (--protected-mode no).";

    // ACL.

    INVALID_USER_NAME = "ERR Usernames can't contain spaces or null characters";
    DEFAULT_USER_STAYS = "ERR The 'default' user cannot be removed";
    GENPASS_BITS = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number \
                    up to 4096";
    NO_RANDOM_BYTES = "ERR the operating system returned no random bytes";

    // CLIENT.

    /// The name of a new group, consumer or user, or of a client, is too long.
    NAME_TOO_LONG = "ERR the name is too long: it can have at most 1024 bytes";
    INVALID_CLIENT_NAME = "ERR Client names cannot contain spaces, newlines or special characters.";
    INVALID_CLIENT_ID = "ERR Invalid client ID";
    CLIENT_ID_NOT_POSITIVE = "ERR client-id should be greater than 0";
    MAXAGE_NOT_POSITIVE = "ERR maxage should be greater than 0";
    MAXAGE_NOT_AN_INTEGER = "ERR maxage is not an integer or out of range";
    NO_SUCH_CLIENT = "ERR No such client";
    UNBLOCK_REASON = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
    PAUSE_MODE = "ERR CLIENT PAUSE mode must be WRITE or ALL";
    /// The reply to a blocked command after CLIENT UNBLOCK … ERROR.
    UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    NO_TRACKING = "ERR client-side caching is not supported: CLIENT TRACKING can only be OFF";

    // The server.

    SLOWLOG_COUNT = "ERR count should be greater than or equal to -1";
    /// DEBUG, unless the setting `enable-debug-command` allows it.
    DEBUG_NOT_ALLOWED = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you \
                         can run it from a local connection, otherwise you need to set this option in the \
                         configuration file, and then restart the server.";
    DEBUG_SLEEP_TIME = "ERR DEBUG SLEEP takes a number of seconds from 0 to 3600";
    CONFIG_REWRITE = "ERR CONFIG REWRITE is not supported: this server never writes its configuration file. Edit \
                      the file instead";
    GETKEYS_UNKNOWN = "ERR Invalid command specified";
    GETKEYS_ARITY = "ERR Invalid number of arguments specified for command";
    GETKEYS_NO_KEYS = "ERR The command has no key arguments";
    GETKEYS_INVALID = "ERR Invalid arguments specified for command";
    /// SAVE, BGSAVE, BGREWRITEAOF, SHUTDOWN SAVE, DEBUG RELOAD NOSAVE or DEBUG LOADAOF on a server without a log.
    NOT_DURABLE = "ERR cannot save: this server keeps its data in memory only (appendonly no)";
    SAVE_IN_PROGRESS = "ERR Background save already in progress";
    BGSAVE_DURING_REWRITE = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
        SCHEDULE in order to schedule a BGSAVE whenever possible.";
    REWRITE_IN_PROGRESS = "ERR Background append only file rewriting already in progress";
    WAITAOF_NOT_DURABLE = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    NOT_ZERO_OR_ONE = "ERR value is out of range, value must between 0 and 1";
    NO_SHUTDOWN = "ERR No shutdown in progress.";
    NO_CLUSTER = "ERR This instance has cluster support disabled";
    NO_REPLICATION = "ERR replication is not supported by this server";
    NO_SCRIPTING = "ERR scripts are not supported by this server. To run several commands atomically, send them \
                    between MULTI and EXEC; to run them only if certain keys have not changed, WATCH these keys \
                    first";
    /// EVALSHA and EVALSHA_RO: no script can be loaded.
    NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL.";
    NO_FUNCTION = "ERR Function not found";
    NO_LIBRARY = "ERR Library not found";
    NO_FUNCTIONS = "ERR functions are not supported by this server. To run several commands atomically, send them \
                    between MULTI and EXEC";
    NOT_BUSY = "NOTBUSY No scripts in execution right now.";
    SCRIPT_FLUSH_MODE = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
    FUNCTION_FLUSH_MODE = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
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
        $($(#[$doc])* #[doc = concat!("`", $before, "…", $after, "`")] pub fn $name(argument: &[u8]) -> CommandError {
            CommandError::composed(&[$before.as_bytes(), quoted(argument), $after.as_bytes()])
        })*
    };
}

quoting! {
    unrecognized_xclaim_option = "ERR Unrecognized XCLAIM option '", "'";
    unrecognized_xnack_option = "ERR Unrecognized XNACK option '", "'";
    unsupported_option = "ERR Unsupported option ", "";
    hello_option = "ERR Syntax error in HELLO option '", "'";
    unknown_client_type = "ERR Unknown client type '", "'";
    no_such_user = "ERR No such user '", "'";
    user_not_found = "ERR User '", "' not found";
    command_not_found = "ERR Command '", "' not found";
    /// ACL SETUSER with a parenthesis that is not closed. Quotes the argument that opens it.
    unmatched_parenthesis = "ERR Unmatched parenthesis in acl selector starting at '", "'.";
    unrecognized_client_attribute = "ERR Unrecognized option '", "'";
    /// CLIENT SETINFO with a value that is not printable ASCII without spaces. Quotes the attribute as sent.
    invalid_client_attribute = "ERR ", " cannot contain spaces, newlines or special characters.";
    unknown_setting = "ERR Unknown option or number of arguments for CONFIG SET - '", "'";
    unknown_category = "ERR Unknown category '", "'";
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
