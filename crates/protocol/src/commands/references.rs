//! The policy options `KEEPREF|DELREF|ACKED` of XADD, XTRIM, XDELEX and XACKDEL: what becomes of the pending
//! rows of an entry that goes.

use millstream_engine::References;

use crate::args::Args;

const WORDS: [(&str, References); 3] =
    [("KEEPREF", References::Keep), ("DELREF", References::Delete), ("ACKED", References::Acked)];

/// Reads the next argument if it is a policy and none was read before. A second one is left where it is: each
/// command has its own words for it.
pub(super) fn read(given: &mut Option<References>, args: &mut Args<'_>) -> bool {
    if given.is_some() {
        return false;
    }
    *given = WORDS.iter().find(|(word, _)| args.keyword(word)).map(|(_, references)| *references);
    given.is_some()
}
