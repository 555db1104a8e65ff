//! Fills in blank replies (`?`) with the replies of the reference server, so that a case can start as a list of
//! commands. The result is a draft to review: it shows what the reference replies, not what is right.

use std::collections::BTreeMap;

use super::case::{CaseFile, Expectation};
use super::pattern::render;
use super::run::Runner;
use crate::support::resp::{Value, escape};

/// Line numbers of the blank replies in a file.
pub(crate) fn blanks(file: &CaseFile) -> Vec<usize> {
    let expectations = file.cases.iter().flat_map(|case| case.expectations());
    expectations.filter(|expect| is_blank(expect)).map(|expect| expect.line).collect()
}

fn is_blank(expect: &Expectation) -> bool {
    expect.always == "?"
}

/// Rewrites the file with its blank replies filled in.
pub(crate) fn fill(file: &CaseFile, resp2: &mut Runner, resp3: &mut Runner) {
    let blanks = blanks(file);
    let (mut in_resp2, mut in_resp3) = (BTreeMap::new(), BTreeMap::new());
    for case in &file.cases {
        let last = case.steps.last().map_or(case.line, |step| step.line + 1);
        if blanks.iter().any(|line| (case.line..=last).contains(line)) {
            in_resp2.extend(resp2.record(case));
            in_resp3.extend(resp3.record(case));
        }
    }
    let text = std::fs::read_to_string(&file.path).expect("read the file again");
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    for line in blanks {
        if let (Some(two), Some(three)) = (in_resp2.get(&line), in_resp3.get(&line)) {
            let reply = expectation(two, three);
            lines[line - 1] = lines[line - 1].replacen('?', &reply, 1);
        }
    }
    std::fs::write(&file.path, lines.join("\n") + "\n").expect("write the file back");
}

/// Writes the replies of both protocols as one expectation if the notation allows it, otherwise as two lines.
fn expectation(two: &Value, three: &Value) -> String {
    if let Value::Error(text) = two
        && two == three
        && text.trim_ascii().len() == text.len()
    {
        return format!("-{}", escape(text).replace("\\\"", "\""));
    }
    unified(two, three).unwrap_or_else(|| format!("resp2: {}\nresp3: {}", render(two), render(three)))
}

fn unified(two: &Value, three: &Value) -> Option<String> {
    match (two, three) {
        (Value::NullBulk | Value::NullArray, Value::Null) => Some(render(two)),
        (Value::Bulk(_), Value::Double(_) | Value::Verbatim(_)) => Some(render(three)),
        (Value::Int(_), Value::Bool(_)) => Some(render(three)),
        (Value::Array(left), Value::Array(right)) => Some(format!("[{}]", all(left, right)?)),
        (Value::Array(left), Value::Set(right)) => Some(format!("set[{}]", all(left, right)?)),
        (Value::Array(left), Value::Push(right)) => Some(format!("push[{}]", all(left, right)?)),
        (Value::Array(left), Value::Map(right)) if left.len() == right.len() * 2 => {
            let pairs =
                left.chunks(2).zip(right).map(|(two, (key, value))| pair((&two[0], &two[1]), (key, value)));
            Some(format!("{{{}}}", pairs.collect::<Option<Vec<_>>>()?.join(", ")))
        }
        (Value::Array(left), Value::Map(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).map(|(two, (key, value))| match two {
                Value::Array(two) if two.len() == 2 => pair((&two[0], &two[1]), (key, value)),
                _ => None,
            });
            Some(format!("streams{{{}}}", pairs.collect::<Option<Vec<_>>>()?.join(", ")))
        }
        _ => (two == three).then(|| render(two)),
    }
}

fn all(left: &[Value], right: &[Value]) -> Option<String> {
    let same = left.len() == right.len();
    let items = left.iter().zip(right).map(|(two, three)| unified(two, three)).collect::<Option<Vec<_>>>()?;
    same.then(|| items.join(", "))
}

fn pair(two: (&Value, &Value), three: (&Value, &Value)) -> Option<String> {
    Some(format!("{}: {}", unified(two.0, three.0)?, unified(two.1, three.1)?))
}
