//! CLIENT: who is connected, and what becomes of them.
//!
//! `CLIENT ID|GETNAME|INFO|UNPAUSE|GETREDIR|TRACKINGINFO`, `CLIENT SETNAME name`,
//! `CLIENT SETINFO <LIB-NAME|LIB-VER> value`, `CLIENT LIST [TYPE type] [ID id [id ...]]`,
//! `CLIENT KILL <addr | [ID id] [TYPE type] [ADDR addr] [LADDR addr] [USER user] [SKIPME yes|no] [MAXAGE s]>`,
//! `CLIENT UNBLOCK id [TIMEOUT|ERROR]`, `CLIENT PAUSE ms [WRITE|ALL]`, `CLIENT REPLY <ON|OFF|SKIP>`,
//! `CLIENT NO-EVICT|NO-TOUCH <ON|OFF>`, `CLIENT TRACKING <ON|OFF> […]`

use smallvec::SmallVec;

use super::timeout::parse_timeout_ms;
use super::{Arg, Command};
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};
use crate::number;

/// The one user there is.
pub(super) const DEFAULT_USER: &[u8] = b"default";

/// A command about clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCommand<'a> {
    /// CLIENT ID
    Id,
    /// CLIENT GETNAME
    GetName,
    /// CLIENT SETNAME; an empty name takes the name away.
    SetName(Arg<'a>),
    /// CLIENT SETINFO; an empty value takes the attribute away.
    SetInfo(ClientAttribute, Arg<'a>),
    /// CLIENT INFO
    Info,
    /// CLIENT LIST
    List(ClientSelection),
    /// CLIENT KILL
    Kill(ClientKill<'a>),
    /// CLIENT UNBLOCK
    Unblock {
        /// The client.
        id: i64,
        /// What it is told.
        how: Unblock,
    },
    /// CLIENT PAUSE
    Pause {
        /// For how long.
        timeout_ms: u64,
        /// Which commands wait.
        mode: PauseMode,
    },
    /// CLIENT UNPAUSE
    Unpause,
    /// CLIENT REPLY
    Reply(ReplyMode),
    /// CLIENT NO-EVICT
    NoEvict(bool),
    /// CLIENT NO-TOUCH
    NoTouch(bool),
    /// CLIENT TRACKING OFF; turning it on is refused.
    TrackingOff,
    /// CLIENT GETREDIR
    GetRedir,
    /// CLIENT TRACKINGINFO
    TrackingInfo,
}

/// What a client library says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAttribute {
    /// LIB-NAME
    LibName,
    /// LIB-VER
    LibVer,
}

/// Which clients CLIENT LIST shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSelection {
    /// All.
    All,
    /// Those of one kind.
    OfType(ClientType),
    /// Those with these ids.
    Ids(SmallVec<[i64; 4]>),
}

/// Kinds of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    /// Any other client.
    Normal,
    /// A replica of this server.
    Replica,
    /// The server this one replicates.
    Master,
    /// A subscriber.
    Pubsub,
}

/// Which clients CLIENT KILL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKill<'a> {
    /// The one at this address; it is an error if there is none.
    Address(Arg<'a>),
    /// All that match; the answer is their number.
    Matching(KillFilter<'a>),
}

/// What clients must match to be ended. What is `None` matches all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillFilter<'a> {
    /// ID
    pub id: Option<u64>,
    /// TYPE
    pub client_type: Option<ClientType>,
    /// ADDR
    pub address: Option<Arg<'a>>,
    /// LADDR
    pub local_address: Option<Arg<'a>>,
    /// MAXAGE: connected for at least so many seconds.
    pub age_s_min: Option<u64>,
    /// SKIPME: whether the caller is spared.
    pub skip_me: bool,
}

/// What CLIENT UNBLOCK makes the blocked client see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// The answer of a wait that ran out.
    Timeout,
    /// An error.
    Error,
}

/// Which commands wait during a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMode {
    /// All of them.
    All,
    /// Those that write.
    Write,
}

/// Whether commands are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// They are.
    On,
    /// They are not.
    Off,
    /// The next one is not.
    Skip,
}

pub(crate) fn parse_client_id<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    alone(argv, ClientCommand::Id)
}

pub(crate) fn parse_client_getname<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    alone(argv, ClientCommand::GetName)
}

pub(crate) fn parse_client_info<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    alone(argv, ClientCommand::Info)
}

pub(crate) fn parse_client_unpause<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    alone(argv, ClientCommand::Unpause)
}

pub(crate) fn parse_client_getredir<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    alone(argv, ClientCommand::GetRedir)
}

pub(crate) fn parse_client_trackinginfo<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    alone(argv, ClientCommand::TrackingInfo)
}

pub(crate) fn parse_client_setname<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [name] = Args::of_subcommand(argv).exactly()?;
    let name = check_printable(name, errors::INVALID_CLIENT_NAME)?;
    Ok(Command::Client(ClientCommand::SetName(name)))
}

pub(crate) fn parse_client_setinfo<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [name, value] = Args::of_subcommand(argv).exactly()?;
    let attribute = match () {
        () if name.eq_ignore_ascii_case(b"LIB-NAME") => ClientAttribute::LibName,
        () if name.eq_ignore_ascii_case(b"LIB-VER") => ClientAttribute::LibVer,
        () => return Err(errors::unrecognized_client_attribute(name)),
    };
    let value = check_printable(value, errors::invalid_client_attribute(name))?;
    Ok(Command::Client(ClientCommand::SetInfo(attribute, value)))
}

pub(crate) fn parse_client_list<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let selection = if args.len() == 2 && args.keyword("TYPE") {
        ClientSelection::OfType(parse_type(args.next()?)?)
    } else if args.keyword_before("ID", 1) {
        ClientSelection::Ids(parse_client_ids(args.rest())?)
    } else {
        args.finish()?;
        ClientSelection::All
    };
    Ok(Command::Client(ClientCommand::List(selection)))
}

pub(crate) fn parse_client_kill<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let kill = match args.len() {
        1 => ClientKill::Address(args.next()?),
        _ => ClientKill::Matching(KillFilter::parse(args)?),
    };
    Ok(Command::Client(ClientCommand::Kill(kill)))
}

pub(crate) fn parse_client_unblock<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let id = args.next()?;
    let how = match *args.rest() {
        [] => Unblock::Timeout,
        [how] if how.eq_ignore_ascii_case(b"TIMEOUT") => Unblock::Timeout,
        [how] if how.eq_ignore_ascii_case(b"ERROR") => Unblock::Error,
        [_] => return Err(errors::UNBLOCK_REASON),
        _ => return Err(client_syntax(argv)),
    };
    let id = number::parse_i64(id).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(Command::Client(ClientCommand::Unblock { id, how }))
}

pub(crate) fn parse_client_pause<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let timeout = args.next()?;
    let mode = match *args.rest() {
        [] => PauseMode::All,
        [mode] if mode.eq_ignore_ascii_case(b"ALL") => PauseMode::All,
        [mode] if mode.eq_ignore_ascii_case(b"WRITE") => PauseMode::Write,
        [_] => return Err(errors::PAUSE_MODE),
        _ => return Err(client_syntax(argv)),
    };
    let timeout_ms = parse_timeout_ms(timeout)?;
    Ok(Command::Client(ClientCommand::Pause { timeout_ms, mode }))
}

pub(crate) fn parse_client_reply<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let mode = match () {
        () if args.keyword("ON") => ReplyMode::On,
        () if args.keyword("OFF") => ReplyMode::Off,
        () if args.keyword("SKIP") => ReplyMode::Skip,
        () => return Err(errors::SYNTAX),
    };
    args.finish()?;
    Ok(Command::Client(ClientCommand::Reply(mode)))
}

pub(crate) fn parse_client_no_evict<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    on_or_off(Args::of_subcommand(argv)).map(|on| Command::Client(ClientCommand::NoEvict(on)))
}

pub(crate) fn parse_client_no_touch<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    on_or_off(Args::of_subcommand(argv)).map(|on| Command::Client(ClientCommand::NoTouch(on)))
}

pub(crate) fn parse_client_tracking<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    if args.keyword("ON") {
        return Err(errors::NO_TRACKING);
    }
    if !args.keyword("OFF") {
        return Err(errors::SYNTAX);
    }
    args.finish()?;
    Ok(Command::Client(ClientCommand::TrackingOff))
}

fn alone<'a>(argv: &'a [&'a [u8]], command: ClientCommand<'a>) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Client(command))
}

fn client_syntax(argv: &[&[u8]]) -> CommandError {
    errors::subcommand_syntax(subcommand(argv), "CLIENT")
}

fn on_or_off(mut args: Args<'_>) -> Result<bool, CommandError> {
    let on = args.keyword("ON");
    if !on && !args.keyword("OFF") {
        return Err(errors::SYNTAX);
    }
    args.finish()?;
    Ok(on)
}

/// A text that can stand in a line of CLIENT LIST.
pub(super) fn check_printable(text: &[u8], refusal: CommandError) -> Result<&[u8], CommandError> {
    if text.iter().all(u8::is_ascii_graphic) { Ok(text) } else { Err(refusal) }
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
        let mut filter = KillFilter {
            id: None,
            client_type: None,
            address: None,
            local_address: None,
            age_s_min: None,
            skip_me: true,
        };
        while !args.is_empty() {
            filter.read_option(&mut args)?;
        }
        Ok(filter)
    }

    fn read_option(&mut self, args: &mut Args<'a>) -> Result<(), CommandError> {
        if args.keyword_before("ID", 1) {
            self.id = Some(parse_positive(args.next()?).ok_or(errors::CLIENT_ID_NOT_POSITIVE)?);
        } else if args.keyword_before("MAXAGE", 1) {
            let seconds = args.next_i64_or(errors::MAXAGE_NOT_AN_INTEGER)?;
            let seconds = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0);
            self.age_s_min = Some(seconds.ok_or(errors::MAXAGE_NOT_POSITIVE)?);
        } else if args.keyword_before("TYPE", 1) {
            self.client_type = Some(parse_type(args.next()?)?);
        } else if args.keyword_before("ADDR", 1) {
            self.address = Some(args.next()?);
        } else if args.keyword_before("LADDR", 1) {
            self.local_address = Some(args.next()?);
        } else if args.keyword_before("USER", 1) {
            // Every client is the one user there is.
            check_user(args.next()?)?;
        } else if args.keyword_before("SKIPME", 1) {
            self.skip_me = args.keyword("YES");
            if !self.skip_me && !args.keyword("NO") {
                return Err(errors::SYNTAX);
            }
        } else {
            return Err(errors::SYNTAX);
        }
        Ok(())
    }
}

fn check_user(name: &[u8]) -> Result<(), CommandError> {
    if name == DEFAULT_USER { Ok(()) } else { Err(errors::no_such_user(name)) }
}

fn parse_positive(text: &[u8]) -> Option<u64> {
    number::parse_i64(text).and_then(|number| u64::try_from(number).ok()).filter(|&number| number > 0)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
