//! What the name of a stream on the command line stands for: one stream, or all partitions of a logical stream.
//! Commands that act on streams visit each of these, and merge what they find.

use millstream_worker::Admin;
use millstream_worker::backend::StreamId;
use millstream_worker::partitions::{Named, Partitions};
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::lookup;
use super::safe_text::printable;
use super::shell::suggest;
use super::table::{Cell, Table};

/// What a name on the command line stands for.
#[derive(Debug)]
pub(crate) struct Target {
    /// The name as it was given.
    pub(crate) name: String,
    /// The streams, at least one.
    pub(crate) parts: Vec<Part>,
    /// The list, if the name is that of a logical stream.
    pub(crate) partitions: Option<Partitions>,
}

/// A stream that a name stands for.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Its name in the store.
    pub(crate) stream: String,
    /// The number of the partition, if the name stands for several.
    pub(crate) number: Option<usize>,
}

impl Part {
    /// Adds the number of the partition to an object.
    pub(crate) fn mark(&self, answer: impl Serialize) -> Value {
        let mut json = json!(answer);
        if let Some(number) = self.number {
            json["partition"] = json!(number);
        }
        json
    }
}

impl Target {
    /// Finds out what a name stands for. A single stream need not exist.
    pub(crate) async fn find(backend: &dyn Admin, name: &str) -> Result<Target, Failure> {
        let (partitions, streams) = match Named::find(backend, name).await? {
            Named::Stream(stream) => (None, vec![stream.to_string()]),
            Named::Partitions(partitions) => {
                let streams = partitions.names().into_iter().map(str::to_owned).collect();
                (Some(partitions), streams)
            }
        };
        let number = |number| partitions.is_some().then_some(number);
        let parts = streams.into_iter().enumerate();
        let parts = parts.map(|(at, stream)| Part { stream, number: number(at) }).collect();
        Ok(Target { name: name.to_owned(), parts, partitions })
    }

    /// Finds out what a name stands for. It must be that of a stream.
    pub(crate) async fn existing(backend: &dyn Admin, name: &str) -> Result<Target, Failure> {
        let target = Target::find(backend, name).await?;
        if target.partitions.is_none() {
            lookup::stream(backend, &target.parts[0].stream).await?;
        }
        Ok(target)
    }

    /// Finds out what a name stands for, and leaves out partitions without this group. At least one stream must have
    /// it.
    pub(crate) async fn with_group(backend: &dyn Admin, name: &str, group: &str) -> Result<Target, Failure> {
        let mut target = Target::find(backend, name).await?;
        if target.partitions.is_none() {
            lookup::group(backend, &target.parts[0].stream, group).await?;
            return Ok(target);
        }
        let (mut with_group, mut others) = (Vec::new(), Vec::new());
        for part in target.parts {
            let groups = backend.groups(&part.stream).await?;
            match groups.iter().any(|found| found.name == group) {
                true => with_group.push(part),
                false => others.extend(groups.into_iter().map(|group| group.name)),
            }
        }
        if with_group.is_empty() {
            others.sort();
            others.dedup();
            let what = format!("no partition of {} has a group {}", printable(name), printable(group));
            let hint = format!("create it with: {}", suggest("group create", &[name, group], ""));
            return Err(lookup::not_found(&what, "groups", &others, &hint));
        }
        target.parts = with_group;
        Ok(target)
    }

    pub(crate) fn has_partitions(&self) -> bool {
        self.partitions.is_some()
    }

    /// Returns the name of a part for people: `orders/3`, or the name of the only stream.
    pub(crate) fn label(&self, part: &Part) -> String {
        part.number.map_or_else(|| self.name.clone(), |number| format!("{}/{number}", self.name))
    }

    /// Refuses a logical stream. `what` begins the error: `--to-id needs one stream`.
    pub(crate) fn refuse_partitions(&self, what: &str) -> Result<(), Failure> {
        let Some(partitions) = &self.partitions else { return Ok(()) };
        let name = printable(&self.name);
        Err(Failure::Usage(format!(
            "{what}, but {name} has {} partitions\nname one of them, such as {name}/0",
            partitions.len()
        )))
    }

    /// Distributes ids over the streams that have them. `find` returns those that a stream has.
    ///
    /// Ids of different partitions can be equal. Such an id is refused, because it does not say which entry is meant.
    pub(crate) async fn by_part(
        &self,
        ids: &[StreamId],
        mut find: impl AsyncFnMut(&Part) -> Result<Vec<StreamId>, Failure>,
    ) -> Result<Vec<(&Part, Vec<StreamId>)>, Failure> {
        if let ([part], false) = (&self.parts[..], self.has_partitions()) {
            return Ok(vec![(part, ids.to_vec())]);
        }
        let mut found: Vec<(&Part, Vec<StreamId>)> = Vec::new();
        for part in &self.parts {
            let here = find(part).await?;
            let of_two = |(_, there): &&(&Part, Vec<StreamId>)| there.iter().any(|id| here.contains(id));
            if let Some((other, _)) = found.iter().find(of_two) {
                let (one, two) = (self.label(other), self.label(part));
                return Err(Failure::Usage(format!(
                    "{} and {} both have an entry with one of these ids\nname the partition that you mean",
                    printable(one),
                    printable(two)
                )));
            }
            if !here.is_empty() {
                found.push((part, here));
            }
        }
        Ok(found)
    }

    /// Creates a table. If the name stands for several streams, the first column has the number of the partition.
    pub(crate) fn table<'p>(
        &self,
        titles: &[&'static str],
        rows: impl IntoIterator<Item = (&'p Part, Vec<Cell>)>,
    ) -> Table {
        let first = self.has_partitions().then_some(">PARTITION");
        let titles: Vec<&'static str> = first.into_iter().chain(titles.iter().copied()).collect();
        let rows = rows.into_iter().map(|(part, cells)| {
            let number = part.number.map(|number| Cell::from(number.to_string()));
            number.into_iter().chain(cells).collect()
        });
        Table::new(&titles, rows)
    }
}
