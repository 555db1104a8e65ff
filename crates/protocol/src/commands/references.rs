//! The option `KEEPREF|DELREF|ACKED` of XADD, XTRIM, XDELEX and XACKDEL.
//!
//! It decides what happens to the pending entries of a removed entry.

use millstream_engine::References;

use crate::args::Args;

const WORDS: [(&str, References); 3] =
    [("KEEPREF", References::Keep), ("DELREF", References::Delete), ("ACKED", References::Acked)];

/// Reads the next argument if it is one of these options and `given` is still `None`. Returns whether it did.
///
/// A second option is not read, because each command reports it with its own error.
pub(super) fn read(given: &mut Option<References>, args: &mut Args<'_>) -> bool {
    if given.is_some() {
        return false;
    }
    *given = WORDS.iter().find(|(word, _)| args.keyword(word)).map(|(_, references)| *references);
    given.is_some()
}
