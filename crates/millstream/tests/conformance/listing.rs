//! Which server confirms what Millstream answers, and where they part, as a page: generated from the cases themselves, so
//! that it cannot drift. The runs on the servers show that the marks in the cases are true.

use std::fmt::Write;

use super::case::{Case, CaseFile, Version};
use crate::support::peers::{PEERS, Peer};

/// `docs/conformance.md`.
pub(crate) fn page(files: &[CaseFile]) -> String {
    let cases = files.iter().map(|file| file.cases.len()).sum::<usize>();
    let mut page = format!(
        "# Conformance\n\n\
         <!-- Generated from conformance/*.txt; rewrite with MILLSTREAM_BLESS=1 cargo test --test conformance -->\n\n\
         {cases} cases in {} files say what Millstream answers, each in RESP2 and in RESP3. The same cases run against real servers:\n\
         {}. Millstream follows Redis 8.10, so a server may be older than a case, or\n\
         answer in another way. Then the case says so, and this page lists it. Every run checks both: a server that is asked must answer as\n\
         the case says, and a server that is too old for a case, or goes its own way, must fail it.\n",
        files.len(),
        PEERS.map(|peer| peer.title).join(", "),
    );
    confirmations(&mut page, files);
    let unconfirmed = |case: &Case| (!confirmed_by_any(case)).then(|| why_unconfirmed(case));
    section(
        &mut page,
        "Cases that no server has confirmed",
        "They follow the documentation of Redis, or Millstream alone has what they ask for.",
        files,
        unconfirmed,
    );
    newer(&mut page, files);
    section(
        &mut page,
        "Servers that are not asked for another reason than their version",
        "",
        files,
        exceptions,
    );
    other_answers(&mut page, files);
    section(&mut page, "Millstream differs on purpose", "", files, |case| case.differs.clone());
    page
}

/// How many cases of each file each server confirms in every answer.
fn confirmations(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## Cases confirmed by each server\n");
    let _ = writeln!(page, "| file | cases | {} | by none |", PEERS.map(|peer| peer.title).join(" | "));
    let _ = writeln!(page, "|---|--:|{}--:|", "--:|".repeat(PEERS.len()));
    let mut row = |name: &str, cases: &[&Case]| {
        let count = |is_counted: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| is_counted(case)).count();
        let by_peer = PEERS.map(|peer| count(&|case| case.is_confirmed_by(peer)).to_string()).join(" | ");
        let by_none = count(&|case| !confirmed_by_any(case));
        let _ = writeln!(page, "| {name} | {} | {by_peer} | {by_none} |", cases.len());
    };
    for file in files {
        row(&name(file), &file.cases.iter().collect::<Vec<_>>());
    }
    row("**all**", &files.iter().flat_map(|file| &file.cases).collect::<Vec<_>>());
}

fn confirmed_by_any(case: &Case) -> bool {
    PEERS.iter().any(|peer| case.is_confirmed_by(peer))
}

fn why_unconfirmed(case: &Case) -> String {
    let newest = case.expectations().flat_map(|expect| &expect.before).map(|(version, _)| *version).max();
    match (&case.differs, &case.since, newest) {
        (Some(why), ..) => why.clone(),
        (_, Some((version, why)), _) if !PEERS.iter().any(|peer| case.asks(peer)) => {
            format!("since {}: {why}", dotted(*version))
        }
        (_, _, Some(version)) => format!("an answer of Redis {}", dotted(version)),
        _ => "every server answers in a way of its own".to_string(),
    }
}

fn section(
    page: &mut String,
    title: &str,
    intro: &str,
    files: &[CaseFile],
    note: impl Fn(&Case) -> Option<String>,
) {
    let intro = if intro.is_empty() { String::new() } else { format!("{intro}\n\n") };
    let _ = writeln!(page, "\n## {title}\n\n{intro}| file | case | note |\n|---|---|---|");
    for file in files {
        for case in &file.cases {
            if let Some(note) = note(case) {
                let _ = writeln!(page, "| {} | {} | {} |", name(file), cell(&case.name), cell(&note));
            }
        }
    }
}

/// What older servers are not asked, by what they lack.
fn newer(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## Older servers are not asked\n");
    let _ = writeln!(page, "| file | since | what came with that version | cases |\n|---|---|---|--:|");
    for file in files {
        let mut marks: Vec<(&(Version, String), usize)> = Vec::new();
        let followed = file.cases.iter().filter(|case| case.differs.is_none());
        for mark in followed.filter_map(|case| case.since.as_ref()) {
            match marks.iter_mut().find(|(known, _)| *known == mark) {
                Some((_, count)) => *count += 1,
                None => marks.push((mark, 1)),
            }
        }
        for ((version, why), count) in marks {
            let _ = writeln!(page, "| {} | {} | {} | {count} |", name(file), dotted(*version), cell(why));
        }
    }
}

fn exceptions(case: &Case) -> Option<String> {
    let told = |(peer, answers, why): &(&Peer, bool, String)| {
        format!("{}{}: {why}", peer.title, if *answers { " is asked" } else { "" })
    };
    let notes: Vec<String> = case.exceptions.iter().map(told).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn other_answers(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## A server answers otherwise\n");
    let _ = writeln!(
        page,
        "Long answers are shown from where they part.\n\n| file | case | server | its answer | answer |\n|---|---|---|---|---|"
    );
    for file in files {
        for case in &file.cases {
            for expect in case.expectations() {
                let older = expect
                    .before
                    .iter()
                    .map(|(version, reply)| (format!("Redis before {}", dotted(*version)), reply));
                let own = expect.of_peers.iter().map(|(peer, reply)| (peer.title.to_string(), reply));
                for (server, reply) in older.chain(own) {
                    let (other, ours) = parting(reply, &expect.always);
                    let (file, case) = (name(file), cell(&case.name));
                    let _ = writeln!(page, "| {file} | {case} | {server} | {other} | {ours} |");
                }
            }
        }
    }
}

fn name(file: &CaseFile) -> String {
    file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn dotted((major, minor): Version) -> String {
    format!("{major}.{minor}")
}

/// Two replies, cut where they would only tire: from a little before they part, and not to the end.
fn parting(one: &str, other: &str) -> (String, String) {
    let common = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    let skipped = if one.len() > SHOWN { common.saturating_sub(SHOWN / 4) } else { 0 };
    let cut = |text: &str| {
        let shown: String = text.chars().skip(skipped).take(SHOWN).collect();
        let before = if skipped > 0 { "…" } else { "" };
        let after = if skipped + SHOWN < text.chars().count() { "…" } else { "" };
        format!("`{before}{}{after}`", cell(&shown))
    };
    (cut(one), cut(other))
}

/// Characters of a reply that the page shows.
const SHOWN: usize = 120;

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
