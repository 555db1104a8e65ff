//! What a connection keeps from one batch to the next: bytes that could not be run, bytes that could not be sent.

/// Memory that left-over input may keep beyond what it needs, once a request of it has run.
const INPUT_BYTES_SPARE: usize = 64 * 1024;

/// Received and not yet run.
#[derive(Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    /// There may be whole requests among them: run them before reading on.
    pub(super) runnable: bool,
}

/// Written and not yet taken by the peer.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Input {
    /// Keeps what comes after the first `used` of `bytes`, and no memory if that is nothing.
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

    /// Takes over a buffer of which `sent` bytes have gone.
    pub(super) fn keep(&mut self, bytes: &mut Vec<u8>, sent: usize) {
        debug_assert!(self.is_empty());
        self.bytes = std::mem::take(bytes);
        self.sent = sent;
    }

    /// So many more bytes have gone. Gives the buffer when that was all.
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
    fn input_keeps_the_rest_and_no_memory_for_nothing() {
        let mut input = Input::default();
        input.keep(b"PING\r\n*1\r\n".to_vec(), 6);
        assert_eq!(input.bytes, b"*1\r\n");
        let mut input = Input::default();
        input.keep(vec![0; 1000], 1000);
        assert_eq!(input.bytes.capacity(), 0);
    }

    #[test]
    fn a_large_request_that_has_run_gives_its_memory_back_and_one_that_grows_does_not() {
        let mut input = Input::default();
        input.keep(vec![0; 10 * INPUT_BYTES_SPARE], 10 * INPUT_BYTES_SPARE - 1);
        assert!(input.bytes.capacity() <= INPUT_BYTES_SPARE);
        let mut growing = Vec::with_capacity(10 * INPUT_BYTES_SPARE);
        growing.push(0);
        input.keep(growing, 0);
        assert!(input.bytes.capacity() >= 10 * INPUT_BYTES_SPARE);
    }

    #[test]
    fn output_is_gone_when_all_of_it_is_sent() {
        let mut output = Output::default();
        output.keep(&mut b"+OK\r\n".to_vec(), 1);
        assert_eq!(output.unsent(), b"OK\r\n");
        assert_eq!(output.advance(2), None);
        assert_eq!(output.unsent(), b"\r\n");
        assert_eq!(output.advance(2), Some(b"+OK\r\n".to_vec()));
        assert!(output.is_empty() && output.bytes.capacity() == 0);
    }
}
