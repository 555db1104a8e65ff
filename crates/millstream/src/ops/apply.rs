//! Applies what a command has planned, shown and, if it asks, confirmed.

use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::operate::operation::{Operate, apply};
use millstream_worker::operate::plan::{Executed, Plan};

use super::failure::Failure;

/// Does what a plan says. Returns an error, without any change, if the store has changed since.
///
/// With `force`, the operator accepts what active consumers do meanwhile.
pub(super) async fn apply_plan<O: Operate>(
    backend: &Arc<dyn Admin>,
    operation: &O,
    plan: &Plan<O::Effect>,
    force: bool,
) -> Result<O::Effect, Failure> {
    if force {
        return execute(backend, operation, plan.clone(), |_| {}).await;
    }
    match apply(operation, backend, &plan.digest, true).await? {
        Executed::Done(effect) => Ok(effect),
        Executed::Outdated(_) | Executed::InUse(_) => Err(outdated()),
    }
}

/// Does what a plan says that was made just now, and reports how far that is.
pub(super) async fn execute<O: Operate>(
    backend: &Arc<dyn Admin>,
    operation: &O,
    plan: Plan<O::Effect>,
    mut report: impl FnMut(&O::Effect) + Send,
) -> Result<O::Effect, Failure> {
    operation.execute(backend, plan, &mut report).await?.ok_or_else(outdated)
}

fn outdated() -> Failure {
    Failure::Other(
        "the store has changed since this was planned: nothing was changed\nrun the command again".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use millstream_worker::backend::{Embedded, Start, StreamId};
    use millstream_worker::operate::groups::RemoveGroup;

    use super::*;

    #[tokio::test]
    async fn nothing_is_done_if_the_store_has_changed_since_the_plan() {
        let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
        backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
        let operation = RemoveGroup { stream: "orders".into(), group: "billing".into(), forget: None };
        let plan = operation.plan(&backend, None).await.unwrap();
        let elsewhere = Start::After(StreamId::new(5, 0));
        backend.move_group("orders", "billing", elsewhere).await.unwrap();
        let failure = apply_plan(&backend, &operation, &plan, false).await.unwrap_err();
        assert!(failure.to_string().contains("nothing was changed"), "{failure}");
        let plan = operation.plan(&backend, None).await.unwrap();
        assert!(apply_plan(&backend, &operation, &plan, false).await.unwrap().removed);
    }
}
