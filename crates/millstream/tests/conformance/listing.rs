//! Where Millstream and the reference part, as a page: generated from the cases themselves, so that it cannot drift.

use std::fmt::Write;

use super::case::{Action, Case, CaseFile, Step, Version};

/// `docs/conformance.md`.
pub(crate) fn page(files: &[CaseFile]) -> String {
    let cases = files.iter().map(|file| file.cases.len()).sum::<usize>();
    let mut page = format!(
        "# Conformance\n\n\
         <!-- Generated from conformance/*.txt; rewrite with MILLSTREAM_BLESS=1 cargo test --test conformance -->\n\n\
         {cases} cases in {} files say what Millstream answers, each in RESP2 and in RESP3. The same cases run against a real\n\
         `redis-server`. Where its version is older than what Millstream follows (Redis 8.10), or where Millstream means to\n\
         differ, the case says so, and this page lists it.\n",
        files.len()
    );
    section(&mut page, "Millstream follows a newer Redis", files, |case| {
        let (version, why) = case.since.as_ref()?;
        Some(format!("since {}: {why}", dotted(*version)))
    });
    older_answers(&mut page, files);
    section(&mut page, "Millstream means to differ", files, |case| case.differs.clone());
    page
}

fn section(page: &mut String, title: &str, files: &[CaseFile], note: impl Fn(&Case) -> Option<String>) {
    let _ = writeln!(page, "\n## {title}\n\n| file | case | note |\n|---|---|---|");
    for file in files {
        for case in &file.cases {
            if let Some(note) = note(case) {
                let _ = writeln!(page, "| {} | {} | {} |", name(file), cell(&case.name), cell(&note));
            }
        }
    }
}

fn older_answers(page: &mut String, files: &[CaseFile]) {
    let _ = writeln!(page, "\n## An older Redis answers otherwise\n");
    let _ = writeln!(page, "| file | case | before | older answer | answer |\n|---|---|---|---|---|");
    for file in files {
        for case in &file.cases {
            for (version, older, newer) in case.steps.iter().filter_map(older_answer) {
                let (version, older, newer) = (dotted(version), code(older), code(newer));
                let _ = writeln!(
                    page,
                    "| {} | {} | {version} | {older} | {newer} |",
                    name(file),
                    cell(&case.name)
                );
            }
        }
    }
}

/// A version, what comes before it, and what from it on.
fn older_answer(step: &Step) -> Option<(Version, &str, &str)> {
    let expect = match &step.action {
        Action::Call { expect: Some(expect), .. } | Action::Await { expect, .. } => expect,
        _ => return None,
    };
    let (version, older) = expect.before.as_ref()?;
    Some((*version, older, &expect.always))
}

fn name(file: &CaseFile) -> String {
    file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn dotted((major, minor): Version) -> String {
    format!("{major}.{minor}")
}

/// A reply, cut where it would only tire.
fn code(text: &str) -> String {
    let short: String = text.chars().take(120).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", cell(&short))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
