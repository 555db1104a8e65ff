//! Passes on what handler processes write to standard error, but only a limited part of it for each message: a handler that
//! writes megabytes must not fill the disk, or hide the lines of other messages.

use super::console::{Console, LineOrigin};

/// Maximum number of bytes of standard error that the worker passes on for one attempt of a message or batch. One line says
/// how much it left out.
pub(super) const STDERR_BYTES_MAX: usize = 64 * 1024;

/// The standard error of one process.
pub(super) struct HandlerLog<W: FnMut(&LineOrigin, &[u8])> {
    /// Writes a line.
    write: W,
    quota: Quota,
}

/// How much was passed on for the current message.
#[derive(Debug, Default)]
struct Quota {
    origin: LineOrigin,
    passed: usize,
    left_out: u64,
}

impl HandlerLog<Box<dyn FnMut(&LineOrigin, &[u8]) + Send>> {
    /// Passes lines on to the console.
    pub(super) fn to(console: Console) -> Self {
        HandlerLog::new(Box::new(move |origin, line| console.write_handler_line(origin, line)))
    }
}

impl<W: FnMut(&LineOrigin, &[u8])> HandlerLog<W> {
    fn new(write: W) -> HandlerLog<W> {
        HandlerLog { write, quota: Quota::default() }
    }

    /// Passes on a line about this message, or counts it as left out. If the message is not known, always passes the line on.
    pub(super) fn line(&mut self, origin: LineOrigin, line: &[u8]) {
        if origin != self.quota.origin {
            self.end_message();
            self.quota.origin = origin;
        }
        let quota = &mut self.quota;
        let fits = quota.left_out == 0 && quota.passed + line.len() <= STDERR_BYTES_MAX;
        if fits || quota.origin.id.is_none() {
            quota.passed += line.len();
            (self.write)(&quota.origin, line);
        } else {
            quota.left_out += line.len() as u64;
        }
    }

    /// Says how much was left out of the current message, and begins a new quota.
    fn end_message(&mut self) {
        let Quota { origin, left_out, .. } = std::mem::take(&mut self.quota);
        if left_out > 0 {
            let text = format!("[{left_out} more bytes of standard error left out]");
            (self.write)(&origin, text.as_bytes());
        }
    }
}

impl<W: FnMut(&LineOrigin, &[u8])> Drop for HandlerLog<W> {
    fn drop(&mut self) {
        self.end_message();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(id: &str) -> LineOrigin {
        LineOrigin { id: Some(id.to_owned()), more: 0 }
    }

    /// Passes these lines on, and returns what was written.
    fn written(lines: &[(LineOrigin, Vec<u8>)]) -> Vec<(Option<String>, Vec<u8>)> {
        let mut written = Vec::new();
        let mut log = HandlerLog::new(|origin: &LineOrigin, line: &[u8]| {
            written.push((origin.id.clone(), line.to_vec()));
        });
        lines.iter().for_each(|(origin, line)| log.line(origin.clone(), line));
        drop(log);
        written
    }

    #[test]
    fn what_exceeds_the_limit_is_left_out_and_counted() {
        let half = vec![b'x'; STDERR_BYTES_MAX / 2];
        let full = [(of("1-0"), half.clone()), (of("1-0"), half.clone())];
        assert_eq!(written(&full).len(), 2, "the limit itself passes");
        let more = [(of("1-0"), b"abc".to_vec()), (of("1-0"), b"de".to_vec()), (of("2-0"), b"next".to_vec())];
        let lines = written(&[&full[..], &more[..]].concat());
        assert_eq!(lines.len(), 4);
        let mark = b"[5 more bytes of standard error left out]".to_vec();
        assert_eq!(lines[2..], [(of("1-0").id, mark), (of("2-0").id, b"next".to_vec())]);
    }

    #[test]
    fn lines_without_a_message_are_not_limited() {
        let line = (LineOrigin::default(), vec![b'x'; STDERR_BYTES_MAX]);
        assert_eq!(written(&[line.clone(), line.clone(), line]).len(), 3);
    }
}
