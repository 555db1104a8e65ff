//! Bytes that a connection keeps between two batches: requests not run yet, replies not sent yet.

/// After a request has run, the input buffer shrinks to this capacity, or to the length of the left-over bytes if that
/// is larger.
const INPUT_BYTES_SPARE: usize = 64 * 1024;

/// Bytes that were received and not run yet.
#[derive(Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    /// Whether they can contain complete requests, which must run before more is read.
    pub(super) runnable: bool,
}

#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Input {
    /// Keeps the bytes after the first `used`. If there are none, frees the buffer.
    pub(super) fn keep(&mut self, mut bytes: Vec<u8>, used: usize) {
        if used == bytes.len() {
            return;
        }
        if used > 0 {
            bytes.drain(..used);
            bytes.shrink_to(INPUT_BYTES_SPARE);
        }
        self.bytes = bytes;
    }
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Takes over a buffer of which `sent` bytes are sent.
    pub(super) fn keep(&mut self, bytes: &mut Vec<u8>, sent: usize) {
        debug_assert!(self.is_empty());
        self.bytes = std::mem::take(bytes);
        self.sent = sent;
    }

    /// Records that `sent` more bytes are sent. Returns the buffer once all are.
    pub(super) fn advance(&mut self, sent: usize) -> Option<Vec<u8>> {
        self.sent += sent;
        let is_all = self.sent == self.bytes.len();
        is_all.then(|| std::mem::take(self).bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_keeps_unused_bytes_and_frees_an_empty_buffer() {
        let mut input = Input::default();
        input.keep(b"PING\r\n*1\r\n".to_vec(), 6);
        assert_eq!(input.bytes, b"*1\r\n");
        let mut input = Input::default();
        input.keep(vec![0; 1000], 1000);
        assert_eq!(input.bytes.capacity(), 0);
    }

    #[test]
    fn input_shrinks_after_a_large_request_but_not_before_it_is_complete() {
        let mut input = Input::default();
        input.keep(vec![0; 10 * INPUT_BYTES_SPARE], 10 * INPUT_BYTES_SPARE - 1);
        assert!(input.bytes.capacity() <= INPUT_BYTES_SPARE);
        let mut growing = Vec::with_capacity(10 * INPUT_BYTES_SPARE);
        growing.push(0);
        input.keep(growing, 0);
        assert!(input.bytes.capacity() >= 10 * INPUT_BYTES_SPARE);
    }

    #[test]
    fn output_is_empty_once_all_is_sent() {
        let mut output = Output::default();
        output.keep(&mut b"+OK\r\n".to_vec(), 1);
        assert_eq!(output.unsent(), b"OK\r\n");
        assert_eq!(output.advance(2), None);
        assert_eq!(output.unsent(), b"\r\n");
        assert_eq!(output.advance(2), Some(b"+OK\r\n".to_vec()));
        assert!(output.is_empty() && output.bytes.capacity() == 0);
    }
}
