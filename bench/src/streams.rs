//! Redis streams as a [`Broker`]: XADD, XREADGROUP with BLOCK, XACK.

use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Instant;

use crate::Failure;
use crate::data::GROUP;
use crate::flow::{Broker, Consumer, Inbox, Parsed, Producer, Replies, Sender};
use crate::server::Server;
use crate::wire::encode;

/// Number of digits of a message's number.
pub(crate) const DIGITS: usize = 12;

/// A server that speaks the Redis protocol.
pub(crate) struct Streams<'a>(pub(crate) &'a Server);

impl Broker for Streams<'_> {
    fn prepare(&self, streams: usize) -> Result<(), Failure> {
        self.delete(streams)?;
        let mut connection = self.0.connect()?;
        for stream in 0..streams {
            connection.call(&["XGROUP", "CREATE", &key(stream), GROUP, "0", "MKSTREAM"])?;
        }
        Ok(())
    }

    fn delete(&self, streams: usize) -> Result<(), Failure> {
        let mut connection = self.0.connect()?;
        (0..streams).try_for_each(|stream| connection.call(&["DEL", &key(stream)]).map(drop))
    }

    fn producer(&self, stream: usize) -> Result<Producer, Failure> {
        let inbox = Inbox::open(&self.0.address)?;
        let mut command = Vec::new();
        encode(&mut command, &["XADD", &key(stream), "*", "number", &digits(0)]);
        Ok((Box::new(Adds { socket: inbox.socket.try_clone()?, command }), Box::new(AddReplies(inbox))))
    }

    fn consumer(&self, stream: usize, name: usize) -> Result<Box<dyn Consumer>, Failure> {
        let (key, name) = (key(stream), format!("c{name}"));
        let mut read = Vec::new();
        let command = ["XREADGROUP", "GROUP", GROUP, &name, "COUNT", "100", "BLOCK", "500", "STREAMS", &key];
        encode(&mut read, &[&command[..], &[">"]].concat());
        Ok(Box::new(GroupReader { inbox: Inbox::open(&self.0.address)?, key, read, ids: Vec::new() }))
    }
}

fn key(stream: usize) -> String {
    format!("bench:flow-{stream}")
}

/// Writes a message's number with a fixed width.
pub(crate) fn digits(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

struct Adds {
    socket: TcpStream,
    /// The encoded command. It ends with the number and a line end.
    command: Vec<u8>,
}

impl Sender for Adds {
    fn send(&mut self, number: u64) -> Result<(), Failure> {
        let end = self.command.len() - 2;
        self.command[end - DIGITS..end].copy_from_slice(digits(number).as_bytes());
        Ok(self.socket.write_all(&self.command)?)
    }
}

struct AddReplies(Inbox);

impl Replies for AddReplies {
    fn wait_for(&mut self, _: u64) -> Result<(), Failure> {
        self.0.next(reply).map(drop)
    }
}

struct GroupReader {
    inbox: Inbox,
    key: String,
    /// The encoded XREADGROUP.
    read: Vec<u8>,
    /// Ids of the last received entries.
    ids: Vec<String>,
}

impl Consumer for GroupReader {
    fn receive(&mut self, into: &mut Vec<(u64, Instant)>) -> Result<(), Failure> {
        self.ids.clear();
        self.inbox.socket.write_all(&self.read)?;
        let entries = self.inbox.next(entries)?;
        let now = Instant::now();
        for (id, number) in entries {
            self.ids.push(id);
            into.push((number, now));
        }
        Ok(())
    }

    fn acknowledge(&mut self) -> Result<(), Failure> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let mut command = vec!["XACK", &self.key, GROUP];
        command.extend(self.ids.iter().map(String::as_str));
        let mut request = Vec::new();
        encode(&mut request, &command);
        self.inbox.socket.write_all(&request)?;
        let acknowledged = self.inbox.next(integer)?;
        match acknowledged == self.ids.len() as u64 {
            true => Ok(()),
            false => Err(format!("XACK of {} ids acknowledged {acknowledged}", self.ids.len()).into()),
        }
    }

    fn socket(&self) -> io::Result<TcpStream> {
        self.inbox.socket.try_clone()
    }
}

/// Parses the reply to XREADGROUP for one stream, with one field per entry: ids and numbers.
fn entries(bytes: &[u8]) -> Parsed<Vec<(String, u64)>> {
    let Some((leaves, len)) = reply(bytes)? else { return Ok(None) };
    let text = |leaf: &Range<usize>| Ok::<_, Failure>(std::str::from_utf8(&bytes[leaf.clone()])?.to_owned());
    // The stream's key, then id, field and value of every entry; nothing if the wait timed out.
    let entries = leaves.get(1..).unwrap_or_default().chunks(3);
    let entry = |leaves: &[Range<usize>]| match leaves {
        [id, _, number] => Ok((text(id)?, text(number)?.parse()?)),
        _ => Err::<_, Failure>("an entry without exactly one field".into()),
    };
    Ok(Some((entries.map(entry).collect::<Result<_, _>>()?, len)))
}

fn integer(bytes: &[u8]) -> Parsed<u64> {
    let Some((leaves, len)) = reply(bytes)? else { return Ok(None) };
    let leaf = leaves.into_iter().next().ok_or("expected an integer, got nothing")?;
    Ok(Some((std::str::from_utf8(&bytes[leaf])?.parse()?, len)))
}

/// Parses a reply into its simple values and strings, without the structure of its arrays. Null is no value.
fn reply(bytes: &[u8]) -> Parsed<Vec<Range<usize>>> {
    let (mut leaves, mut at, mut left) = (Vec::new(), 0, 1);
    while left > 0 {
        let Some(end) = bytes[at..].iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let line = at + 1..at + end - 1;
        let text = || std::str::from_utf8(&bytes[line.clone()]);
        let kind = bytes[at];
        at += end + 1;
        left -= 1;
        match kind {
            b'-' => return Err(format!("the server replied with an error: {}", text()?).into()),
            b'*' | b'$' if text()?.starts_with('-') => {}
            b'*' => left += text()?.parse::<usize>()?,
            b'$' => {
                let len: usize = text()?.parse()?;
                leaves.push(at..at + len);
                at += len + 2;
                if at > bytes.len() {
                    return Ok(None);
                }
            }
            _ => leaves.push(line),
        }
    }
    Ok(Some((leaves, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_parsed_wherever_reads_split_them() {
        let read = "*1\r\n*2\r\n$1\r\ns\r\n*2\r\n\
                    *2\r\n$3\r\n1-0\r\n*2\r\n$6\r\nnumber\r\n$4\r\n0007\r\n\
                    *2\r\n$3\r\n1-1\r\n*2\r\n$6\r\nnumber\r\n$4\r\n0012\r\n";
        for (bytes, expected) in [
            (read, vec![("1-0".to_owned(), 7), ("1-1".to_owned(), 12)]),
            ("*-1\r\n", Vec::new()),
            ("$-1\r\n", Vec::new()),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(entries(&bytes.as_bytes()[..cut]).unwrap(), None, "{bytes:?} cut at {cut}");
            }
            let followed = format!("{bytes}:1\r\n");
            assert_eq!(entries(followed.as_bytes()).unwrap(), Some((expected, bytes.len())));
        }
        assert_eq!(integer(b":12\r\n").unwrap(), Some((12, 5)));
        assert_eq!(integer(b":12\r").unwrap(), None);
        assert_eq!(
            reply(b"-NOGROUP x\r\n").unwrap_err().to_string(),
            "the server replied with an error: NOGROUP x"
        );
    }

    #[test]
    fn numbers_have_a_fixed_width() {
        assert_eq!(digits(42), "000000000042");
    }
}
