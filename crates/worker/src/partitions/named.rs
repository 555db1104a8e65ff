//! What a name stands for: one stream, or all partitions of a logical stream.

use std::sync::Arc;

use super::{Partitions, refused, split_name};
use crate::backend::{Backend, Error, ErrorKind};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// One stream: an ordinary one, or one partition. The name of a partition is that in the store, such as
    /// `orders:{ae}.1`.
    Stream(Arc<str>),
    /// All partitions of a logical stream.
    Partitions(Partitions),
}

impl Named {
    /// Finds out what a name stands for: `orders` for all partitions if the stream has any, `orders/3` for one of them.
    ///
    /// A stream whose own name is `orders/3` comes before the partition. Nothing else has to exist: a name without a
    /// list of partitions stands for the stream with this name.
    pub async fn find(backend: &dyn Backend, name: &str) -> Result<Named, Error> {
        let Some((logical, number)) = split_name(name) else {
            return Ok(match Partitions::find(backend, name).await? {
                Some(partitions) => Named::Partitions(partitions),
                None => Named::Stream(name.into()),
            });
        };
        let Some(partitions) = Partitions::find(backend, logical).await? else {
            return Ok(Named::Stream(name.into()));
        };
        match backend.stream(name).await {
            Ok(Some(_)) => return Ok(Named::Stream(name.into())),
            Ok(None) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::Denied) => {}
            Err(error) => return Err(error),
        }
        let found = partitions.name(number).cloned().map(Named::Stream);
        found.ok_or_else(|| {
            let last = partitions.len() - 1;
            refused(format!("there is no {name}: the partitions of {logical} have the numbers 0 to {last}"))
        })
    }
}
