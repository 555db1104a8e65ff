//! Redis streams as a [`Broker`]: XADD, XREADGROUP with BLOCK, XACK.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::Failure;
use crate::data::GROUP;
use crate::flow::{Broker, Consumer, Producer, Replies, Sender};
use crate::server::Server;
use crate::wire::{Connection, encoded};

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
        let connection = Connection::open(&self.0.address)?;
        let command = encoded(&["XADD", &key(stream), "*", "number", &digits(0)]);
        Ok((Box::new(Adds { socket: connection.socket().try_clone()?, command }), Box::new(connection)))
    }

    fn consumer(&self, stream: usize, name: usize) -> Result<Box<dyn Consumer>, Failure> {
        let (key, name) = (key(stream), format!("c{name}"));
        let command =
            ["XREADGROUP", "GROUP", GROUP, &name, "COUNT", "100", "BLOCK", "500", "STREAMS", &key, ">"];
        let (connection, read) = (Connection::open(&self.0.address)?, encoded(&command));
        Ok(Box::new(GroupReader { connection, key, read, ids: Vec::new() }))
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

impl Replies for Connection {
    fn wait_for(&mut self, _: u64) -> Result<(), Failure> {
        self.skip(1)
    }
}

struct GroupReader {
    connection: Connection,
    key: String,
    /// The encoded XREADGROUP.
    read: Vec<u8>,
    /// Ids of the last received entries.
    ids: Vec<String>,
}

impl Consumer for GroupReader {
    fn receive(&mut self, into: &mut Vec<(u64, Instant)>) -> Result<(), Failure> {
        self.ids.clear();
        self.connection.send(&self.read)?;
        let reply = self.connection.reply()?;
        let now = Instant::now();
        for (id, number) in entries(&reply)? {
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
        let acknowledged = self.connection.call_int(&command)?;
        match acknowledged == self.ids.len() as u64 {
            true => Ok(()),
            false => Err(format!("XACK of {} ids acknowledged {acknowledged}", self.ids.len()).into()),
        }
    }

    fn socket(&self) -> io::Result<TcpStream> {
        self.connection.socket().try_clone()
    }
}

/// Parses the reply to XREADGROUP for one stream, with one field per entry: ids and numbers.
fn entries(reply: &[u8]) -> Result<Vec<(String, u64)>, Failure> {
    // The stream's key, then id, field and value of every entry; nothing if the wait timed out.
    let strings: Vec<_> =
        std::str::from_utf8(reply)?.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    let entry = |strings: &[&str]| match strings {
        [id, _, number] => Ok(((*id).to_owned(), number.parse()?)),
        _ => Err::<_, Failure>("an entry without exactly one field".into()),
    };
    strings.get(1..).unwrap_or_default().chunks(3).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers_of_a_reply() {
        let read = "*1\r\n*2\r\n$1\r\ns\r\n*2\r\n\
                    *2\r\n$3\r\n1-0\r\n*2\r\n$6\r\nnumber\r\n$4\r\n0007\r\n\
                    *2\r\n$3\r\n1-1\r\n*2\r\n$6\r\nnumber\r\n$4\r\n0012\r\n";
        assert_eq!(entries(read.as_bytes()).unwrap(), [("1-0".to_owned(), 7), ("1-1".to_owned(), 12)]);
        assert_eq!(entries(b"*-1\r\n").unwrap(), []);
        assert!(entries(b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n$3\r\n1-0\r\n").is_err());
    }
}
