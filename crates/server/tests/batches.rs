//! Requests that arrive together share what they lock, and nobody can tell: neither from their replies, nor because
//! something waits for ever.

mod support;

use support::Client;

/// A request as client libraries send it.
fn encoded(request: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let texts: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{texts}", words.len())
}

/// Sends these in one piece; what was answered, without the last PONG.
fn answers(client: &mut Client, requests: &[&str]) -> String {
    let requests: String = requests.iter().map(|request| encoded(request)).collect();
    client.send(&(requests + "PING\r\n"));
    String::from_utf8(client.until_pong()).unwrap().replace("\r\n", " ")
}

#[test]
fn whatever_follows_finds_nothing_locked_that_it_needs() {
    let mut client = Client::connect(support::start());
    let add = "XADD s * f v";
    // Each of these comes upon the lock of `s`, or of a key that a hash puts anywhere.
    for (next, answer) in [
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
        answers(&mut client, &["SELECT 0", "FLUSHALL"]);
        let told = answers(&mut client, &[add, next]);
        // After the length and the text of an id.
        assert!(told.splitn(3, ' ').nth(2).is_some_and(|rest| rest.starts_with(answer)), "{next}: {told}");
    }
}

#[test]
fn a_transaction_that_is_refused_gives_up_what_it_watched() {
    let mut client = Client::connect(support::start());
    let refused = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    let told = answers(&mut client, &["WATCH k", "SET k 1", "EXEC too much", "GET k"]);
    assert_eq!(told, format!("+OK +OK {refused} $1 1 "));
    let told = answers(&mut client, &["WATCH k", "SET k 3", "MULTI", "GET k", "EXEC", "GET k"]);
    assert_eq!(told, "+OK +OK +OK +QUEUED *-1 $1 3 ");
}

#[test]
fn readers_are_served_between_the_commands_of_a_batch() {
    let address = support::start();
    let mut writer = Client::connect(address);
    answers(&mut writer, &["XGROUP CREATE s g $ MKSTREAM"]);
    let mut reader = Client::connect(address);
    reader.send("XREADGROUP GROUP g c COUNT 9 BLOCK 0 STREAMS s >\r\nPING\r\n");
    while !answers(&mut writer, &["INFO clients"]).contains("blocked_clients:1 ") {}
    // The reader gets the first entry, as if it had come alone.
    let told = answers(&mut writer, &["XADD s 1-1 f v", "XPENDING s g", "XADD s 1-2 f v", "XLEN s"]);
    assert_eq!(told, "$3 1-1 *4 :1 $3 1-1 $3 1-1 *1 *2 $1 c $1 1 $3 1-2 :2 ");
    assert_eq!(
        String::from_utf8(reader.until_pong()).unwrap().replace("\r\n", " "),
        "*1 *2 $1 s *1 *2 $3 1-1 *2 $1 f $1 v "
    );
}

/// What INFO has counted of a command: its calls and their microseconds.
fn counted(client: &mut Client, command: &str) -> (u64, u64) {
    let told = answers(client, &["INFO commandstats"]);
    let line = told
        .split(' ')
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")))
        .unwrap_or_default();
    let number = |name: &str| {
        line.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok()).unwrap_or_default()
    };
    (number("calls="), number("usec="))
}

#[test]
fn every_command_of_a_batch_is_counted_and_its_time_too() {
    let mut client = Client::connect(support::start());
    answers(&mut client, &["XGROUP CREATE s g $ MKSTREAM", "CONFIG RESETSTAT"]);
    let read = "XREADGROUP GROUP g c COUNT 1 STREAMS s >";
    let requests =
        [vec!["XADD s * f v"; 500], vec![read; 400], vec!["XACK s g 1-1"; 500], vec!["XADD s * f v"]]
            .concat();
    answers(&mut client, &requests);
    for (command, calls) in [("xadd", 501), ("xreadgroup", 400), ("xack", 500)] {
        let (counted, micros) = counted(&mut client, command);
        assert_eq!(counted, calls, "{command}");
        assert!((1..10_000_000).contains(&micros), "{command}: {micros} µs");
    }
}

#[test]
fn a_slow_log_that_asks_about_all_names_every_command_of_a_batch() {
    let mut client = Client::connect(support::start());
    for (slower_than, logged) in [("0", 40), ("999999999", 0), ("-1", 0)] {
        let config = format!("CONFIG SET slowlog-log-slower-than {slower_than}");
        answers(&mut client, &[&config, "SLOWLOG RESET"]);
        answers(&mut client, &["XADD s * f v"; 40]);
        let told = answers(&mut client, &["CONFIG SET slowlog-log-slower-than -1", "SLOWLOG GET -1"]);
        assert_eq!(told.matches("$4 XADD").count(), logged, "slower than {slower_than}");
    }
}
