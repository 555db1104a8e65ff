//! The slot of a key in a cluster. Knows nothing of nodes.

/// Number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: a checksum of the key's hash tag, or of the whole key if it has none.
pub(crate) fn slot_of(key: &str) -> u16 {
    crc16(hash_tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// Returns the part of a key between the first `{` and the next `}`, unless it is empty.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM, as the cluster specification requires.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) ^ u16::from(*byte))])
}

/// The checksum of each byte.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected slots are the replies of CLUSTER KEYSLOT.
    #[test]
    fn slots_are_those_of_the_server() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [("", 0), ("foo", 12182), ("123456789", 12739), ("Zürich", 5420)] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        for same in ["{foo}:dlq", "a{foo}b{c}", "x{foo"] {
            assert_eq!(slot_of(same) == slot_of("foo"), same != "x{foo", "{same}");
        }
        assert_eq!(slot_of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of("foo{{bar}}"), crc16(b"{bar") % SLOTS);
    }
}
