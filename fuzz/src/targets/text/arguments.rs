//! The parsers of the protocol: typed arguments of every command, entry ids and numbers.

use millstream_protocol::commands::*;
use millstream_protocol::{CommandError, ids, number};

/// Runs a parser and checks that its error can be sent.
macro_rules! parse {
    ($argv:ident: $($parser:expr),* $(,)?) => {
        $(check(($parser)($argv).map(|_| ()));)*
    };
}

pub(super) fn run(input: &[u8]) {
    let argv: Vec<&[u8]> = input.split(|byte| *byte == 0).collect();
    let argv = argv.as_slice();
    for arg in argv {
        parse_argument(arg);
    }
    check(ids::parse_ids(argv).map(drop));
    parse!(argv:
        ClientAttribute::parse, ClientSelection::parse, ClientKill::parse, UnblockReason::parse, PauseMode::parse,
        ReplyMode::parse, parse_client_name, check_tracking, parse_on_or_off, CommandFilter::parse, Auth::parse,
        CopyKey::parse, parse_swapdb, BlockingPop::parse, Scan::parse, DebugCommand::parse, ShutdownCommand::parse,
        WaitAof::parse, parse_slowlog_get, parse_bgsave, check_wait, check_replicaof, Set::parse, Xadd::parse,
        Xadopt::parse, Xautoclaim::parse, Xidmprecord::parse, Xpending::parse, Xsetid::parse, Xtrim::parse,
        |argv| Pop::parse(argv, "lpop"),
        |argv| Xrange::parse(argv, Direction::Forward),
        |argv| Xrange::parse(argv, Direction::Backward),
        |argv| Hello::parse(argv).and_then(|hello| hello.checked_name().map(drop)),
        |argv| GetEx::parse(argv).and_then(|getex| getex.new_expiry().map(drop)),
        |argv| Xack::parse(argv).and_then(|xack| xack.read_ids(&mut Default::default())),
        |argv| Xackdel::parse(argv).and_then(|xackdel| xackdel.request()?.parse_ids().map(drop)),
        |argv| Xdelex::parse(argv).and_then(|xdelex| xdelex.request()?.parse_ids().map(drop)),
        |argv| Xdel::parse(argv).and_then(|xdel| xdel.parse_ids().map(drop)),
        |argv| Xcfgset::parse(argv).and_then(|xcfgset| xcfgset.request().map(drop)),
        |argv| Xclaim::parse(argv).and_then(|xclaim| xclaim.request().map(drop)),
        |argv| Xextend::parse(argv).and_then(|xextend| xextend.parse_ids().map(drop)),
        |argv| XgroupCreate::parse(argv).and_then(|create| create.group_start().map(drop)),
        |argv| XgroupSetId::parse(argv).and_then(|setid| setid.group_start().map(drop)),
        |argv| XinfoStream::parse(argv).and_then(|xinfo| xinfo.detail().map(drop)),
        |argv| Xnack::parse(argv).and_then(|xnack| xnack.request().map(drop)),
        |argv| Xread::parse(argv)
            .and_then(|read| (0..read.streams.len()).try_for_each(|index| read.position(index).map(drop))),
        |argv| Xreadgroup::parse(argv)
            .and_then(|read| (0..read.streams.len()).try_for_each(|index| read.position(index).map(drop))),
    );
    for (base, unit) in [
        (TimeBase::Now, TimeUnit::Seconds),
        (TimeBase::Now, TimeUnit::Milliseconds),
        (TimeBase::Epoch, TimeUnit::Seconds),
        (TimeBase::Epoch, TimeUnit::Milliseconds),
    ] {
        let expire = Expire::parse(argv, base, unit, "expire");
        check(expire.and_then(|expire| expire.deadline.at_ms(1_700_000_000_000).map(drop)));
    }
}

/// Parses one argument as an id and as a number. What was parsed and is written again is parsed to the same.
fn parse_argument(arg: &[u8]) {
    check(ids::parse_id_or_extreme(arg).map(drop));
    check(ids::parse_id_spec(arg).map(drop));
    check(ids::parse_start(arg).map(drop));
    check(ids::parse_end(arg).map(drop));
    check(parse_db(arg).map(drop));
    if let Ok(id) = ids::parse_id(arg) {
        assert_eq!(ids::parse_id(id.to_string().as_bytes()), Ok(id));
    }
    if let Some(parsed) = number::parse_i64(arg) {
        assert_eq!(parsed.to_string().as_bytes(), arg);
    }
    if let Some(parsed) = number::parse_u64(arg) {
        assert_eq!(number::parse_u64(parsed.to_string().as_bytes()), Some(parsed));
    }
}

/// Checks that an error reply is one line.
fn check(parsed: Result<(), CommandError>) {
    if let Err(error) = parsed {
        assert!(!error.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n')), "{error:?}");
    }
}
