//! Records of the log: decoding, replay into a store, encoding again.

use millstream_store::fuzzing::{generate_records, replay_records};

pub(crate) fn run(input: &[u8]) -> usize {
    let Some((&mode, rest)) = input.split_first() else { return 0 };
    if mode & 1 == 0 {
        let payloads = generate_records(rest);
        replay_records(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
        return payloads.iter().map(Vec::len).sum();
    }
    // Each payload has its length before it.
    let (mut payloads, mut rest) = (Vec::new(), rest);
    while let Some((&length, following)) = rest.split_first() {
        let (payload, following) = following.split_at(usize::from(length).min(following.len()));
        payloads.push(payload);
        rest = following;
    }
    replay_records(&payloads);
    input.len()
}
