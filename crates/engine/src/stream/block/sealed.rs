//! A sealed block: no entry is appended to it any more, and copies of the stream share it.

use std::sync::Arc;

use super::{ARC_COUNTERS_BYTES, Block, BlockView, PackedBlock};
use crate::StreamId;
use crate::memory::allocation_bytes;
use crate::stream::parts::BlockParts;

/// A sealed block with its base, by which it is searched.
#[derive(Clone, Debug)]
pub(in crate::stream) struct SealedBlock {
    base: StreamId,
    repr: SealedRepr,
}

#[derive(Clone, Debug)]
enum SealedRepr {
    /// A small block without deleted entries, which is the usual case. It is unpacked when an entry is
    /// deleted.
    Packed(PackedBlock),
    /// A block with deleted entries, or a large block.
    Plain(Arc<Block>),
}

impl SealedBlock {
    /// Seals a block. Also returns a buffer for the next block.
    pub(in crate::stream) fn seal(mut block: Block) -> (SealedBlock, Vec<u8>) {
        let base = block.base();
        if block.can_be_packed() {
            let (packed, bytes) = block.pack();
            return (SealedBlock { base, repr: SealedRepr::Packed(packed) }, bytes);
        }
        let bytes = block.seal();
        (SealedBlock { base, repr: SealedRepr::Plain(Arc::new(block)) }, bytes)
    }

    pub(in crate::stream) fn reopen(self) -> Block {
        match self.repr {
            SealedRepr::Packed(packed) => packed.unpack(self.base),
            SealedRepr::Plain(block) => Arc::unwrap_or_clone(block),
        }
    }

    pub(in crate::stream) fn change<R>(&mut self, change: impl FnOnce(&mut Block) -> R) -> R {
        match &mut self.repr {
            SealedRepr::Plain(block) => change(Arc::make_mut(block)),
            SealedRepr::Packed(packed) => {
                let mut block = packed.unpack(self.base);
                let outcome = change(&mut block);
                self.repr = SealedRepr::Plain(Arc::new(block));
                outcome
            }
        }
    }

    /// Frees the bytes of a block without live entries.
    pub(in crate::stream) fn drop_bytes(&mut self) {
        if let SealedRepr::Plain(block) = &mut self.repr {
            *block = Arc::new(Block::without_bytes(block));
        }
    }

    pub(in crate::stream) fn base(&self) -> StreamId {
        self.base
    }

    #[inline]
    pub(in crate::stream) fn view(&self) -> BlockView<'_> {
        match &self.repr {
            SealedRepr::Packed(packed) => packed.view(self.base),
            SealedRepr::Plain(block) => block.view(),
        }
    }

    pub(in crate::stream) fn is_empty(&self) -> bool {
        match &self.repr {
            SealedRepr::Packed(_) => false,
            SealedRepr::Plain(block) => block.live() == 0,
        }
    }

    pub(in crate::stream) fn live(&self) -> u64 {
        match &self.repr {
            SealedRepr::Packed(packed) => packed.live(),
            SealedRepr::Plain(block) => block.live(),
        }
    }

    pub(in crate::stream) fn last_id(&self) -> StreamId {
        match &self.repr {
            SealedRepr::Packed(packed) => packed.last_id(self.base),
            SealedRepr::Plain(block) => block.last_id(),
        }
    }

    pub(in crate::stream) fn parts(&self) -> BlockParts<'_> {
        match &self.repr {
            SealedRepr::Packed(packed) => packed.parts(self.base),
            SealedRepr::Plain(block) => block.parts(),
        }
    }

    pub(in crate::stream) fn memory_bytes(&self) -> usize {
        match &self.repr {
            SealedRepr::Packed(packed) => packed.memory_bytes(),
            SealedRepr::Plain(block) => {
                allocation_bytes(ARC_COUNTERS_BYTES + size_of::<Block>()) + block.heap_bytes()
            }
        }
    }

    pub(in crate::stream) fn check(&self) -> Result<(), String> {
        let block = self.clone().reopen();
        match (&self.repr, block.can_be_packed()) {
            (SealedRepr::Packed(_), false) => {
                Err(format!("block {} is packed, but has deleted entries or is too large", self.base))
            }
            _ if block.base() != self.base => Err(format!(
                "block {} is stored under the wrong base, its own is {}",
                self.base,
                block.base()
            )),
            _ => block.check(),
        }
    }
}
