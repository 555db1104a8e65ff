//! Requests of one batch share locks. This must not change their replies, and must not cause a deadlock.

mod support;

use support::Client;

/// Encodes a request as client libraries do.
fn encoded(request: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let texts: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{texts}", words.len())
}

/// Sends the requests in one write, followed by PING. Returns the replies up to the PONG, with line ends as spaces.
fn replies_to(client: &mut Client, requests: &[&str]) -> String {
    let requests: String = requests.iter().map(|request| encoded(request)).collect();
    client.send(&(requests + "PING\r\n"));
    String::from_utf8(client.until_pong()).unwrap().replace("\r\n", " ")
}

#[test]
fn next_command_of_a_batch_can_take_any_lock() {
    let mut client = Client::connect(support::start());
    let add = "XADD s * f v";
    // The lock of `s` is held when the next command runs. It needs this lock too, or that of another key, or all locks.
    for (next, expected) in [
        ("XLEN s", ":1 "),
        ("DEL s t u v w", ":1 "),
        ("DBSIZE", ":1 "),
        ("FLUSHALL", "+OK "),
        ("RENAME s t", "+OK "),
        ("EXISTS s nothing", ":1 "),
        ("DEBUG RELOAD", "+OK "),
        ("BGSAVE", "-ERR"),
        ("OBJECT HELP", "*"),
        ("COPY s t", ":1 "),
        ("SELECT 3", "+OK "),
        ("NOPE", "-ERR unknown command"),
        ("XLEN", "-ERR wrong number"),
        ("XGROUP CREATE s g bad", "-ERR Invalid stream ID"),
        ("XINFO STREAM s", "*"),
    ] {
        replies_to(&mut client, &["SELECT 0", "FLUSHALL"]);
        let replies = replies_to(&mut client, &[add, next]);
        // Skip the reply of XADD: the length and the text of the id.
        let reply = replies.splitn(3, ' ').nth(2);
        assert!(reply.is_some_and(|reply| reply.starts_with(expected)), "{next}: {replies}");
    }
}

#[test]
fn invalid_exec_unwatches_all_keys() {
    let mut client = Client::connect(support::start());
    let error = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    let replies = replies_to(&mut client, &["WATCH k", "SET k 1", "EXEC too much", "GET k"]);
    assert_eq!(replies, format!("+OK +OK {error} $1 1 "));
    let replies = replies_to(&mut client, &["WATCH k", "SET k 3", "MULTI", "GET k", "EXEC", "GET k"]);
    assert_eq!(replies, "+OK +OK +OK +QUEUED *-1 $1 3 ");
}

#[test]
fn blocked_readers_are_served_between_commands_of_a_batch() {
    let address = support::start();
    let mut writer = Client::connect(address);
    replies_to(&mut writer, &["XGROUP CREATE s g $ MKSTREAM"]);
    let mut reader = Client::connect(address);
    reader.send("XREADGROUP GROUP g c COUNT 9 BLOCK 0 STREAMS s >\r\nPING\r\n");
    while !replies_to(&mut writer, &["INFO clients"]).contains("blocked_clients:1 ") {}
    // The blocked reader gets only the first entry, as if each command were a batch of its own.
    let replies = replies_to(&mut writer, &["XADD s 1-1 f v", "XPENDING s g", "XADD s 1-2 f v", "XLEN s"]);
    assert_eq!(replies, "$3 1-1 *4 :1 $3 1-1 $3 1-1 *1 *2 $1 c $1 1 $3 1-2 :2 ");
    assert_eq!(
        String::from_utf8(reader.until_pong()).unwrap().replace("\r\n", " "),
        "*1 *2 $1 s *1 *2 $3 1-1 *2 $1 f $1 v "
    );
}

/// Returns the number of calls of a command, and their total time in microseconds, as INFO reports them.
fn command_stats(client: &mut Client, command: &str) -> (u64, u64) {
    let info = replies_to(client, &["INFO commandstats"]);
    let line = info
        .split(' ')
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")))
        .unwrap_or_default();
    let number = |name: &str| {
        line.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok()).unwrap_or_default()
    };
    (number("calls="), number("usec="))
}

#[test]
fn every_command_of_a_batch_is_counted_and_timed() {
    let mut client = Client::connect(support::start());
    replies_to(&mut client, &["XGROUP CREATE s g $ MKSTREAM", "CONFIG RESETSTAT"]);
    let read = "XREADGROUP GROUP g c COUNT 1 STREAMS s >";
    let requests =
        [vec!["XADD s * f v"; 500], vec![read; 400], vec!["XACK s g 1-1"; 500], vec!["XADD s * f v"]]
            .concat();
    replies_to(&mut client, &requests);
    for (command, calls) in [("xadd", 501), ("xreadgroup", 400), ("xack", 500)] {
        let (counted_calls, micros) = command_stats(&mut client, command);
        assert_eq!(counted_calls, calls, "{command}");
        assert!((1..10_000_000).contains(&micros), "{command}: {micros} µs");
    }
}

#[test]
fn slowlog_with_threshold_zero_logs_every_command_of_a_batch() {
    let mut client = Client::connect(support::start());
    for (slower_than, logged) in [("0", 40), ("999999999", 0), ("-1", 0)] {
        let config = format!("CONFIG SET slowlog-log-slower-than {slower_than}");
        replies_to(&mut client, &[&config, "SLOWLOG RESET"]);
        replies_to(&mut client, &["XADD s * f v"; 40]);
        let replies = replies_to(&mut client, &["CONFIG SET slowlog-log-slower-than -1", "SLOWLOG GET -1"]);
        assert_eq!(replies.matches("$4 XADD").count(), logged, "slower than {slower_than}");
    }
}
