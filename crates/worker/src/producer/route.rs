//! Where the messages of a producer go: to one stream, or each to a partition of a logical stream.
//!
//! A producer finds out when it sends its first message, with one look at the hash that lists partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::backend::{Error, ErrorKind, Fields, NewEntry};
use crate::partitions::{Named, Partitions, partitions_key};

use super::Producer;

/// The partition of messages that lack the field of the key. They are one key.
const PARTITION_WITHOUT_FIELD: usize = 0;

/// A message on its way to a stream or a partition.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) entry: NewEntry,
    /// The key that the caller names. It comes before the field of the key.
    pub(super) key: Option<Bytes>,
    /// Whether the caller chose the idempotence id.
    pub(super) is_named: bool,
}

/// A message and its place in a call.
pub(super) type Placed = (usize, Outgoing);

/// Where the messages of a producer go.
pub(super) struct StreamRoute {
    /// One for each stream: more than one only if the stream has partitions.
    pub(super) lanes: Vec<Arc<PartitionQueue>>,
    /// `None` if there is one stream.
    partitions: Option<Partitions>,
    /// Number of calls so far with messages that have no key.
    calls_without_key: AtomicUsize,
}

/// A stream to which messages are added.
pub(super) struct PartitionQueue {
    pub(super) stream: Arc<str>,
    pub(super) is_partition: bool,
    /// Held during an add, by producers whose adds must not overtake each other.
    ///
    /// The messages of a key in a partition must stay in order. And a store remembers only the latest ids of an
    /// idempotent producer: if other adds overtook an add that is being repeated, the store could forget its ids.
    pub(super) turn: Arc<Mutex<()>>,
}

impl StreamRoute {
    fn new(named: Named) -> StreamRoute {
        let lane = |stream: Arc<str>, is_partition| {
            Arc::new(PartitionQueue { stream, is_partition, turn: Arc::new(Mutex::new(())) })
        };
        let (lanes, partitions) = match named {
            Named::Stream(stream) => (vec![lane(stream, false)], None),
            Named::Partitions(partitions) => {
                let names = partitions.names().into_iter();
                (names.map(|name| lane(name.into(), true)).collect(), Some(partitions))
            }
        };
        StreamRoute { lanes, partitions, calls_without_key: AtomicUsize::new(0) }
    }

    pub(super) fn has_partitions(&self) -> bool {
        self.partitions.is_some()
    }

    /// Groups the messages of one call by lane. Each message comes with its place in the call.
    ///
    /// The messages of a call that have no key stay together, and the next call takes the next partition: if they were
    /// distributed one by one, workers would read many small batches.
    pub(super) fn by_lane(
        &self,
        messages: impl IntoIterator<Item = Placed>,
    ) -> Vec<(Arc<PartitionQueue>, Vec<Placed>)> {
        let mut without_key = None;
        let mut lanes: Vec<Vec<Placed>> = vec![Vec::new(); self.lanes.len()];
        for (at, message) in messages {
            let lane = self.lane_of(&message).unwrap_or_else(|| {
                let next = || self.calls_without_key.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
                *without_key.get_or_insert_with(next)
            });
            lanes[lane].push((at, message));
        }
        let lanes = self.lanes.iter().map(Arc::clone).zip(lanes);
        lanes.filter(|(_, messages)| !messages.is_empty()).collect()
    }

    /// Returns the number of the lane of a message. `None` if any will do.
    fn lane_of(&self, Outgoing { entry, key, is_named }: &Outgoing) -> Option<usize> {
        let Some(partitions) = &self.partitions else { return Some(0) };
        if let Some(key) = key {
            return Some(partitions.of_key(key));
        }
        if let Some(field) = partitions.key_field() {
            let value = value_of(&entry.fields, field);
            return Some(value.map_or(PARTITION_WITHOUT_FIELD, |value| partitions.of_key(value)));
        }
        // Each stream has its own memory, so the same idempotence id must lead to the same stream.
        let named = entry.idempotence.as_ref().filter(|_| *is_named);
        named.map(|idempotence| partitions.of_key(idempotence.iid.as_bytes()))
    }

    /// Returns the lane to which a message goes if its key or its idempotence id decides. Otherwise the first one.
    pub(super) fn lane(&self, message: &Outgoing) -> &Arc<PartitionQueue> {
        &self.lanes[self.lane_of(message).unwrap_or(0)]
    }
}

fn value_of<'a>(fields: &'a Fields, name: &str) -> Option<&'a Bytes> {
    fields.iter().find(|(found, _)| found == name.as_bytes()).map(|(_, value)| value)
}

impl Producer {
    /// Returns where messages go. Looks at the store when the first message is sent.
    pub(super) async fn route(&self) -> Result<Arc<StreamRoute>, Error> {
        let mut known = self.route.lock().await;
        if let Some(route) = &*known {
            return Ok(Arc::clone(route));
        }
        let found = Arc::new(StreamRoute::new(self.find_route().await?));
        Ok(Arc::clone(known.insert(found)))
    }

    /// Reads the list of partitions again, because one of them is gone.
    ///
    /// If the list is gone too, the producer does not begin to add to an ordinary stream: the readers of the partitions
    /// would not see these messages.
    pub(super) async fn new_route(&self, old: &Arc<StreamRoute>) -> Result<Arc<StreamRoute>, Error> {
        let mut known = self.route.lock().await;
        if let Some(route) = &*known
            && !Arc::ptr_eq(route, old)
        {
            return Ok(Arc::clone(route));
        }
        match self.find_route().await? {
            Named::Partitions(partitions) if old.partitions.as_ref() == Some(&partitions) => {
                Ok(Arc::clone(old))
            }
            named @ Named::Partitions(_) => Ok(Arc::clone(known.insert(Arc::new(StreamRoute::new(named))))),
            Named::Stream(_) => {
                let (stream, list) = (&self.stream, partitions_key(&self.stream));
                Err(Error::new(
                    ErrorKind::NoGroup,
                    format!(
                        "the partitions of {stream} were removed ({list} is gone): create them again with `millstream \
                         partition create`, or start this program again to add to an ordinary stream"
                    ),
                ))
            }
        }
    }

    async fn find_route(&self) -> Result<Named, Error> {
        let find = || -> crate::backend::BackendFuture<'_, Named> {
            Box::pin(Named::find(&*self.backend, &self.stream))
        };
        match self.identity {
            Some(_) => self.retried(find).await,
            None => find().await,
        }
    }
}
