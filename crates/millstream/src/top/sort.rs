//! The sort orders that the user can choose: one for each column that can be sorted.

use millstream_worker::observe::Sort;

/// The sort orders with their names. The key `s` cycles through them.
const SORTS: [(Sort, &str); 9] = [
    (Sort::Name, "name"),
    (Sort::Health, "health"),
    (Sort::Lag, "lag"),
    (Sort::UnreadAge, "oldest unread"),
    (Sort::Pending, "pending"),
    (Sort::PendingAge, "oldest pending"),
    (Sort::Added, "in/s"),
    (Sort::Acknowledged, "out/s"),
    (Sort::Length, "length"),
];

/// Returns the next sort order. The first follows the last.
pub(super) fn next(sort: Sort) -> Sort {
    let at = SORTS.iter().position(|(known, _)| *known == sort).map_or(0, |at| at + 1);
    SORTS[at % SORTS.len()].0
}

pub(super) fn name(sort: Sort) -> &'static str {
    SORTS.iter().find(|(known, _)| *known == sort).map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orders_follow_one_another_in_a_circle() {
        let mut sort = Sort::Name;
        let mut names = Vec::new();
        for _ in 0..SORTS.len() {
            names.push(name(sort));
            sort = next(sort);
        }
        assert_eq!((sort, names.first(), names.last()), (Sort::Name, Some(&"name"), Some(&"length")));
    }
}
