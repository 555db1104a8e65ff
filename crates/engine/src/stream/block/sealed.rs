//! A block that has ended: no entry joins it any more, and it is shared by reference.

use std::sync::Arc;

use super::{ARC_COUNTERS_BYTES, Block, BlockView, Packed};
use crate::StreamId;
use crate::memory::allocation_bytes;
use crate::stream::parts::BlockParts;

/// A sealed block beside what a search needs of it.
#[derive(Clone, Debug)]
pub(in crate::stream) struct Sealed {
    base: StreamId,
    form: Form,
}

/// How a block is kept.
#[derive(Clone, Debug)]
enum Form {
    /// As nearly all are: in as few bytes as it can be. It is unpacked when an entry goes.
    Packed(Packed),
    /// A block with deleted entries, or a large one.
    Plain(Arc<Block>),
}

impl Sealed {
    /// Ends a block. Returns what the next one may grow in, too.
    pub(in crate::stream) fn seal(mut block: Block) -> (Sealed, Vec<u8>) {
        let base = block.base();
        if block.is_whole_and_small() {
            let (packed, bytes) = block.pack();
            return (Sealed { base, form: Form::Packed(packed) }, bytes);
        }
        let bytes = block.seal();
        (Sealed { base, form: Form::Plain(Arc::new(block)) }, bytes)
    }

    /// The block again, for more entries to come.
    pub(in crate::stream) fn reopen(self) -> Block {
        match self.form {
            Form::Packed(packed) => packed.unpack(self.base),
            Form::Plain(block) => Arc::unwrap_or_clone(block),
        }
    }

    /// Changes the block.
    pub(in crate::stream) fn change<R>(&mut self, change: impl FnOnce(&mut Block) -> R) -> R {
        match &mut self.form {
            Form::Plain(block) => change(Arc::make_mut(block)),
            Form::Packed(packed) => {
                let mut block = packed.unpack(self.base);
                let outcome = change(&mut block);
                self.form = Form::Plain(Arc::new(block));
                outcome
            }
        }
    }

    /// Of a block without a live entry its bytes go.
    pub(in crate::stream) fn hollow(&mut self) {
        if let Form::Plain(block) = &mut self.form {
            *block = Arc::new(Block::hollow(block));
        }
    }

    pub(in crate::stream) fn base(&self) -> StreamId {
        self.base
    }

    /// The block, to be read.
    #[inline]
    pub(in crate::stream) fn view(&self) -> BlockView<'_> {
        match &self.form {
            Form::Packed(packed) => packed.view(self.base),
            Form::Plain(block) => block.view(),
        }
    }

    /// Whether no entry is live.
    pub(in crate::stream) fn is_empty(&self) -> bool {
        match &self.form {
            Form::Packed(_) => false,
            Form::Plain(block) => block.live() == 0,
        }
    }

    /// How many entries are live.
    pub(in crate::stream) fn live(&self) -> u64 {
        match &self.form {
            Form::Packed(packed) => packed.live(),
            Form::Plain(block) => block.live(),
        }
    }

    /// The id of the last entry ever written.
    pub(in crate::stream) fn last_id(&self) -> StreamId {
        match &self.form {
            Form::Packed(packed) => packed.last_id(self.base),
            Form::Plain(block) => block.last_id(),
        }
    }

    /// What the block is made of.
    pub(in crate::stream) fn parts(&self) -> BlockParts<'_> {
        match &self.form {
            Form::Packed(packed) => packed.parts(self.base),
            Form::Plain(block) => block.parts(),
        }
    }

    pub(in crate::stream) fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.memory_bytes(),
            Form::Plain(block) => {
                allocation_bytes(ARC_COUNTERS_BYTES + size_of::<Block>()) + block.heap_bytes()
            }
        }
    }

    /// Verifies what this file promises of one block.
    pub(in crate::stream) fn check(&self) -> Result<(), String> {
        let block = self.clone().reopen();
        match (&self.form, block.is_whole_and_small()) {
            (Form::Packed(_), false) => Err(format!("block {} cannot be packed, but is", self.base)),
            _ if block.base() != self.base => Err(format!("block {} is {}", self.base, block.base())),
            _ => block.check(),
        }
    }
}
