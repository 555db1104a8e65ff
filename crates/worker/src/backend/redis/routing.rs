//! Sends commands to the node of a cluster that owns their slot, so that the outcome of each command is known.
//!
//! A node refuses commands while slots move or a master is replaced: it names another node (MOVED, ASK), or it asks for
//! patience (TRYAGAIN, CLUSTERDOWN). A refused command was not executed, so it is sent again, alone. A command that was
//! sent and has no reply may have been executed: it is never sent again, and the caller learns that its outcome is
//! unknown. (Cluster clients usually repeat all commands of a pipeline in both cases, which adds entries twice.)

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{CallOutcome, Incomplete, NoReply, pipeline_of};
use super::nodes::{Node, NodeAddress, Nodes};
use crate::slots::slot_of;

/// How long refused commands are sent again. Longer than a replica usually takes to replace a master.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first and the longest pause before refused commands are sent again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// How long a call to several nodes waits for a connection to one of them.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of redirections that a call follows without a pause.
const REDIRECTIONS_AT_ONCE: u32 = 4;

/// What the commands of a call have to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Independent,
    /// They take effect in order: a command is not sent again if a later one has been executed.
    Ordered,
    /// They are a transaction, from MULTI to EXEC.
    Transaction,
}

/// Why a node did not execute a command.
pub(super) enum NodeRefusal {
    /// Another node owns the slot.
    Moved(NodeAddress),
    /// The key may be on another node, which the command reaches after ASKING.
    Ask(NodeAddress),
    /// The keys of the command are on two nodes until the slot has moved.
    HalfMoved,
    /// The node or the cluster does not serve commands now.
    Down,
}

impl NodeRefusal {
    /// Returns why a node refused a command, or `None` if the error is about something else.
    pub(super) fn of(error: &ServerError, node: &Node) -> Option<NodeRefusal> {
        let address = || {
            let details = error.details()?;
            node.address.redirected(details.split(' ').nth(1)?)
        };
        match error.kind()? {
            ServerErrorKind::Moved => Some(address().map_or(NodeRefusal::Down, NodeRefusal::Moved)),
            ServerErrorKind::Ask => Some(address().map_or(NodeRefusal::Down, NodeRefusal::Ask)),
            ServerErrorKind::TryAgain => Some(NodeRefusal::HalfMoved),
            ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::ReadOnly => Some(NodeRefusal::Down),
            _ => None,
        }
    }
}

/// Finds the node for the next attempt of a call, and pauses before it if necessary.
pub(super) struct Route<'a> {
    nodes: &'a Nodes,
    slot: u16,
    /// The node that the last reply named, and whether to send ASKING.
    redirection: Option<(Arc<Node>, bool)>,
    redirections: u32,
    pause: Duration,
    deadline: Instant,
    version: u64,
}

impl<'a> Route<'a> {
    pub(super) fn new(nodes: &'a Nodes, key: &str) -> Route<'a> {
        Route {
            nodes,
            slot: slot_of(key),
            redirection: None,
            redirections: 0,
            pause: PAUSES.0,
            deadline: Instant::now() + PATIENCE,
            version: nodes.version(),
        }
    }

    /// Returns the node to send to, and whether to send ASKING before each command. `None` if no node owns the slot.
    pub(super) fn next(&mut self) -> Option<(Arc<Node>, bool)> {
        self.version = self.nodes.version();
        self.redirection.take().or_else(|| self.nodes.owner(self.slot).map(|owner| (owner, false)))
    }

    /// Prepares the next attempt after a node refused commands. Returns false if it is too late for another.
    pub(super) async fn after_refusal(&mut self, refusal: NodeRefusal) -> bool {
        let (address, asking) = match refusal {
            NodeRefusal::Moved(address) => (address, false),
            NodeRefusal::Ask(address) => (address, true),
            NodeRefusal::HalfMoved => return self.pause().await,
            NodeRefusal::Down => return self.refresh().await,
        };
        let node = self.nodes.node(&address);
        if !asking {
            self.nodes.set_owner(self.slot, &address);
        }
        self.redirections += 1;
        if self.redirections > REDIRECTIONS_AT_ONCE {
            // The nodes do not agree yet: begin with the owner again.
            self.redirections = 0;
            return self.pause().await;
        }
        self.redirection = Some((node, asking));
        true
    }

    /// Pauses. Returns false if it is too late for another attempt.
    pub(super) async fn pause(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.deadline {
            return false;
        }
        sleep(self.pause.min(self.deadline - now)).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }

    /// Pauses and asks for the map of slots. Returns false if it is too late for another attempt.
    pub(super) async fn refresh(&mut self) -> bool {
        let may_go_on = self.pause().await;
        if may_go_on && let Err(error) = self.nodes.refresh(self.version).await {
            tracing::debug!(%error, "no node of the cluster says which node owns which slot");
        }
        may_go_on
    }
}

impl Nodes {
    /// Sends commands whose keys are all in the slot of `key`, and returns their replies.
    pub(super) async fn send(
        &self,
        key: &str,
        commands: &Pipeline,
        relation: Relation,
    ) -> Result<Vec<Value>, Incomplete> {
        let mut route = Route::new(self, key);
        let mut outcomes: Vec<CallOutcome> = Vec::new();
        outcomes.resize_with(commands.len(), || CallOutcome::NotExecuted);
        let mut rest: Vec<usize> = (0..commands.len()).collect();
        loop {
            let Some((node, asking)) = route.next() else {
                if route.refresh().await {
                    continue;
                }
                return Err(Incomplete { outcomes, error: no_owner(key) });
            };
            let (refused, error) = match attempt(&node, commands, &rest, asking, relation).await {
                Ok(replies) => sort_out(replies, &node, &rest, relation, &mut outcomes),
                Err(NoReply::NotSent(error)) if error.is_io_error() => {
                    if route.refresh().await {
                        continue;
                    }
                    return Err(Incomplete { outcomes, error });
                }
                Err(NoReply::NotSent(error)) => return Err(Incomplete { outcomes, error }),
                Err(NoReply::Broken(error)) => {
                    rest.iter().for_each(|at| outcomes[*at] = CallOutcome::Unknown);
                    return Err(Incomplete { outcomes, error });
                }
            };
            let Some((refusal, error)) = error else {
                return Ok(outcomes.into_iter().filter_map(CallOutcome::into_reply).collect());
            };
            let has_overtaken = relation == Relation::Ordered && !is_end(&refused, commands.len());
            rest = refused;
            if has_overtaken || !route.after_refusal(refusal).await {
                return Err(Incomplete { outcomes, error });
            }
        }
    }
}

impl Nodes {
    /// Sends a command for each key, and returns their replies. Commands for one node take one round trip, and no node
    /// waits for another.
    ///
    /// For commands that are sent again soon: if a slot has moved to another node, the reply is nil. If a node cannot
    /// be reached, the call does not wait for another one to replace it.
    pub(super) async fn send_each(
        self: &Arc<Self>,
        keys: &[Arc<str>],
        command: impl Fn(usize) -> Cmd,
    ) -> Vec<Result<Value, RedisError>> {
        let mut results: Vec<Result<Value, RedisError>> = Vec::with_capacity(keys.len());
        let mut by_node: Vec<(Arc<Node>, Vec<usize>, Vec<Cmd>)> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            results.push(Ok(Value::Nil));
            let Some(owner) = self.owner(slot_of(key)) else {
                results[at] = Err(no_owner(key));
                continue;
            };
            match by_node.iter_mut().find(|(node, ..)| Arc::ptr_eq(node, &owner)) {
                Some((_, indices, commands)) => {
                    indices.push(at);
                    commands.push(command(at));
                }
                None => by_node.push((owner, vec![at], vec![command(at)])),
            }
        }
        let version = self.version();
        let mut sending = JoinSet::new();
        for (node, indices, commands) in by_node {
            sending.spawn(async move {
                let connected = timeout(NODE_TIMEOUT, node.connection.connect()).await;
                let replies = match connected.unwrap_or_else(|_| Err(too_late())) {
                    Ok(()) => node.connection.pipeline(&pipeline_of(commands)).await,
                    Err(error) => Err(NoReply::NotSent(error)),
                };
                (node, indices, replies)
            });
        }
        let mut has_changed = results.iter().any(Result::is_err);
        let mut asked = Vec::new();
        while let Some(sent) = sending.join_next().await {
            let Ok((node, indices, replies)) = sent else { continue };
            let replies = match replies {
                Ok(replies) => replies,
                Err(no_reply) => {
                    let error = no_reply.into_error();
                    indices.into_iter().for_each(|at| results[at] = Err(error.clone()));
                    has_changed = true;
                    continue;
                }
            };
            for (at, reply) in indices.into_iter().zip(replies) {
                let Value::ServerError(error) = &reply else {
                    results[at] = Ok(reply);
                    continue;
                };
                match NodeRefusal::of(error, &node) {
                    Some(NodeRefusal::Moved(address)) => {
                        self.node(&address);
                        self.set_owner(slot_of(&keys[at]), &address);
                    }
                    Some(NodeRefusal::Ask(_)) => asked.push(at),
                    Some(NodeRefusal::HalfMoved) => {}
                    Some(NodeRefusal::Down) => {
                        has_changed = true;
                        results[at] = Err(error.clone().into());
                    }
                    None => results[at] = Err(error.clone().into()),
                }
            }
        }
        for at in asked {
            let sent = self.send(&keys[at], &pipeline_of(vec![command(at)]), Relation::Independent).await;
            results[at] = match sent.map(|mut replies| replies.pop().unwrap_or(Value::Nil)) {
                Ok(Value::ServerError(error)) => Err(error.into()),
                Ok(reply) => Ok(reply),
                Err(incomplete) => Err(incomplete.error),
            };
        }
        if has_changed && let Err(error) = self.refresh(version).await {
            tracing::debug!(%error, "no node of the cluster says which node owns which slot");
        }
        results
    }
}

fn too_late() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "the node does not accept a connection").into()
}

/// Sends those of the commands whose indices are given, in one round trip. Returns a reply for each.
async fn attempt(
    node: &Node,
    commands: &Pipeline,
    indices: &[usize],
    asking: bool,
    relation: Relation,
) -> Result<Vec<Value>, NoReply> {
    if !asking && indices.len() == commands.len() {
        return node.connection.pipeline(commands).await;
    }
    let mut chosen: Vec<Cmd> = Vec::new();
    let mut indices = indices.iter().peekable();
    for (at, command) in commands.cmd_iter().enumerate() {
        if indices.next_if_eq(&&at).is_some() {
            // ASKING is for the next command only. Before MULTI, it is for the transaction.
            if asking && (relation != Relation::Transaction || at == 0) {
                chosen.push(redis::cmd("ASKING"));
            }
            chosen.push(command.clone());
        }
    }
    let mut replies = node.connection.pipeline(&pipeline_of(chosen)).await?.into_iter();
    if !asking {
        return Ok(replies.collect());
    }
    if relation == Relation::Transaction {
        let asked = replies.next();
        return Ok(replies.map(|reply| unless_denied(asked.as_ref(), reply, node)).collect());
    }
    let mut kept = Vec::with_capacity(replies.len() / 2);
    while let (asked, Some(reply)) = (replies.next(), replies.next()) {
        kept.push(unless_denied(asked.as_ref(), reply, node));
    }
    Ok(kept)
}

/// Returns the reply to a command. If the node refused the command because it refused ASKING before it, returns the
/// error of ASKING.
fn unless_denied(asked: Option<&Value>, reply: Value, node: &Node) -> Value {
    match (asked, &reply) {
        (Some(Value::ServerError(denied)), Value::ServerError(error))
            if NodeRefusal::of(error, node).is_some() =>
        {
            Value::ServerError(denied.clone())
        }
        _ => reply,
    }
}

/// Stores the replies to the commands with these indices, except for refusals. Returns the indices of refused commands,
/// and the first refusal.
fn sort_out(
    replies: Vec<Value>,
    node: &Node,
    indices: &[usize],
    relation: Relation,
    outcomes: &mut [CallOutcome],
) -> (Vec<usize>, Option<(NodeRefusal, RedisError)>) {
    let refusal = |reply: &Value| match reply {
        Value::ServerError(error) => {
            NodeRefusal::of(error, node).map(|refusal| (refusal, error.clone().into()))
        }
        _ => None,
    };
    if relation == Relation::Transaction
        && matches!(replies.last(), Some(Value::ServerError(_)))
        && let Some(first) = replies.iter().find_map(refusal)
    {
        return (indices.to_vec(), Some(first));
    }
    let (mut refused, mut first) = (Vec::new(), None);
    for (at, reply) in indices.iter().zip(replies) {
        match refusal(&reply) {
            Some(refusal) => {
                refused.push(*at);
                first = first.or(Some(refusal));
            }
            None => outcomes[*at] = CallOutcome::Replied(reply),
        }
    }
    (refused, first)
}

fn is_end(indices: &[usize], count: usize) -> bool {
    indices.first().is_some_and(|first| first + indices.len() == count)
}

pub(super) fn no_owner(key: &str) -> RedisError {
    let details = format!("no node of the cluster serves the slot of {key}; see CLUSTER INFO");
    redis::make_extension_error("CLUSTERDOWN".to_owned(), Some(details))
}
