//! The line that describes a client in CLIENT LIST, CLIENT INFO and ACL LOG.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::registry::{Client, Transport, flags};

/// Returns the client's line of CLIENT LIST, without a line end.
pub(crate) fn describe(client: &Client, uptime_ms: u64, last_command: &str) -> String {
    let seconds_since = |ms: u64| uptime_ms.saturating_sub(ms) / 1000;
    let number = |atomic: &AtomicUsize| atomic.load(Ordering::Relaxed);
    let labels = client.labels.lock().clone();
    let input = number(&client.input_bytes);
    let output = number(&client.output_bytes);
    let queued = number(&client.queued_bytes);
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} watch={} \
         qbuf={input} qbuf-free=0 argv-mem=0 multi-mem={queued} rbs=0 rbp=0 obl={output} oll=0 omem={output} \
         tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.addr,
        client.laddr,
        client.fd,
        labels.name,
        seconds_since(client.connected_at_ms),
        seconds_since(client.active_at_ms.load(Ordering::Relaxed)),
        flag_letters(client),
        client.db.load(Ordering::Relaxed),
        client.queued.load(Ordering::Relaxed),
        number(&client.watched),
        client.memory_bytes(),
        last_command,
        String::from_utf8_lossy(&client.user_name()),
        client.resp.load(Ordering::Relaxed),
        labels.lib_name,
        labels.lib_ver,
    )
}

fn flag_letters(client: &Client) -> String {
    let letters: String = [
        ('x', client.queued.load(Ordering::Relaxed) >= 0),
        ('b', client.has(flags::BLOCKED)),
        ('d', client.has(flags::DIRTY_WATCH)),
        ('U', client.transport == Transport::UnixSocket),
        ('e', client.has(flags::NO_EVICT)),
        ('T', client.has(flags::NO_TOUCH)),
    ]
    .iter()
    .filter_map(|(letter, set)| set.then_some(*letter))
    .collect();
    if letters.is_empty() { "N".into() } else { letters }
}
