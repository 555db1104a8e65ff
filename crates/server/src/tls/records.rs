//! Drives a TLS session: records in, plaintext and records out. Does no I/O.
//!
//! The server uses rustls without rustls' own buffers. So a connection between two requests keeps no buffer at all, and
//! what it does keep has a known size.

use rustls::Error;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};

/// Maximum number of the session's own records that are sent before data.
const OWN_RECORDS_MAX: usize = 64;

/// What [`receive`] has processed.
pub(super) struct Received {
    /// The number of bytes at the beginning of the input that the session no longer needs.
    pub(super) used: usize,
    /// Whether the client has closed its direction of the connection.
    pub(super) is_closed: bool,
    /// An error ends the connection: the session must not be used again. The records to send contain an alert for the
    /// client.
    pub(super) result: Result<(), Error>,
}

/// Processes received records, in place. Adds records to be sent to `outgoing`, and passes plaintext to `on_plaintext`.
///
/// The next call must get the bytes after the first `used`, unchanged, and more bytes behind them.
pub(super) fn receive(
    session: &mut UnbufferedServerConnection,
    incoming: &mut [u8],
    outgoing: &mut Vec<u8>,
    mut on_plaintext: impl FnMut(&[u8]),
) -> Received {
    let (mut used, mut is_closed) = (0, false);
    loop {
        let UnbufferedStatus { mut discard, state } = session.process_tls_records(&mut incoming[used..]);
        let is_done = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => {
                            discard += record.discard;
                            on_plaintext(record.payload);
                        }
                        Err(error) => return Received { used, is_closed, result: Err(error) },
                    }
                }
                false
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                append(&mut data, outgoing);
                false
            }
            // They are in `outgoing`, and the caller sends them in order.
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                false
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                is_closed = true;
                true
            }
            Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => true,
            // Early data and states of later versions of rustls: the configuration enables none of them.
            Ok(_) => {
                return Received { used, is_closed, result: Err(Error::General("unexpected state".into())) };
            }
            Err(error) => {
                used += discard;
                append_alert(session, &mut incoming[used..], outgoing);
                return Received { used, is_closed, result: Err(error) };
            }
        };
        used += discard;
        if is_done {
            return Received { used, is_closed, result: Ok(()) };
        }
    }
}

/// Encrypts `plaintext` into records at the beginning of `outgoing`. Returns their length.
///
/// `kept` are the bytes that the last [`receive`] did not use.
pub(super) fn encrypt(
    session: &mut UnbufferedServerConnection,
    kept: &mut Vec<u8>,
    plaintext: &[u8],
    outgoing: &mut [u8],
) -> Result<usize, Error> {
    with_traffic(session, kept, outgoing, |traffic, outgoing| traffic.encrypt(plaintext, outgoing))
}

/// Writes the record that tells the client that the connection ends.
pub(super) fn close_notify(
    session: &mut UnbufferedServerConnection,
    kept: &mut Vec<u8>,
    outgoing: &mut [u8],
) -> Result<usize, Error> {
    with_traffic(session, kept, outgoing, |traffic, outgoing| traffic.queue_close_notify(outgoing))
}

type Traffic<'c> = rustls::unbuffered::WriteTraffic<'c, rustls::server::ServerConnectionData>;

/// Lets `write` encrypt, after all records that the session itself has to send.
fn with_traffic(
    session: &mut UnbufferedServerConnection,
    kept: &mut Vec<u8>,
    outgoing: &mut [u8],
    write: impl FnOnce(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<usize, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::General(error.to_string());
    let mut length = 0;
    for _ in 0..OWN_RECORDS_MAX {
        // The session may refer to the kept bytes, so it must see them.
        let UnbufferedStatus { discard, state } = session.process_tls_records(kept);
        match state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                let written = write(&mut traffic, &mut outgoing[length..]).map_err(|error| failed(&error))?;
                kept.drain(..discard);
                return Ok(length + written);
            }
            ConnectionState::EncodeTlsData(mut data) => {
                length += data.encode(&mut outgoing[length..]).map_err(|error| failed(&error))?;
            }
            ConnectionState::TransmitTlsData(transmit) => transmit.done(),
            // rustls reports this state once, and then lets us write.
            ConnectionState::PeerClosed => {}
            _ => break,
        }
        kept.drain(..discard);
    }
    Err(Error::General("the TLS session cannot send".into()))
}

fn append<D>(data: &mut EncodeTlsData<'_, D>, outgoing: &mut Vec<u8>) {
    let begin = outgoing.len();
    let mut length = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => needed.required_size,
        _ => 0,
    };
    outgoing.resize(begin + length, 0);
    length = data.encode(&mut outgoing[begin..]).unwrap_or(0);
    outgoing.truncate(begin + length);
}

/// Adds the alert with which rustls tells the client about an error. rustls must not see the input a second time: it would
/// find the error again, and panic because it has sent an alert already.
fn append_alert(session: &mut UnbufferedServerConnection, incoming: &mut [u8], outgoing: &mut Vec<u8>) {
    while session.wants_write() {
        match session.process_tls_records(incoming).state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => append(&mut data, outgoing),
            _ => return,
        }
    }
}
