//! Sequences of commands of several clients: replies are well formed, values stay sound, and a restart recovers the
//! same data.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_server::fuzzing::{Choices, CommandRunner};
use millstream_store::fuzzing::{Folder, check_store, contents};
use millstream_store::{ManualClock, Store};

/// Number of clients.
const CLIENTS: usize = 3;
/// Maximum number of requests.
const REQUESTS_MAX: usize = 64;

pub(crate) fn run(input: &[u8]) -> usize {
    let folder = Folder::of(&BTreeMap::new());
    let (store, bytes) = run_commands(&folder, &mut Choices::of_input(input));
    let before = contents(&store);
    store.reload().expect("the folder can be read");
    check_store(&store).expect("recovered data is sound");
    assert_eq!(contents(&store), before, "recovery gives other data");
    bytes
}

/// Runs requests on the store of a new folder. Returns the store, and the size of the requests and replies.
pub(super) fn run_commands(folder: &Folder, choices: &mut Choices<'_>) -> (Arc<Store>, usize) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let store = Arc::new(folder.open(clock.clone()).expect("an empty folder can be opened"));
    let mut runner = CommandRunner::new(Arc::clone(&store), CLIENTS);
    let (mut bytes, mut count) = (0, 0);
    while !choices.is_empty() && count < REQUESTS_MAX {
        let client = choices.below(CLIENTS);
        clock.advance(*choices.pick(&[0, 0, 0, 1, 50, 10_000]));
        let requests: Vec<_> = (0..1 + choices.below(4)).map(|_| CommandRunner::request(choices)).collect();
        bytes += requests.iter().flatten().map(Vec::len).sum::<usize>();
        count += requests.len();
        let replies = runner.run(client, &requests);
        bytes += replies.len();
        check_replies(&replies);
    }
    drop(runner);
    check_store(&store).expect("the data is sound");
    (store, bytes)
}

/// Checks that the bytes are whole RESP2 or RESP3 values.
fn check_replies(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let whole = bytes;
        bytes = skip_value(bytes, 0).unwrap_or_else(|| {
            panic!("a reply is malformed: {}", whole[..whole.len().min(300)].escape_ascii())
        });
    }
}

/// Returns the bytes after the first value; `None` if it is malformed.
fn skip_value(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
    let (kind, text) = line.split_first()?;
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    match kind {
        b'+' | b'-' | b'_' | b'#' | b',' | b'(' => (!text.contains(&b'\n')).then_some(rest),
        b':' => number().map(|_| rest),
        b'$' | b'=' | b'!' => match number()? {
            -1 => Some(rest),
            length => {
                let (_, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                after.strip_prefix(b"\r\n")
            }
        },
        b'*' | b'%' | b'~' | b'>' | b'|' if depth < 32 => {
            let values = number()?.max(0) * if matches!(kind, b'%' | b'|') { 2 } else { 1 };
            (0..values).try_fold(rest, |rest, _| skip_value(rest, depth + 1))
        }
        _ => None,
    }
}
