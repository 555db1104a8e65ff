//! A block as its parts, and a block from parts that nobody vouches for.
//!
//! The readers of a block take its bytes as its writer left them. So before bytes from elsewhere become a
//! block, every one of them is read here once, with every length checked.

use super::{Block, DELETED, MS_STEP_FOLLOWS, MS_STEP_SHIFT, Place, SAME_NAMES};
use crate::StreamId;
use crate::bytes::varint;
use crate::stream::parts::{BadPart, BlockParts};
use crate::stream::value;

/// Beyond any block: one holds a first entry of a gibibyte at most and does not grow from there.
const BYTES_MAX: usize = 1 << 31;
const SLOTS_MAX: u32 = 1 << 31;
const NODE_BYTES_MAX: u64 = 1 << 40;

impl Block {
    /// What the block is made of.
    pub(in crate::stream) fn parts(&self) -> BlockParts<'_> {
        BlockParts {
            bytes: &self.bytes,
            name_count: self.name_count,
            base: self.base,
            last_id: self.last_id,
            slots: self.slots,
            node_bytes: self.node_bytes,
        }
    }

    /// The block of these parts, if they are those of a block with a live entry.
    pub(in crate::stream) fn from_parts(parts: &BlockParts<'_>) -> Result<Block, BadPart> {
        if parts.bytes.len() > BYTES_MAX || parts.slots > SLOTS_MAX || parts.node_bytes > NODE_BYTES_MAX {
            return Err(BadPart("a block is larger than any can be"));
        }
        let mut walk = Walk { bytes: parts.bytes, at: 0 };
        for _ in 0..parts.name_count {
            walk.text()?;
        }
        let start = Place { offset: walk.at as u32, before: parts.base };
        let found = walk.entries(parts.name_count, start)?;
        if found.live == 0 {
            return Err(BadPart("a block has no live entry"));
        }
        if found.stored > parts.slots || found.last_id > parts.last_id {
            return Err(BadPart("a block holds more than was written to it"));
        }
        Ok(Block {
            bytes: parts.bytes.to_vec(),
            names_end: start.offset,
            name_count: parts.name_count,
            base: parts.base,
            last_id: parts.last_id,
            stored_last_id: found.last_id,
            start_offset: found.start.offset,
            start_before: found.start.before,
            live: found.live,
            stored: found.stored,
            slots: parts.slots,
            node_bytes: parts.node_bytes,
        })
    }

    /// Deleted entries leave, and with them the ids that came after the last live entry.
    pub(in crate::stream) fn forget_dead(&mut self) {
        self.rewrite();
        self.last_id = self.stored_last_id;
    }
}

/// What reading all entries of a block has shown.
struct Found {
    live: u32,
    stored: u32,
    /// The last entry's id.
    last_id: StreamId,
    /// Where the first live entry begins.
    start: Place,
}

/// Reads through bytes that may be anything.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    /// Every entry from `start` to the end.
    fn entries(&mut self, name_count: u32, start: Place) -> Result<Found, BadPart> {
        let mut found = Found { live: 0, stored: 0, last_id: start.before, start };
        while self.at < self.bytes.len() {
            let place = Place { offset: self.at as u32, before: found.last_id };
            let head = self.bytes[self.at];
            self.at += 1;
            let id = self.id(head, place.before)?;
            if found.stored > 0 && id <= place.before {
                return Err(BadPart("the entries of a block are not in the order of their ids"));
            }
            self.body(head & SAME_NAMES != 0, name_count)?;
            if head & DELETED == 0 {
                if found.live == 0 {
                    found.start = place;
                }
                found.live += 1;
            }
            found.stored += 1;
            found.last_id = id;
        }
        Ok(found)
    }

    fn id(&mut self, head: u8, before: StreamId) -> Result<StreamId, BadPart> {
        let ms_step = match head >> MS_STEP_SHIFT {
            MS_STEP_FOLLOWS => self.number()?,
            step => u64::from(step),
        };
        let seq = self.number()?;
        let id = match ms_step {
            0 => before.seq.checked_add(seq).map(|seq| StreamId::new(before.ms, seq)),
            _ => before.ms.checked_add(ms_step).map(|ms| StreamId::new(ms, seq)),
        };
        id.ok_or(BadPart("an id is greater than any can be"))
    }

    /// The fields of an entry, which fill its length.
    fn body(&mut self, same_names: bool, name_count: u32) -> Result<(), BadPart> {
        let length = self.number()?;
        let end = self.end_of(length)?;
        if same_names {
            for _ in 0..name_count {
                self.value()?;
            }
        } else {
            let pairs = self.number()?;
            if pairs > length {
                return Err(BadPart("an entry has more fields than bytes"));
            }
            for _ in 0..pairs {
                self.text()?;
                self.value()?;
            }
        }
        if self.at == end { Ok(()) } else { Err(BadPart("an entry's length is not that of its fields")) }
    }

    fn value(&mut self) -> Result<(), BadPart> {
        let tag = self.number()?;
        if tag & 1 == 0 {
            self.at = self.end_of(tag >> 1)?;
        } else if !value::is_packed(varint::unzigzag(tag >> 1)) {
            return Err(BadPart("a number is greater than a packed one can be"));
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), BadPart> {
        let length = self.number()?;
        self.at = self.end_of(length)?;
        Ok(())
    }

    /// Where the next `length` bytes end.
    fn end_of(&self, length: u64) -> Result<usize, BadPart> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok(self.at + length),
            _ => Err(BadPart("a length reaches beyond its block")),
        }
    }

    #[inline]
    fn number(&mut self) -> Result<u64, BadPart> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, BadPart> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else { break };
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BadPart("a number in a block is not written as numbers are"))
    }
}
