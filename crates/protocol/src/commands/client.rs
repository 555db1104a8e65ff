//! The arguments of CLIENT:
//!
//! `CLIENT SETNAME name`, `CLIENT SETINFO <LIB-NAME|LIB-VER> value`, `CLIENT LIST [TYPE type|ID id [id ...]]`,
//! `CLIENT KILL <addr | [ID id] [TYPE type] [ADDR addr] [LADDR addr] [USER user] [SKIPME yes|no] [MAXAGE s]>`,
//! `CLIENT UNBLOCK id [TIMEOUT|ERROR]`, `CLIENT PAUSE ms [WRITE|ALL]`, `CLIENT REPLY <ON|OFF|SKIP>`,
//! `CLIENT NO-EVICT|NO-TOUCH <ON|OFF>`, `CLIENT TRACKING <ON|OFF> […]`

use millstream_engine::stream::NAME_BYTES_MAX;
use smallvec::SmallVec;

use super::timeout::parse_timeout_ms;
use super::{Arg, ArgList};
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};
use crate::number;

/// An attribute that a client library sets with CLIENT SETINFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAttribute {
    LibName,
    LibVer,
}

/// Which clients CLIENT LIST lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSelection {
    All,
    OfType(ClientType),
    Ids(SmallVec<[i64; 4]>),
}

/// Redis' types of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    /// An ordinary client.
    Normal,
    /// A replica of this server.
    Replica,
    /// The server that this one replicates.
    Master,
    /// A subscriber.
    Pubsub,
}

/// Which clients CLIENT KILL disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKill<'a> {
    /// The client with this address. If there is none, the reply is an error.
    Address(Arg<'a>),
    /// All clients that match. The reply is their number.
    Matching(KillFilter<'a>),
}

/// The filters of CLIENT KILL. A client must match all of them; `None` matches every client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillFilter<'a> {
    /// ID: the client's id.
    pub id: Option<u64>,
    /// TYPE: the client's type.
    pub client_type: Option<ClientType>,
    /// ADDR: the client's address.
    pub address: Option<Arg<'a>>,
    /// LADDR: the server's address that the client is connected to.
    pub local_address: Option<Arg<'a>>,
    /// USER: the user it has authenticated as.
    pub user: Option<Arg<'a>>,
    /// MAXAGE: connected for at least this many seconds.
    pub age_s_min: Option<u64>,
    /// SKIPME: whether the client that sends CLIENT KILL is left out.
    pub skip_me: bool,
}

/// The reply that CLIENT UNBLOCK makes the blocked command return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnblockReason {
    /// The reply after a timeout.
    Timeout,
    Error,
}

/// Which commands CLIENT PAUSE delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMode {
    All,
    Write,
}

/// Whether the server sends replies to this client, set by CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    On,
    Off,
    /// It does not send the reply of the next command.
    Skip,
}

impl ClientAttribute {
    /// Parses the arguments of CLIENT SETINFO: the attribute and its value. An empty value removes the attribute.
    pub fn parse(argv: ArgList<'_>) -> Result<(ClientAttribute, Arg<'_>), CommandError> {
        let [name, value] = Args::of_subcommand(argv).exactly()?;
        let attribute = match () {
            () if name.eq_ignore_ascii_case(b"LIB-NAME") => ClientAttribute::LibName,
            () if name.eq_ignore_ascii_case(b"LIB-VER") => ClientAttribute::LibVer,
            () => return Err(errors::unrecognized_client_attribute(name)),
        };
        Ok((attribute, check_printable(value, errors::invalid_client_attribute(name))?))
    }
}

impl ClientSelection {
    /// Parses the arguments of CLIENT LIST.
    pub fn parse(argv: ArgList<'_>) -> Result<ClientSelection, CommandError> {
        let mut args = Args::of_subcommand(argv);
        if args.len() == 2 && args.keyword("TYPE") {
            return parse_type(args.next()?).map(ClientSelection::OfType);
        }
        if args.keyword_before("ID", 1) {
            return parse_client_ids(args.rest()).map(ClientSelection::Ids);
        }
        args.finish()?;
        Ok(ClientSelection::All)
    }
}

impl<'a> ClientKill<'a> {
    /// Parses the arguments of CLIENT KILL.
    pub fn parse(argv: ArgList<'a>) -> Result<ClientKill<'a>, CommandError> {
        let mut args = Args::of_subcommand(argv);
        match args.len() {
            1 => args.next().map(ClientKill::Address),
            _ => KillFilter::parse(args).map(ClientKill::Matching),
        }
    }
}

impl UnblockReason {
    /// Parses the arguments of CLIENT UNBLOCK: the id of the blocked client, and the reply for it.
    pub fn parse(argv: ArgList<'_>) -> Result<(i64, UnblockReason), CommandError> {
        let mut args = Args::of_subcommand(argv);
        let id = args.next()?;
        let reason = match *args.rest() {
            [] => UnblockReason::Timeout,
            [reason] if reason.eq_ignore_ascii_case(b"TIMEOUT") => UnblockReason::Timeout,
            [reason] if reason.eq_ignore_ascii_case(b"ERROR") => UnblockReason::Error,
            [_] => return Err(errors::UNBLOCK_REASON),
            _ => return Err(client_syntax(argv)),
        };
        Ok((number::parse_i64(id).ok_or(errors::NOT_AN_INTEGER)?, reason))
    }
}

impl PauseMode {
    /// Parses the arguments of CLIENT PAUSE: the duration in milliseconds, and which commands are delayed.
    pub fn parse(argv: ArgList<'_>) -> Result<(u64, PauseMode), CommandError> {
        let mut args = Args::of_subcommand(argv);
        let timeout = args.next()?;
        let mode = match *args.rest() {
            [] => PauseMode::All,
            [mode] if mode.eq_ignore_ascii_case(b"ALL") => PauseMode::All,
            [mode] if mode.eq_ignore_ascii_case(b"WRITE") => PauseMode::Write,
            [_] => return Err(errors::PAUSE_MODE),
            _ => return Err(client_syntax(argv)),
        };
        Ok((parse_timeout_ms(timeout)?, mode))
    }
}

impl ReplyMode {
    /// Parses the arguments of CLIENT REPLY.
    pub fn parse(argv: ArgList<'_>) -> Result<ReplyMode, CommandError> {
        let mut args = Args::of_subcommand(argv);
        let mode = match () {
            () if args.keyword("ON") => ReplyMode::On,
            () if args.keyword("OFF") => ReplyMode::Off,
            () if args.keyword("SKIP") => ReplyMode::Skip,
            () => return Err(errors::SYNTAX),
        };
        args.finish()?;
        Ok(mode)
    }
}

/// Parses the arguments of CLIENT SETNAME. An empty name removes the client's name.
pub fn parse_client_name(argv: ArgList<'_>) -> Result<Arg<'_>, CommandError> {
    let [name] = Args::of_subcommand(argv).exactly()?;
    check_printable(name, errors::INVALID_CLIENT_NAME)
}

/// Checks the arguments of CLIENT TRACKING. Tracking is not supported, so only OFF is accepted.
pub fn check_tracking(argv: ArgList<'_>) -> Result<(), CommandError> {
    let mut args = Args::of_subcommand(argv);
    if args.keyword("ON") {
        return Err(errors::NO_TRACKING);
    }
    if !args.keyword("OFF") {
        return Err(errors::SYNTAX);
    }
    args.finish()
}

fn client_syntax(argv: &[&[u8]]) -> CommandError {
    errors::subcommand_syntax(subcommand(argv), "CLIENT")
}

/// Parses the arguments of CLIENT NO-EVICT or CLIENT NO-TOUCH.
pub fn parse_on_or_off(argv: ArgList<'_>) -> Result<bool, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let on = args.keyword("ON");
    if !on && !args.keyword("OFF") {
        return Err(errors::SYNTAX);
    }
    args.finish()?;
    Ok(on)
}

/// Fails with `error` unless the text is printable ASCII without spaces: spaces separate the fields of CLIENT LIST.
pub(super) fn check_printable(text: &[u8], error: CommandError) -> Result<&[u8], CommandError> {
    if text.len() > NAME_BYTES_MAX {
        return Err(errors::NAME_TOO_LONG);
    }
    if text.iter().all(u8::is_ascii_graphic) { Ok(text) } else { Err(error) }
}

fn parse_type(name: &[u8]) -> Result<ClientType, CommandError> {
    const NAMES: [(&str, ClientType); 5] = [
        ("normal", ClientType::Normal),
        ("slave", ClientType::Replica),
        ("replica", ClientType::Replica),
        ("pubsub", ClientType::Pubsub),
        ("master", ClientType::Master),
    ];
    let known = NAMES.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    known.map(|(_, client_type)| client_type).ok_or_else(|| errors::unknown_client_type(name))
}

fn parse_client_ids(texts: &[&[u8]]) -> Result<SmallVec<[i64; 4]>, CommandError> {
    texts.iter().map(|text| number::parse_i64(text).ok_or(errors::INVALID_CLIENT_ID)).collect()
}

impl<'a> KillFilter<'a> {
    fn parse(mut args: Args<'a>) -> Result<KillFilter<'a>, CommandError> {
        let mut filter = KillFilter { skip_me: true, ..KillFilter::default() };
        while !args.is_empty() {
            if args.keyword_before("ID", 1) {
                filter.id = Some(parse_positive(args.next()?).ok_or(errors::CLIENT_ID_NOT_POSITIVE)?);
            } else if args.keyword_before("MAXAGE", 1) {
                let seconds = args.next_i64_or(errors::MAXAGE_NOT_AN_INTEGER)?;
                let seconds = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0);
                filter.age_s_min = Some(seconds.ok_or(errors::MAXAGE_NOT_POSITIVE)?);
            } else if args.keyword_before("TYPE", 1) {
                filter.client_type = Some(parse_type(args.next()?)?);
            } else if args.keyword_before("ADDR", 1) {
                filter.address = Some(args.next()?);
            } else if args.keyword_before("LADDR", 1) {
                filter.local_address = Some(args.next()?);
            } else if args.keyword_before("USER", 1) {
                filter.user = Some(args.next()?);
            } else if args.keyword_before("SKIPME", 1) {
                filter.skip_me = args.keyword("YES");
                if !filter.skip_me && !args.keyword("NO") {
                    return Err(errors::SYNTAX);
                }
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(filter)
    }
}

fn parse_positive(text: &[u8]) -> Option<u64> {
    number::parse_i64(text).and_then(|number| u64::try_from(number).ok()).filter(|&number| number > 0)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
