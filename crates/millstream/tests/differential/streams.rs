//! Random commands of the streams family.

use crate::generate::Pool;
use crate::script::{Argv, argv};

/// Returns one command, preceded by XGROUP CREATECONSUMER if needed.
///
/// A Redis older than 7.2 creates the consumer of a read or claim only when entries are delivered to it. If the
/// reference is that old, the consumer is created explicitly first.
pub(crate) fn commands(pool: &mut Pool) -> Vec<Argv> {
    let mut commands = with_consumer(pool);
    if pool.knows_activity {
        commands.drain(..commands.len() - 1);
    }
    commands
}

fn with_consumer(pool: &mut Pool) -> Vec<Argv> {
    let key = pool.key();
    if pool.has_references && pool.deletes && pool.random.percent(8) {
        return vec![delete_with_references(pool, &key)];
    }
    match pool.random.below(100) {
        0..24 => vec![append(pool, &key)],
        24..30 => vec![range(pool, &key)],
        30..34 => vec![read(pool)],
        34..50 => read_group(pool),
        50..57 => vec![acknowledge(pool, &key)],
        57..63 => vec![pending(pool, &key)],
        63..69 => claim(pool, &key),
        69..74 => auto_claim(pool, &key),
        74..83 => vec![group(pool, &key)],
        83..89 => vec![info(pool, &key)],
        89..91 => vec![argv(&["XLEN", &key])],
        91..93 => vec![argv(&["TYPE", &key])],
        _ => vec![shorten(pool, &key)],
    }
}

/// XADD.
pub(crate) fn append(pool: &mut Pool, key: &str) -> Argv {
    let mut command = argv(&["XADD", key]);
    if pool.random.percent(5) {
        command.extend(argv(&["NOMKSTREAM"]));
    }
    if pool.deletes && pool.random.percent(12) {
        command.extend(trim(pool));
    }
    command.push(pool.new_id().into_bytes());
    command.extend(fields(pool));
    command
}

/// Fields whose names often repeat those of other entries, with values of every size class of the storage format.
///
/// No entry is larger than a block: an entry that begins a block and does not fit into it can crash Redis 7.0.15.
fn fields(pool: &mut Pool) -> Argv {
    let names: &[&str] = match pool.random.below(10) {
        0..5 => &["f"],
        5 | 6 => &["name", "amount", "f"],
        7 => &["amount", "name"],
        8 => &["f", "f", ""],
        _ => &["a-field-with-a-rather-long-name-that-goes-beyond-sixty-four-bytes-of-text"],
    };
    names.iter().flat_map(|name| [name.as_bytes().to_vec(), value(pool)]).collect()
}

fn value(pool: &mut Pool) -> Vec<u8> {
    const NUMBERS: [&str; 16] = [
        "0",
        "1",
        "12",
        "13",
        "127",
        "128",
        "4095",
        "4096",
        "32768",
        "8388608",
        "2147483648",
        "-1",
        "-129",
        "9223372036854775807",
        "00",
        "9223372036854775808",
    ];
    match pool.random.below(10) {
        0..4 => b"v".to_vec(),
        4..7 => pool.random.pick(&NUMBERS).as_bytes().to_vec(),
        7 => vec![b'x'; pool.random.below(80) as usize],
        8 => vec![0xff; pool.random.below(8) as usize],
        _ => vec![b'z'; pool.random.between(50, 250) as usize],
    }
}

/// `MAXLEN|MINID [=|~] threshold [LIMIT n]`
fn trim(pool: &mut Pool) -> Argv {
    let by_length = pool.random.percent(60);
    let mut words = argv(&[if by_length { "MAXLEN" } else { "MINID" }]);
    // Before 8.4, Redis trims only whole blocks, also with a reference policy. What it keeps depends on the block
    // boundaries.
    let references = pool.has_references && pool.random.percent(40);
    let approximate = pool.random.percent(60) && !references;
    if approximate || pool.random.percent(50) {
        words.extend(argv(&[if approximate { "~" } else { "=" }]));
    }
    let threshold = if by_length { pool.random.below(60).to_string() } else { pool.id() };
    words.push(threshold.into_bytes());
    if pool.random.percent(if approximate { 40 } else { 3 }) {
        words.extend(argv(&["LIMIT", &pool.random.below(40).to_string()]));
    }
    if references {
        words.extend(reference_policy(pool));
    }
    words
}

fn reference_policy(pool: &mut Pool) -> Argv {
    let policies: &[&str] =
        if pool.destroys { &["KEEPREF", "DELREF"] } else { &["KEEPREF", "DELREF", "ACKED", "ACKED"] };
    argv(&[pool.random.pick(policies)])
}

/// XDELEX and XACKDEL.
fn delete_with_references(pool: &mut Pool, key: &str) -> Argv {
    let mut command =
        if pool.random.percent(50) { argv(&["XDELEX", key]) } else { argv(&["XACKDEL", key, &pool.group()]) };
    let policy = if pool.random.percent(85) { reference_policy(pool) } else { Argv::new() };
    let count = pool.random.between(1, 6);
    let mut ids = argv(&["IDS", &count.to_string()]);
    ids.extend((0..count).map(|_| pool.id().into_bytes()));
    let (first, second) = if pool.random.percent(80) { (policy, ids) } else { (ids, policy) };
    command.extend(first);
    command.extend(second);
    command
}

/// XTRIM, XDEL or XSETID: commands after which the lag is hard to compute.
fn shorten(pool: &mut Pool, key: &str) -> Argv {
    if !pool.deletes {
        return argv(&["XLEN", key]);
    }
    match pool.random.below(10) {
        0..4 => {
            let mut command = argv(&["XTRIM", key]);
            command.extend(trim(pool));
            command
        }
        // Since 7.2, XSETID must not set an id below the greatest deleted one. Here it only moves forward.
        4 if !pool.edge_ids => {
            let mut command = argv(&["XSETID", key, &pool.id_above()]);
            if pool.random.percent(40) {
                command.extend(argv(&["ENTRIESADDED", &pool.random.below(500).to_string()]));
            }
            if pool.random.percent(30) {
                command.extend(argv(&["MAXDELETEDID", &pool.id()]));
            }
            command
        }
        _ => with_ids(pool, argv(&["XDEL", key])),
    }
}

fn with_ids(pool: &mut Pool, mut command: Argv) -> Argv {
    for _ in 0..pool.random.between(1, 6) {
        command.push(pool.id().into_bytes());
    }
    command
}

fn range(pool: &mut Pool, key: &str) -> Argv {
    let mut command = if pool.random.percent(60) {
        argv(&["XRANGE", key, &pool.bound("-"), &pool.bound("+")])
    } else {
        argv(&["XREVRANGE", key, &pool.bound("+"), &pool.bound("-")])
    };
    if pool.random.percent(50) {
        command.extend(argv(&["COUNT", &pool.count()]));
    }
    command
}

fn read(pool: &mut Pool) -> Argv {
    let mut command = argv(&["XREAD"]);
    if pool.random.percent(60) {
        command.extend(argv(&["COUNT", &pool.count()]));
    }
    command.extend(argv(&["STREAMS"]));
    let keys: Vec<String> = (0..pool.random.between(1, 3)).map(|_| pool.key()).collect();
    command.extend(keys.iter().map(|key| key.clone().into_bytes()));
    for _ in keys {
        let id = match pool.random.below(100) {
            0..10 => "$".to_string(),
            10..18 if pool.has_references => "+".to_string(),
            _ => pool.id(),
        };
        command.push(id.into_bytes());
    }
    command
}

fn read_group(pool: &mut Pool) -> Vec<Argv> {
    let (group, consumer) = (pool.group(), pool.consumer());
    let keys: Vec<String> = (0..pool.random.between(1, 6) / 4 + 1).map(|_| pool.key()).collect();
    let mut options = vec![argv(&["GROUP", &group, &consumer])];
    if pool.random.percent(70) {
        options.push(argv(&["COUNT", &pool.count()]));
    }
    if pool.random.percent(10) {
        options.push(argv(&["NOACK"]));
    }
    if pool.random.percent(20) {
        options.rotate_left(1);
    }
    let mut command = argv(&["XREADGROUP"]);
    command.extend(options.concat());
    command.extend(argv(&["STREAMS"]));
    command.extend(keys.iter().map(|key| key.clone().into_bytes()));
    for _ in &keys {
        let id = if pool.random.percent(75) { ">".to_string() } else { pool.id() };
        command.push(id.into_bytes());
    }
    let mut commands: Vec<Argv> = keys.iter().map(|key| create_consumer(key, &group, &consumer)).collect();
    commands.push(command);
    commands
}

/// A blocking read, for use inside a transaction, where it must not block.
pub(crate) fn blocking(pool: &mut Pool) -> Argv {
    let key = pool.key();
    argv(&["XREAD", "BLOCK", &pool.random.below(3).to_string(), "STREAMS", &key, "$"])
}

fn create_consumer(key: &str, group: &str, consumer: &str) -> Argv {
    argv(&["XGROUP", "CREATECONSUMER", key, group, consumer])
}

fn acknowledge(pool: &mut Pool, key: &str) -> Argv {
    let group = pool.group();
    with_ids(pool, argv(&["XACK", key, &group]))
}

fn pending(pool: &mut Pool, key: &str) -> Argv {
    let mut command = argv(&["XPENDING", key, &pool.group()]);
    if pool.random.percent(30) {
        return command;
    }
    if pool.random.percent(30) {
        command.extend(argv(&["IDLE", pool.random.pick(&["0", "500000", "99999999999999"])]));
    }
    command.extend(argv(&[&pool.bound("-"), &pool.bound("+"), &pool.count()]));
    if pool.random.percent(30) {
        command.push(pool.consumer().into_bytes());
    }
    command
}

/// Idle times so far apart that a slow test run cannot confuse them.
fn min_idle(pool: &mut Pool) -> &'static str {
    pool.random.pick(&["0", "0", "0", "500000", "99999999999999", "-1"])
}

fn claim(pool: &mut Pool, key: &str) -> Vec<Argv> {
    let (group, consumer) = (pool.group(), pool.consumer());
    let command = argv(&["XCLAIM", key, &group, &consumer, min_idle(pool)]);
    let mut command = with_ids(pool, command);
    for _ in 0..pool.random.below(4) {
        let option = match pool.random.below(7) {
            0 => argv(&["IDLE", pool.random.pick(&["0", "1000000"])]),
            1 => argv(&["TIME", pool.random.pick(&["1000", "99999999999999"])]),
            2 => argv(&["RETRYCOUNT", &pool.random.below(20).to_string()]),
            3 => argv(&["FORCE"]),
            4 | 5 => argv(&["JUSTID"]),
            _ => argv(&["LASTID", &pool.id()]),
        };
        command.extend(option);
    }
    vec![create_consumer(key, &group, &consumer), command]
}

fn auto_claim(pool: &mut Pool, key: &str) -> Vec<Argv> {
    let (group, consumer) = (pool.group(), pool.consumer());
    let mut command = argv(&["XAUTOCLAIM", key, &group, &consumer, min_idle(pool), &pool.bound("-")]);
    if pool.random.percent(60) {
        command.extend(argv(&["COUNT", &pool.random.between(1, 15).to_string()]));
    }
    if pool.random.percent(40) {
        command.extend(argv(&["JUSTID"]));
    }
    vec![create_consumer(key, &group, &consumer), command]
}

fn group(pool: &mut Pool, key: &str) -> Argv {
    let group = pool.group();
    let start = match pool.random.below(4) {
        0 => "$".to_string(),
        1 => "0".to_string(),
        _ => pool.id(),
    };
    let mut command = match pool.random.below(20) {
        0..11 => argv(&["XGROUP", "CREATE", key, &group, &start]),
        11..15 => argv(&["XGROUP", "SETID", key, &group, &start]),
        15 if pool.destroys => return argv(&["XGROUP", "DESTROY", key, &group]),
        15..18 => return create_consumer(key, &group, &pool.consumer()),
        _ => return argv(&["XGROUP", "DELCONSUMER", key, &group, &pool.consumer()]),
    };
    if pool.random.percent(40) && command[1] == b"CREATE" {
        command.extend(argv(&["MKSTREAM"]));
    }
    if pool.deletes && pool.random.percent(10) {
        command.extend(argv(&["ENTRIESREAD", pool.random.pick(&["0", "3", "-1", "-2", "100"])]));
    }
    command
}

fn info(pool: &mut Pool, key: &str) -> Argv {
    match pool.random.below(5) {
        0 => argv(&["XINFO", "STREAM", key]),
        1 => argv(&["XINFO", "STREAM", key, "FULL"]),
        2 => argv(&["XINFO", "STREAM", key, "FULL", "COUNT", &pool.count()]),
        3 => argv(&["XINFO", "GROUPS", key]),
        _ => argv(&["XINFO", "CONSUMERS", key, &pool.group()]),
    }
}
