//! The findings of a diagnosis by kind: a store with thousands of unhealthy groups has thousands of findings, but few
//! kinds.

use super::{Diagnosis, DoctorFinding};
use crate::monitor::Health;

/// Default number of findings of each kind that are shown.
pub const SHOWN_DEFAULT: usize = 10;
/// Maximum number of findings of each kind that the dashboard shows at once.
pub const SHOWN_MAX: usize = 500;

/// Maximum bytes of the findings that are shown at once, as [`weight`] estimates them: names can be long.
const BYTES_MAX: usize = 1024 * 1024;
/// Maximum bytes of a text about a finding.
pub(crate) const TEXT_BYTES_MAX: usize = 2048;

/// Which findings to show.
#[derive(Clone, Copy, Debug)]
pub struct FindingsQuery<'a> {
    /// Only findings in which each of these words occurs, regardless of case.
    pub words: &'a str,
    /// Only findings with this code.
    pub code: Option<&'a str>,
    /// Number of findings of each kind to skip.
    pub offset: usize,
    /// Maximum number of findings of each kind to show.
    pub count: usize,
}

impl Default for FindingsQuery<'_> {
    fn default() -> Self {
        FindingsQuery { words: "", code: None, offset: 0, count: SHOWN_DEFAULT }
    }
}

/// The findings with the same code and the same health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingKind<'a> {
    /// Severity.
    pub health: Health,
    /// Stable identifier for programs.
    pub code: &'static str,
    /// Number of findings.
    pub count: usize,
    /// Those that are shown.
    pub shown: Vec<&'a DoctorFinding>,
}

impl FindingKind<'_> {
    /// Number of findings that are not shown.
    pub fn left_out(&self) -> usize {
        self.count - self.shown.len()
    }
}

impl Diagnosis {
    /// Returns the findings by kind, worst first, those of each kind in the order of their streams.
    pub fn kinds(&self, query: &FindingsQuery<'_>) -> Vec<FindingKind<'_>> {
        let (mut kinds, mut bytes): (Vec<FindingKind<'_>>, usize) = (Vec::new(), 0);
        let words = query.words.to_lowercase();
        let is_wanted = |finding: &&DoctorFinding| {
            query.code.is_none_or(|code| code == finding.code) && has_words(finding, &words)
        };
        for finding in self.findings.iter().filter(is_wanted) {
            let (health, code) = (finding.health, finding.code);
            let at = kinds.iter().position(|kind| (kind.health, kind.code) == (health, code));
            let at = at.unwrap_or_else(|| {
                kinds.push(FindingKind { health, code, count: 0, shown: Vec::new() });
                kinds.len() - 1
            });
            let kind = &mut kinds[at];
            let fits = bytes.saturating_add(weight(finding)) <= BYTES_MAX;
            if kind.count >= query.offset && kind.shown.len() < query.count && fits {
                kind.shown.push(finding);
                bytes += weight(finding);
            }
            kind.count += 1;
        }
        kinds
    }
}

/// Whether a finding has all words, which are in lower case.
fn has_words(finding: &DoctorFinding, words: &str) -> bool {
    let subject = &finding.subject;
    let texts = [
        Some(finding.code),
        subject.stream(),
        subject.group(),
        finding.consumer.as_deref(),
        Some(&finding.text),
    ];
    words
        .split_whitespace()
        .all(|word| texts.into_iter().flatten().any(|text| text.to_lowercase().contains(word)))
}

/// Estimates the bytes of a finding as JSON, which has its names in several places.
fn weight(finding: &DoctorFinding) -> usize {
    let names = [finding.subject.stream(), finding.subject.group(), finding.consumer.as_deref()];
    let names: usize = names.into_iter().flatten().map(str::len).sum();
    512 + 4 * names + finding.text.len().min(TEXT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::doctor::{ServerFacts, Subject};
    use crate::operate::shapes;

    fn diagnosis(groups: usize, name: &str) -> Diagnosis {
        let finding = |health, code, at: usize| DoctorFinding {
            health,
            code,
            subject: Subject::group_of(&format!("{name}{at}"), "g"),
            consumer: None,
            text: format!("{name}{at} has a problem"),
            way_out: name.into(),
        };
        let critical = (0..groups).map(|at| finding(Health::Critical, "lag", at));
        let degraded = (0..groups).map(|at| finding(Health::Degraded, "lag", at));
        Diagnosis {
            location: String::new(),
            capabilities: Vec::new(),
            server: ServerFacts::new(None),
            streams: 1,
            groups: 1,
            health: Health::Critical,
            findings: critical.chain(degraded).collect(),
        }
    }

    #[test]
    fn kinds_count_all_findings_and_show_a_page_of_each() {
        let diagnosis = diagnosis(4_000, "s");
        let query = FindingsQuery { offset: 3_995, ..FindingsQuery::default() };
        for (query, shown) in [(FindingsQuery::default(), 10), (query, 5)] {
            let kinds = diagnosis.kinds(&query);
            let found: Vec<_> =
                kinds.iter().map(|kind| (kind.health, kind.count, kind.shown.len())).collect();
            assert_eq!(found, [(Health::Critical, 4_000, shown), (Health::Degraded, 4_000, shown)]);
            assert_eq!(kinds[0].left_out(), 4_000 - shown);
        }
        let one = FindingsQuery { words: "S3999 Problem", ..FindingsQuery::default() };
        let counts: Vec<_> = diagnosis.kinds(&one).iter().map(|kind| kind.count).collect();
        assert_eq!(counts, [1, 1]);
        assert!(
            diagnosis.kinds(&FindingsQuery { code: Some("stuck"), ..FindingsQuery::default() }).is_empty()
        );
    }

    #[test]
    fn an_answer_is_limited_whatever_the_names_are() {
        for (groups, bytes) in [(10_000, 100), (200, 100_000), (3, 1024 * 1024)] {
            let diagnosis = diagnosis(groups, &"\u{1}".repeat(bytes));
            let kinds = diagnosis.kinds(&FindingsQuery { count: SHOWN_MAX, ..FindingsQuery::default() });
            let answer = shapes::WholeDiagnosis::new(&diagnosis, &kinds, &|_| String::new());
            let json = serde_json::to_string(&answer).unwrap();
            assert!(json.len() < 8_000_000, "{} bytes", json.len());
            assert_eq!(kinds.iter().map(|kind| kind.count).sum::<usize>(), 2 * groups);
        }
    }
}
