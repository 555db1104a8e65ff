//! Takes a block apart, and builds a block from parts that cannot be trusted.
//!
//! Code that reads a block relies on its bytes being valid. So before bytes from outside become a block, this
//! file reads all of them once and checks every length.

use super::{Block, DELETED, EntryPosition, MS_STEP_FOLLOWS, MS_STEP_SHIFT, SAME_NAMES};
use crate::StreamId;
use crate::bytes::varint;
use crate::stream::parts::{BlockParts, InvalidPart};
use crate::stream::value;

/// Limits that no valid block reaches: its first entry has at most 1 GiB, and a block of that size does not
/// grow further.
const BYTES_MAX: usize = 1 << 31;
const SLOTS_MAX: u32 = 1 << 31;
const NODE_BYTES_MAX: u64 = 1 << 40;

impl Block {
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

    /// Builds a block from parts, if they are valid and contain a live entry.
    pub(in crate::stream) fn from_parts(parts: &BlockParts<'_>) -> Result<Block, InvalidPart> {
        if parts.bytes.len() > BYTES_MAX || parts.slots > SLOTS_MAX || parts.node_bytes > NODE_BYTES_MAX {
            return Err(InvalidPart("a block is larger than the maximum"));
        }
        let mut validator = BlockValidator { bytes: parts.bytes, at: 0 };
        for _ in 0..parts.name_count {
            validator.text()?;
        }
        let start = EntryPosition { offset: validator.at as u32, previous_id: parts.base };
        let found = validator.entries(parts.name_count, start)?;
        if found.live == 0 {
            return Err(InvalidPart("a block has no live entry"));
        }
        if found.stored > parts.slots || found.last_id > parts.last_id {
            return Err(InvalidPart(
                "a block contains more entries, or a greater id, than its counters allow",
            ));
        }
        Ok(Block {
            bytes: parts.bytes.to_vec(),
            names_end: start.offset,
            name_count: parts.name_count,
            base: parts.base,
            last_id: parts.last_id,
            stored_last_id: found.last_id,
            start_offset: found.start.offset,
            start_previous_id: found.start.previous_id,
            live: found.live,
            stored: found.stored,
            slots: parts.slots,
            node_bytes: parts.node_bytes,
        })
    }

    /// Removes deleted entries from the bytes, and forgets the ids after the last live entry.
    pub(in crate::stream) fn discard_deleted(&mut self) {
        self.compact();
        self.last_id = self.stored_last_id;
    }
}

struct EntrySummary {
    live: u32,
    stored: u32,
    last_id: StreamId,
    start: EntryPosition,
}

struct BlockValidator<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BlockValidator<'_> {
    fn entries(&mut self, name_count: u32, start: EntryPosition) -> Result<EntrySummary, InvalidPart> {
        let mut found = EntrySummary { live: 0, stored: 0, last_id: start.previous_id, start };
        while self.at < self.bytes.len() {
            let position = EntryPosition { offset: self.at as u32, previous_id: found.last_id };
            let head = self.bytes[self.at];
            self.at += 1;
            let id = self.id(head, position.previous_id)?;
            if found.stored > 0 && id <= position.previous_id {
                return Err(InvalidPart("the entries of a block are not in the order of their ids"));
            }
            self.body(head & SAME_NAMES != 0, name_count)?;
            if head & DELETED == 0 {
                if found.live == 0 {
                    found.start = position;
                }
                found.live += 1;
            }
            found.stored += 1;
            found.last_id = id;
        }
        Ok(found)
    }

    fn id(&mut self, head: u8, previous_id: StreamId) -> Result<StreamId, InvalidPart> {
        let ms_step = match head >> MS_STEP_SHIFT {
            MS_STEP_FOLLOWS => self.number()?,
            step => u64::from(step),
        };
        let seq = self.number()?;
        let id = match ms_step {
            0 => previous_id.seq.checked_add(seq).map(|seq| StreamId::new(previous_id.ms, seq)),
            _ => previous_id.ms.checked_add(ms_step).map(|ms| StreamId::new(ms, seq)),
        };
        id.ok_or(InvalidPart("an id is greater than the maximum"))
    }

    /// Checks the fields of an entry, which must fill its length exactly.
    fn body(&mut self, same_names: bool, name_count: u32) -> Result<(), InvalidPart> {
        let length = self.number()?;
        let end = self.end_of(length)?;
        if same_names {
            for _ in 0..name_count {
                self.value()?;
            }
        } else {
            let pairs = self.number()?;
            if pairs > length {
                return Err(InvalidPart("an entry has more fields than bytes"));
            }
            for _ in 0..pairs {
                self.text()?;
                self.value()?;
            }
        }
        if self.at == end {
            Ok(())
        } else {
            Err(InvalidPart("the length of an entry differs from that of its fields"))
        }
    }

    fn value(&mut self) -> Result<(), InvalidPart> {
        let tag = self.number()?;
        if tag & 1 == 0 {
            self.at = self.end_of(tag >> 1)?;
        } else if !value::is_packed(varint::unzigzag(tag >> 1)) {
            return Err(InvalidPart("an integer value is greater than the maximum of its encoding"));
        }
        Ok(())
    }

    fn text(&mut self) -> Result<(), InvalidPart> {
        let length = self.number()?;
        self.at = self.end_of(length)?;
        Ok(())
    }

    fn end_of(&self, length: u64) -> Result<usize, InvalidPart> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(length) {
            Ok(length) if length <= left => Ok(self.at + length),
            _ => Err(InvalidPart("a length exceeds the end of its block")),
        }
    }

    #[inline]
    fn number(&mut self) -> Result<u64, InvalidPart> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, InvalidPart> {
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
        Err(InvalidPart("a number in a block is not a canonical varint"))
    }
}
