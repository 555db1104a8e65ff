//! Tests of the limit on the size of a change. The limit of the log is smaller here, so that the changes are too.

use std::sync::Arc;

use millstream_protocol::resp::Writer;
use millstream_store::log::Policy;
use millstream_store::{FolderOptions, Store, StoreOptions};

use super::Connection;
use crate::acl::Users;
use crate::registry::{ConnectionInfo, Transport};
use crate::settings::Settings;
use crate::state::Server;
use crate::table::{COMMANDS, catalog};

const LIMIT_BYTES: usize = 1 << 20;

/// Runs `test` with a function that returns the replies to requests.
fn with_limit(name: &str, test: impl FnOnce(&mut dyn FnMut(&[&[&str]]) -> String)) {
    let dir = std::env::temp_dir().join(format!("millstream-record-limit-{name}-{}", std::process::id()));
    // A test run that was killed can have left the folder behind.
    let _ = std::fs::remove_dir_all(&dir);
    let folder = FolderOptions {
        policy: Policy::Never,
        change_bytes_max: LIMIT_BYTES as u64,
        ..FolderOptions::default()
    };
    let store = Arc::new(Store::open(&dir, StoreOptions::default(), folder).unwrap().0);
    let users = Users::open(catalog(), "", "").unwrap();
    let server = Arc::new(Server::new(Settings::new(), Vec::new(), None, store, users, COMMANDS.len()));
    let info = ConnectionInfo { addr: "".into(), laddr: "".into(), fd: 0, transport: Transport::Tcp };
    let client = server.clients.add(info, 0, 1, false).unwrap();
    let stats = Arc::clone(server.stats.of_thread(0));
    let mut connection = Connection::new(Arc::clone(&server), stats, client);
    test(&mut |requests| {
        let mut out = Writer::new(false);
        for args in requests {
            let mut bytes = format!("*{}\r\n", args.len());
            args.iter().for_each(|arg| bytes.push_str(&format!("${}\r\n{arg}\r\n", arg.len())));
            connection.run(bytes.as_bytes(), &mut out);
        }
        String::from_utf8(out.buf).unwrap()
    });
    assert!(server.store.check_writable(0).is_ok());
    drop(connection);
    server.store.close().unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

fn refused(bytes: usize) -> String {
    format!(
        "ERR a command or transaction can change at most {LIMIT_BYTES} bytes, and this one changes {bytes}; split \
         it\r\n"
    )
}

#[test]
fn command_that_changes_too_much_is_refused() {
    with_limit("command", |run| {
        let value = "x".repeat(LIMIT_BYTES - "SETk".len());
        assert_eq!(run(&[&["SET", "k", &value]]), "+OK\r\n");
        assert_eq!(run(&[&["SET", "k", &format!("{value}x")]]), format!("-{}", refused(LIMIT_BYTES + 1)));
        assert_eq!(run(&[&["STRLEN", "k"]]), format!(":{}\r\n", value.len()));
        // XREADGROUP logs the name of its consumer once or twice for each stream.
        let consumer = "c".repeat(LIMIT_BYTES / 8);
        let mut args = vec!["XREADGROUP", "GROUP", "g", &consumer, "STREAMS"];
        args.extend(["s"; 4].iter().chain(&[">"; 4]));
        let reply = run(&[&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"], &args]);
        assert!(reply.starts_with("+OK\r\n-ERR a command or transaction can change at most"), "{reply}");
    });
}

#[test]
fn transaction_that_changes_too_much_is_refused_as_a_whole() {
    with_limit("transaction", |run| {
        let half = "x".repeat(LIMIT_BYTES / 2 - "SETa".len());
        let fits: [&[&str]; 4] = [&["MULTI"], &["SET", "a", &half], &["SET", "b", &half], &["EXEC"]];
        assert_eq!(run(&fits), "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n");
        let longer = format!("{half}x");
        let replies = run(&[&["MULTI"], &["SET", "c", &half], &["SET", "b", &longer], &["EXEC"]]);
        assert_eq!(replies, format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n-{}", refused(LIMIT_BYTES + 1)));
        assert_eq!(run(&[&["EXISTS", "c"]]), ":0\r\n");
    });
}

/// Such a command has few arguments, but its record has the ids of all pending entries.
#[test]
fn commands_of_a_transaction_whose_record_is_full_are_refused() {
    with_limit("ids", |run| {
        run(&[&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]]);
        for _ in 0..10_000 {
            run(&[&["XADD", "s", "*", "f", "v"]]);
        }
        run(&[&["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"]]);
        let again: &[&str] = &["XAUTOCLAIM", "s", "g", "c", "0", "0", "COUNT", "10000", "JUSTID"];
        let mut requests = vec![again; 100];
        requests.insert(0, &["MULTI"]);
        requests.extend([&["GET", "none"][..], &["SET", "k", "v"], &["EXEC"]]);
        let replies = run(&requests);
        let refused = replies.matches("-ERR a command or transaction can change at most").count();
        assert!((1..100).contains(&refused), "{refused} commands were refused");
        assert!(replies.contains("$-1\r\n-ERR a command or transaction"), "reads run, writes do not");
        assert_eq!(run(&[&["SET", "k", "v"]]), "+OK\r\n");
    });
}
