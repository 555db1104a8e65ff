//! Generates `docs/conformance.md` from the cases: which server confirms which replies of Millstream, and where they
//! differ. The runs against the servers check that the directives in the cases are true.

use std::fmt::Write;

use super::case::{Case, CaseFile, Version};
use crate::support::peers::{PEERS, Peer};

/// Returns the text of `docs/conformance.md`.
pub(crate) fn page(files: &[CaseFile]) -> String {
    let cases = files.iter().map(|file| file.cases.len()).sum::<usize>();
    let mut page = format!(
        "# Conformance\n\n\
         <!-- Generated from conformance/*.txt; rewrite with MILLSTREAM_BLESS=1 cargo test --test conformance -->\n\n\
         {cases} cases in {} files define how Millstream replies to commands, in RESP2 and in RESP3. The same cases run against\n\
         real servers: {}.\n\
         \n\
         Millstream follows Redis 8.10. If a server is older than a case, or replies differently, the case states it, and this\n\
         page lists it. Every run checks both directions: a server must reply as the cases state, and it must fail every case\n\
         that excludes it.\n",
        files.len(),
        PEERS.map(|peer| peer.title).join(", "),
    );
    confirmations(&mut page, files);
    let unconfirmed = |case: &Case| (!confirmed_by_any(case)).then(|| why_unconfirmed(case));
    section(
        &mut page,
        "Cases that no server has confirmed",
        "These cases follow the documentation of Redis, or test features that only Millstream has.",
        files,
        unconfirmed,
    );
    newer(&mut page, files);
    section(
        &mut page,
        "Exceptions to the version rule",
        "By default a case runs on every server of its version or later. Valkey counts as Redis 7.2. These cases name exceptions.",
        files,
        exceptions,
    );
    differing_replies(&mut page, files);
    section(
        &mut page,
        "Millstream differs on purpose",
        "These cases run only on Millstream.",
        files,
        |case| case.differs.clone(),
    );
    page
}

/// Writes the table of how many cases of each file each server confirms.
fn confirmations(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## Cases confirmed by each server\n");
    let _ = writeln!(page, "| file | cases | {} | no server |", PEERS.map(|peer| peer.title).join(" | "));
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
        (_, Some((version, why)), _) if !PEERS.iter().any(|peer| case.runs_on(peer)) => {
            format!("since {}: {why}", dotted(*version))
        }
        (_, _, Some(version)) => format!("a reply of Redis {} or later", dotted(version)),
        _ => "every server replies differently".to_string(),
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

/// Writes the table of cases that older servers skip, by the feature that they lack.
fn newer(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## Cases that older servers skip\n");
    let _ = writeln!(page, "| file | since | feature or change in that version | cases |\n|---|---|---|--:|");
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
    let note = |(peer, runs, why): &(&Peer, bool, String)| {
        format!("{} {} this case: {why}", peer.title, if *runs { "runs" } else { "skips" })
    };
    let notes: Vec<String> = case.exceptions.iter().map(note).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn differing_replies(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## Replies that differ between servers\n");
    let _ = writeln!(
        page,
        "Long replies are shown from the point where they differ.\n\n\
         | file | case | server | its reply | Millstream's reply |\n|---|---|---|---|---|"
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
                    let (other, ours) = from_difference(reply, &expect.always);
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

/// Shortens two replies: they begin a little before the point where they differ, and have at most `SHOWN` characters.
fn from_difference(one: &str, other: &str) -> (String, String) {
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

/// Maximum number of characters of a reply that the page shows.
const SHOWN: usize = 120;

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
