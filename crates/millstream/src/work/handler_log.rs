//! Passes on what handler processes write to standard error or to the log, but only a limited part of it for each
//! message: a handler that writes megabytes must not fill the disk, or hide the lines of other messages.

use super::console::{Console, HandlerLine, LineOrigin};

/// Maximum number of bytes of standard error that the worker passes on for one attempt of a message or batch. One line
/// says how much it left out.
pub(super) const STDERR_BYTES_MAX: usize = 64 * 1024;

type WriteLine = Box<dyn FnMut(&LineOrigin, HandlerLine<'_>) + Send>;

pub(super) struct HandlerLog {
    write: WriteLine,
    quota: Quota,
}

#[derive(Debug, Default)]
struct Quota {
    origin: LineOrigin,
    passed: usize,
    left_out: u64,
}

impl HandlerLog {
    pub(super) fn to(console: Console) -> HandlerLog {
        HandlerLog::new(move |origin, line| console.write_handler_line(origin, line))
    }

    fn new(write: impl FnMut(&LineOrigin, HandlerLine<'_>) + Send + 'static) -> HandlerLog {
        HandlerLog { write: Box::new(write), quota: Quota::default() }
    }

    /// Passes on a line about this message, or counts it as left out. If the message is not known, always passes the
    /// line on.
    pub(super) fn line(&mut self, origin: LineOrigin, line: HandlerLine<'_>) {
        if origin != self.quota.origin {
            self.end_message();
            self.quota.origin = origin;
        }
        let quota = &mut self.quota;
        let length = line.text.len();
        let fits = quota.left_out == 0 && quota.passed + length <= STDERR_BYTES_MAX;
        if fits || quota.origin.id.is_none() {
            quota.passed += length;
            (self.write)(&quota.origin, line);
        } else {
            quota.left_out += length as u64;
        }
    }

    /// Says how much was left out of the current message, and begins a new quota.
    fn end_message(&mut self) {
        let Quota { origin, left_out, .. } = std::mem::take(&mut self.quota);
        if left_out > 0 {
            let text = format!("[{left_out} more bytes of standard error left out]");
            (self.write)(&origin, HandlerLine::stderr(text.as_bytes()));
        }
    }
}

impl Drop for HandlerLog {
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
        let (sender, written) = std::sync::mpsc::channel();
        let mut log = HandlerLog::new(move |origin, line| {
            sender.send((origin.id.clone(), line.text.to_vec())).unwrap();
        });
        lines.iter().for_each(|(origin, line)| log.line(origin.clone(), HandlerLine::stderr(line)));
        drop(log);
        written.into_iter().collect()
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
