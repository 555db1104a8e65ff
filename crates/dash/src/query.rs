//! Parses what queries and bodies name: ids, positions, numbers and choices.

use axum::http::StatusCode;
use millstream_worker::backend::{IdOrder, StreamId};
use millstream_worker::observe::{Query, Sort};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::problem::Problem;
use crate::rows;

/// Maximum bytes of the words by which rows are selected. Each word is searched in each name.
pub(crate) const WORDS_BYTES_MAX: usize = 256;
/// Maximum number of rows of an overview in one answer.
const ROWS_MAX: usize = 10_000;
const ROWS_DEFAULT: usize = 1000;

/// Parses an id such as `1794844800000-0`. An id without a sequence number has the sequence number `seq`.
pub(crate) fn id(text: &str, seq: u64) -> Result<StreamId, Problem> {
    let invalid = || Problem::bad_request(format!("invalid id '{}': expected MS-SEQ", clip(text)));
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_plain).ok_or_else(invalid)
    };
    match text.split_once('-') {
        Some((ms, seq)) => Ok(StreamId::new(number(ms)?, number(seq)?)),
        None => Ok(StreamId::new(number(text)?, seq)),
    }
}

pub(crate) fn ids(texts: &[String]) -> Result<Vec<StreamId>, Problem> {
    texts.iter().map(|text| id(text, 0)).collect()
}

/// Parses the beginning or the end of a range: an id, `-`, `+`, or a time such as `t1794844800000`.
fn bound(text: &str, seq: u64) -> Result<StreamId, Problem> {
    match text {
        "-" => Ok(StreamId::MIN),
        // A form decodes a plus to a space.
        "+" | " " => Ok(StreamId::MAX),
        _ => id(text.strip_prefix('t').unwrap_or(text), seq),
    }
}

/// The first and the last id of a range.
pub(crate) fn range(from: Option<&str>, to: Option<&str>) -> Result<(StreamId, StreamId), Problem> {
    let first = from.map_or(Ok(StreamId::MIN), |from| bound(from, 0))?;
    let last = to.map_or(Ok(StreamId::MAX), |to| bound(to, u64::MAX))?;
    Ok((first, last))
}

/// Parses an order: `asc`, oldest first, or `desc`, newest first.
pub(crate) fn order(text: Option<&str>) -> Result<IdOrder, Problem> {
    match text {
        None | Some("asc") => Ok(IdOrder::Ascending),
        Some("desc") => Ok(IdOrder::Descending),
        Some(other) => {
            Err(Problem::bad_request(format!("invalid order '{}': expected asc or desc", clip(other))))
        }
    }
}

/// Checks a number of rows against its limit.
pub(crate) fn count(given: Option<usize>, default: usize, max: usize) -> Result<usize, Problem> {
    match given {
        Some(0) => Err(Problem::bad_request("invalid count 0: expected at least 1")),
        Some(count) if count > max => {
            Err(Problem::bad_request(format!("invalid count {count}: expected at most {max}")))
        }
        given => Ok(given.unwrap_or(default)),
    }
}

/// Checks the words by which rows are selected.
pub(crate) fn words(given: Option<String>) -> Result<String, Problem> {
    match given.unwrap_or_default() {
        words if words.len() > WORDS_BYTES_MAX => {
            let detail = format!("q has {} bytes, and the limit is {WORDS_BYTES_MAX}", words.len());
            Err(Problem::bad_request(detail).way_out("use fewer words"))
        }
        words => Ok(words),
    }
}

/// Reads a flag: `1` or `true`, `0` or `false`.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match &*String::deserialize(deserializer)? {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(serde::de::Error::custom(format!("invalid flag '{other}': expected 1 or 0"))),
    }
}

/// The query of `/overview`, and of events about it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverviewQuery {
    /// Only rows with these words
    q: Option<String>,
    /// ok, unknown, degraded or critical
    health: Option<String>,
    /// health, name, lag, oldest, oldest_pending, pending, stuck, in, out, eta, dead or length
    sort: Option<String>,
    /// 1: descending
    #[serde(default, deserialize_with = "flag")]
    #[schemars(with = "Option<String>")]
    desc: bool,
    /// Number of rows to skip
    offset: Option<usize>,
    /// Maximum number of rows
    count: Option<usize>,
}

impl OverviewQuery {
    /// Returns the query of the sampler. Without a sort order, the worst rows are first.
    pub(crate) fn parse(self) -> Result<Query, Problem> {
        let invalid = |what, word: &str| Problem::bad_request(format!("invalid {what} '{}'", clip(word)));
        let health =
            match &self.health {
                None => None,
                Some(word) => Some(rows::health(word).ok_or_else(|| {
                    invalid("health", word).way_out("use ok, unknown, degraded or critical")
                })?),
            };
        let sort = match &self.sort {
            None => None,
            Some(word) => Some(Sort::named(word).ok_or_else(|| {
                let names: Vec<&str> = Sort::ALL.iter().map(|(_, name)| *name).collect();
                invalid("sort order", word).way_out(format!("use one of {}", names.join(", ")))
            })?),
        };
        // The sampler sorts names ascending, and everything else the worst first.
        let is_descending = self.desc || sort.is_none();
        let sort = sort.unwrap_or_default();
        Ok(Query {
            words: words(self.q)?,
            health,
            sort,
            reversed: is_descending == (sort == Sort::Name),
            offset: self.offset.unwrap_or(0),
            count: count(self.count, ROWS_DEFAULT, ROWS_MAX)?,
        })
    }
}

/// Returns the error for a name that a request must have.
pub(crate) fn required<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, Problem> {
    value.ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "bad_request", format!("{name} is missing")))
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_and_nothing_else_is() {
        assert_eq!(id("5-7", 0).unwrap(), StreamId::new(5, 7));
        assert_eq!(id("5", 9).unwrap(), StreamId::new(5, 9));
        for invalid in ["", "-", "5-", "-5", "+5-1", "5-1-1", "x", "5 -1", "18446744073709551616-0"] {
            assert!(id(invalid, 0).is_err(), "{invalid}");
        }
        let all = (StreamId::MIN, StreamId::MAX);
        assert_eq!(range(None, None).unwrap(), all);
        assert_eq!(range(Some("-"), Some("+")).unwrap(), all);
        assert_eq!(range(Some("t5"), Some("t7")).unwrap(), (StreamId::new(5, 0), StreamId::new(7, u64::MAX)));
    }

    #[test]
    fn words_have_a_maximum_length() {
        assert!(words(Some("x".repeat(WORDS_BYTES_MAX))).is_ok() && words(None).is_ok());
        assert!(words(Some("x".repeat(WORDS_BYTES_MAX + 1))).is_err());
    }

    #[test]
    fn an_overview_begins_with_the_worst_unless_asked_otherwise() {
        let parse = |sort: Option<&str>, desc| {
            OverviewQuery { sort: sort.map(str::to_owned), desc, ..OverviewQuery::default() }.parse().unwrap()
        };
        assert!(!parse(None, false).reversed);
        assert!(!parse(Some("lag"), true).reversed && parse(Some("lag"), false).reversed);
        assert!(!parse(Some("name"), false).reversed && parse(Some("name"), true).reversed);
    }
}
