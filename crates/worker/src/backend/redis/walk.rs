//! Walks over the names of all streams, step by step: SCAN, on a cluster one node after the other.

use std::sync::Arc;

use redis::Cmd;

use super::super::{Error, StreamCursor, StreamNames};
use super::Redis;
use super::commands;
use super::connection::Link;
use super::errors::from_redis;
use super::nodes::Node;
use super::reply::{array, bytes, text, tuple};

/// The cursor with which SCAN begins, and with which it says that it has ended.
const SCAN_ENDS: &str = "0";

impl Redis {
    /// Takes some steps of a walk.
    pub(super) async fn walk(
        &self,
        pattern: &str,
        from: &StreamCursor,
        steps: usize,
    ) -> Result<StreamNames, Error> {
        let mut nodes = self.nodes_from(from).await?;
        let mut found = StreamNames::default();
        let mut cursor = if from.cursor.is_empty() { SCAN_ENDS.to_owned() } else { from.cursor.clone() };
        for _ in 0..steps.max(1) {
            let Some(node) = nodes.first() else { return Ok(found) };
            let reply = self.scan_node(node.as_deref(), commands::scan(&cursor, pattern)).await?;
            let [next, keys] = tuple(reply)?;
            for key in array(keys)? {
                found.names.push(bytes(key)?);
            }
            cursor = text(next)?;
            if cursor == SCAN_ENDS {
                // The next node begins with the same cursor.
                nodes.remove(0);
            }
        }
        found.next = nodes
            .first()
            .map(|node| StreamCursor { node: node.as_ref().map(|node| node.address.to_string()), cursor });
        Ok(found)
    }

    /// Returns the nodes that the walk has not visited yet. `None` is the only server.
    ///
    /// The masters are sorted by their addresses, so the walk continues even if the nodes have changed. If the node of
    /// the cursor is gone, the walk continues with the next one, and a later walk finds what it had left.
    async fn nodes_from(&self, from: &StreamCursor) -> Result<Vec<Option<Arc<Node>>>, Error> {
        let Link::Cluster(nodes) = &self.connection.link else { return Ok(vec![None]) };
        if from.node.is_none() {
            nodes.refresh(nodes.version()).await.map_err(from_redis)?;
        }
        let mut masters = nodes.masters();
        masters.sort_by_key(|node| node.address.to_string());
        masters.retain(|node| from.node.as_ref().is_none_or(|current| node.address.to_string() >= *current));
        Ok(masters.into_iter().map(Some).collect())
    }

    async fn scan_node(&self, node: Option<&Node>, command: Cmd) -> Result<redis::Value, Error> {
        match node {
            Some(node) => self.call_node(node, command).await,
            None => self.connection.command("", command).await,
        }
    }
}
