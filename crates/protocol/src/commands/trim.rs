//! The trimming options that XADD and XTRIM share: `<MAXLEN|MINID> [=|~] threshold [LIMIT count]` and
//! `[KEEPREF|DELREF|ACKED]`.
//!
//! They can be in any order. As in Redis, LIMIT is checked against the other options after all of them have been read.

use millstream_engine::{Exactness, References, Trim, TrimBy, TrimLimit};

use super::references;
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::ids;

#[derive(Default)]
pub(super) struct TrimOptions {
    strategy: Option<(TrimBy, Exactness)>,
    limit: Option<u64>,
    references: Option<References>,
}

impl TrimOptions {
    /// Reads the next option if it is a trimming option with its value. Returns whether it did.
    pub(super) fn read(&mut self, args: &mut Args<'_>) -> Result<bool, CommandError> {
        if args.keyword_before("MAXLEN", 1) {
            self.read_strategy(args, max_len)?;
        } else if args.keyword_before("MINID", 1) {
            self.read_strategy(args, min_id)?;
        } else if args.keyword_before("LIMIT", 1) {
            let limit = args.next_i64()?;
            self.limit = Some(u64::try_from(limit).map_err(|_| errors::LIMIT_NEGATIVE)?);
        } else {
            return Ok(references::read(&mut self.references, args));
        }
        Ok(true)
    }

    fn read_strategy(
        &mut self,
        args: &mut Args<'_>,
        threshold: fn(&mut Args<'_>) -> Result<TrimBy, CommandError>,
    ) -> Result<(), CommandError> {
        if self.strategy.is_some() {
            return Err(errors::TRIM_TWICE);
        }
        let exactness = exactness(args);
        self.strategy = Some((threshold(args)?, exactness));
        Ok(())
    }

    /// Fails if a LIMIT other than 0 was given without MAXLEN or MINID.
    pub(super) fn check_limit_has_strategy(&self) -> Result<(), CommandError> {
        match (self.strategy, self.limit) {
            (None, Some(1..)) => Err(errors::LIMIT_WITHOUT_TRIM),
            _ => Ok(()),
        }
    }

    pub(super) fn references(&self) -> References {
        self.references.unwrap_or_default()
    }

    pub(super) fn finish(self) -> Result<Option<Trim>, CommandError> {
        self.check_limit_has_strategy()?;
        let exactness = self.strategy.map_or(Exactness::Exact, |(_, exactness)| exactness);
        let limit = match (exactness, self.limit) {
            (Exactness::Exact, None) => TrimLimit::Unlimited,
            (Exactness::Exact, Some(_)) => return Err(errors::LIMIT_WITHOUT_TILDE),
            (Exactness::Approximate, None) => TrimLimit::Default,
            (Exactness::Approximate, Some(0)) => TrimLimit::Unlimited,
            (Exactness::Approximate, Some(most)) => TrimLimit::AtMost(most),
        };
        Ok(self.strategy.map(|(by, exactness)| Trim { by, exactness, limit }))
    }

    pub(super) fn has_strategy(&self) -> bool {
        self.strategy.is_some()
    }
}

/// Reads `=` or `~` if a threshold follows it.
fn exactness(args: &mut Args<'_>) -> Exactness {
    if args.len() >= 2 && args.symbol("~") {
        return Exactness::Approximate;
    }
    if args.len() >= 2 {
        args.symbol("=");
    }
    Exactness::Exact
}

fn max_len(args: &mut Args<'_>) -> Result<TrimBy, CommandError> {
    let entries = args.next_i64()?;
    u64::try_from(entries).map(TrimBy::MaxLen).map_err(|_| errors::MAXLEN_NEGATIVE)
}

fn min_id(args: &mut Args<'_>) -> Result<TrimBy, CommandError> {
    ids::parse_id(args.next()?).map(TrimBy::MinId)
}
