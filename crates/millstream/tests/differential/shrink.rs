//! Shrinks a failing sequence by delta debugging: removes halves, then quarters, and so on, as long as the rest still
//! fails.

use crate::script::{Script, Step};

/// Returns a failing sequence from which no single step can be removed without losing the failure.
pub(crate) fn shrink(script: &Script, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut steps = script.steps.clone();
    let mut size = steps.len().div_ceil(2).max(1);
    loop {
        let before = steps.len();
        steps = without_chunks(script, steps, size, &mut fails);
        if size > 1 {
            size = size.div_ceil(2);
        } else if steps.len() == before {
            return Script { steps, ..script.clone() };
        }
    }
}

/// Tries to remove each run of `size` steps, starting at the end, because later steps depend on earlier ones.
fn without_chunks(
    script: &Script,
    mut steps: Vec<Step>,
    size: usize,
    fails: &mut impl FnMut(&Script) -> bool,
) -> Vec<Step> {
    let mut end = steps.len();
    while end > 0 {
        let begin = end.saturating_sub(size);
        let mut fewer = steps.clone();
        fewer.drain(begin..end);
        let shorter = Script { steps: fewer, ..script.clone() };
        if fails(&shorter) {
            steps = shorter.steps;
        }
        end = begin;
    }
    steps
}
