//! Names, fields and errors that try to change the terminal of the operator who looks at them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::Value;

use crate::support::run::Run;
use crate::test_store::TestStore;

/// Clears the screen, in three ways; sets the title; rings; returns to the start of the line; ends it; reverses it.
const HOSTILE: &str =
    "a\u{1b}[2J\u{9b}2J\u{1b}c\u{1b}]0;title\u{7}\u{1b}[8m\r\n\u{85}\u{7f}\u{202e}b\u{2066}\u{200f}\u{2028}";
/// Id of the only entry.
const ID: &str = "1731664200000-0";

/// A server with a stream, a group, a consumer, a worker, a field and a dead letter that all have the hostile name.
fn hostile_store() -> TestStore {
    let store = TestStore::empty(&[]);
    let dead_letters = dead_letters_of(HOSTILE);
    store.call(&["XADD", HOSTILE, ID, HOSTILE, HOSTILE]);
    store.call(&["XADD", HOSTILE, "1731664200001-0", "unread", HOSTILE]);
    store.call(&["XGROUP", "CREATE", HOSTILE, HOSTILE, "0"]);
    store.call(&["XREADGROUP", "GROUP", HOSTILE, HOSTILE, "COUNT", "1", "STREAMS", HOSTILE, ">"]);
    let letter = [
        ["dlq.stream", HOSTILE],
        ["dlq.id", ID],
        ["dlq.group", HOSTILE],
        ["dlq.consumer", HOSTILE],
        ["dlq.error", HOSTILE],
        ["dlq.error_type", HOSTILE],
        [HOSTILE, HOSTILE],
    ];
    store.call(&[&["XADD", &dead_letters, ID], letter.as_flattened()].concat());
    let heartbeat =
        serde_json::json!({"consumer": HOSTILE, "host": HOSTILE, "state": HOSTILE, "listen": HOSTILE});
    let workers = format!("{{{HOSTILE}}}:workers:{HOSTILE}");
    store.call(&["HSET", &workers, HOSTILE, &heartbeat.to_string()]);
    store
}

/// Runs the binary with styles, as on a terminal.
fn run(store: &TestStore, arguments: &[&str]) -> Run {
    let mut command = store.command(arguments);
    command.env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR").stdin(Stdio::null());
    let output = command.output().expect("run the binary");
    Run {
        command: format!("millstream {arguments:?}"),
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Returns the text without the styles that the tools themselves use: colours, bold and dimmed.
fn without_own_styles(text: &str) -> String {
    let own = ["0", "1", "2", "31", "32", "33"].map(|style| format!("\u{1b}[{style}m"));
    own.iter().fold(text.to_owned(), |text, style| text.replace(style, ""))
}

fn assert_safe(text: &str, what: &str) {
    let is_unsafe = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let found: Vec<char> = without_own_styles(text).chars().filter(|c| is_unsafe(*c)).collect();
    assert!(found.is_empty(), "{what}: {found:?} in {text:?}");
}

#[test]
fn no_output_for_people_contains_hostile_characters() {
    let store = hostile_store();
    let h = HOSTILE;
    let commands: [&[&str]; 38] = [
        &["stream", "ls"],
        &["stream", "info", h],
        &["stream", "ls", &format!("{h}*x")],
        &["stream", "info", &format!("{h}x")],
        &["group", "ls"],
        &["group", "ls", &format!("{h}*x")],
        &["group", "describe", h],
        &["group", "describe", h, "other"],
        &["group", "create", h, h],
        &["group", "create", h, &format!("{h}2")],
        &["group", "reset", h, h, "--to-latest"],
        &["group", "reset", h, h, "--to-latest", "--execute"],
        &["group", "rm", h, h, "--dry-run"],
        &["group", "rm", h, h],
        &["consumer", "ls", h, h],
        &["consumer", "ls", h, &format!("{h}2")],
        &["consumer", "rm", h, h, h],
        &["consumer", "rm", h, h, "other"],
        &["consumer", "rm", h, h, h, "--heir", &format!("{h}3"), "--dry-run"],
        &["pending", "ls", h, h],
        &["pending", "ls", h, h, "--consumer", "other"],
        &["pending", "nack", h, h, "7-7"],
        &["pending", "ack", h, h],
        &["pending", "ack", h, h, "--all"],
        &["pending", "claim", h, h, h, "--min-idle", "0s"],
        &["lag"],
        &["lag", "other"],
        &["lag", h, h],
        &["doctor"],
        &["tail", h, "--no-follow"],
        &["tail", h, "--no-follow", "--group", h],
        &["dlq", "ls"],
        &["dlq", "ls", h],
        &["dlq", "show", h, ID],
        &["dlq", "show", h, "7-7"],
        &["dlq", "redrive", h, "--dry-run"],
        &["dlq", "purge", h],
        &["top", "--once", "--interval", "200ms"],
    ];
    let mut shown = 0;
    for arguments in commands {
        let run = run(&store, arguments);
        assert_safe(&run.out, &format!("stdout of {}", run.command));
        assert_safe(&run.err, &format!("stderr of {}", run.command));
        shown += usize::from(run.out.contains("a\\u{1b}[2J") || run.err.contains("a\\u{1b}[2J"));
    }
    // The rest shows no names.
    assert!(shown >= 30, "only {shown} commands showed the name");
}

#[test]
fn json_escapes_hostile_characters_and_keeps_names() {
    let store = hostile_store();
    let h = HOSTILE;
    for (arguments, pointer) in [
        (&["stream", "ls"][..], "/0/stream"),
        (&["stream", "info", h], "/stream"),
        (&["group", "ls"], "/0/group"),
        (&["group", "describe", h, h], "/0/consumer_list/0/consumer"),
        (&["consumer", "ls", h, h], "/0/consumer"),
        (&["pending", "ls", h, h], "/0/consumer"),
        (&["lag"], "/0/stream"),
        (&["dlq", "ls", h], "/0/error"),
        (&["dlq", "show", h, ID], "/group"),
        (&["tail", h, "--no-follow", "--count", "1"], &format!("/fields/{h}")),
        (&["doctor"], "/findings/0/stream"),
    ] {
        let run = run(&store, &[arguments, &["--json"]].concat());
        assert!(!run.out.contains('\u{1b}'), "{}: {:?}", run.command, run.out);
        assert_safe(&run.out, &run.command);
        assert_eq!(run.json().pointer(pointer).and_then(Value::as_str), Some(h), "{}", run.command);
    }
}

#[test]
fn errors_of_the_server_are_safe() {
    let store = TestStore::empty(&[]);
    store.call(&["SET", HOSTILE, "1"]);
    for arguments in [&["stream", "info", HOSTILE][..], &["add", HOSTILE, "a=1"], &["tail", HOSTILE]] {
        let run = run(&store, arguments).exits(1);
        assert_safe(&run.err, &run.command);
        assert!(run.err.contains("a\\u{1b}[2J"), "{:?}", run.err);
    }
    let unknown = format!("redis://{HOSTILE}");
    let run = run(&store, &["stream", "ls", "--url", &unknown]);
    assert_safe(&run.err, &run.command);
}

/// Returns the commands in a text: what follows `with: ` and `run: `, up to the end of the sentence.
fn commands_in(text: &str) -> Vec<&str> {
    let starts = text.match_indices(": millstream ").map(|(at, _)| &text[at + 2..]);
    starts
        .map(|rest| ["; then", ", or: "].iter().fold(rest, |rest, end| rest.split(end).next().unwrap()))
        .collect()
}

#[test]
fn commands_that_doctor_suggests_can_be_pasted_into_a_shell() {
    let names =
        ["$(touch pwned)", "a b", "a;touch pwned #", "it's", "-x", "--help", "`touch pwned`", HOSTILE];
    // At the same time, because the workers wait before they end.
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || paste_what_doctor_suggests(name));
        }
    });
}

/// Runs in a shell all commands that `doctor` suggests for a stream and a group of this name.
fn paste_what_doctor_suggests(name: &str) {
    let bin = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("the folder of the binary");
    let path = format!("{}:{}", bin.display(), env::var("PATH").expect("a path"));
    let store = TestStore::empty(&[]);
    store.call(&["XADD", name, "1-1", "a", "b"]);
    let letter = ["dlq.stream", name, "dlq.id", "1-1", "dlq.group", name];
    store.call(&[&["XADD", &dead_letters_of(name), "1-1"], &letter[..]].concat());
    let mut pasted = Vec::new();
    let mut paste_all = || {
        for finding in store.run(&["doctor", "--json"]).json()["findings"].as_array().expect("a list") {
            for command in commands_in(finding["way_out"].as_str().expect("text")) {
                let command = format!("{} < /dev/null", command.replace("COMMAND", "true --until-empty"));
                let mut shell = Command::new("bash");
                shell.args(["-c", &command]).current_dir(&store.folder).env("PATH", &path);
                let output = shell.env("MILLSTREAM_URL", &store.url).output().expect("run bash");
                let err = String::from_utf8_lossy(&output.stderr).into_owned();
                // `dlq purge` asks for confirmation, which needs a terminal.
                let asks = err.contains("pass --yes to confirm");
                assert!(output.status.success() || asks, "{command}: {err}");
                pasted.push(command);
            }
        }
    };
    // The first run creates the group GROUP. The second one suggests commands for it and for `name`.
    paste_all();
    store.call(&["XGROUP", "CREATE", name, name, "0"]);
    paste_all();
    assert!(pasted.len() >= 8, "{pasted:?}");
    let left: Vec<_> = fs::read_dir(&store.folder).expect("the folder").collect();
    assert!(left.is_empty(), "{name}: {left:?} after {pasted:?}");
    let groups = store.run(&["group", "ls", "--json"]).ok().json();
    let groups: Vec<&Value> = groups.as_array().expect("a list").iter().collect();
    assert!(groups.iter().all(|group| group["stream"] == name && group["lag"] == 0), "{groups:?}");
}

fn dead_letters_of(stream: &str) -> String {
    format!("{{{stream}}}:dlq")
}
