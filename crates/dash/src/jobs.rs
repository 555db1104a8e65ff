//! Actions that take long: they run in this process, report their progress, can be stopped, and end with the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millstream_worker::answers;
use millstream_worker::operate::wording::millis_since_epoch;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::access::Visitor;
use crate::options::JOBS_MAX;
use crate::problem::Problem;

/// Number of ended jobs to remember.
const ENDED_MAX: usize = 50;
/// Time between two checks whether the visitor of a job may still log in.
const VISITOR_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Jobs {
    all: Mutex<BTreeMap<u64, Arc<Job>>>,
    changes: watch::Sender<u64>,
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs { all: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

pub(crate) struct Job {
    pub(crate) id: u64,
    kind: &'static str,
    pub(crate) stream: String,
    visitor: Visitor,
    started: Instant,
    started_ms: u64,
    pub(crate) stop: CancellationToken,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Clone)]
pub(crate) struct State {
    name: &'static str,
    progress: Value,
    done: u64,
    total: Option<u64>,
    ended: Option<(Instant, u64)>,
    error: Option<String>,
    changed: u64,
}

impl Jobs {
    /// Starts a job, unless too many run.
    pub(crate) fn start(
        &self,
        kind: &'static str,
        stream: &str,
        visitor: &Visitor,
    ) -> Result<Arc<Job>, Problem> {
        let mut all = self.all.lock();
        if all.values().filter(|job| job.is_running()).count() >= JOBS_MAX {
            return Err(Problem::too_many("too_many_jobs", format!("{JOBS_MAX} jobs are running"))
                .way_out("wait until one ends, or stop one"));
        }
        let id = all.last_key_value().map_or(1, |(id, _)| id + 1);
        let ended: Vec<u64> = all.values().filter(|job| !job.is_running()).map(|job| job.id).collect();
        if ended.len() >= ENDED_MAX {
            all.remove(&ended[0]);
        }
        let job = Arc::new(Job {
            id,
            kind,
            stream: stream.to_owned(),
            visitor: visitor.clone(),
            started: Instant::now(),
            started_ms: millis_since_epoch(SystemTime::now()),
            stop: CancellationToken::new(),
            state: Mutex::new(State {
                name: "running",
                progress: Value::Null,
                done: 0,
                total: None,
                ended: None,
                error: None,
                changed: 0,
            }),
            changes: self.changes.clone(),
        });
        all.insert(id, Arc::clone(&job));
        job.change(|_| ());
        Ok(job)
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Job>> {
        self.all.lock().get(&id).cloned()
    }

    /// Returns the jobs that a visitor may see, newest first.
    pub(crate) fn list(&self, may_see: &(dyn Fn(&str) -> bool + Send + Sync)) -> Vec<JobJson> {
        self.all.lock().values().rev().filter(|job| may_see(&job.stream)).map(|job| job.state()).collect()
    }

    /// Returns the jobs that changed after a change, and the number of the last change.
    pub(crate) fn since(&self, change: u64) -> (Vec<Arc<Job>>, u64) {
        let all = self.all.lock();
        let changed: Vec<Arc<Job>> =
            all.values().filter(|job| job.state.lock().changed > change).cloned().collect();
        let last = changed.iter().map(|job| job.state.lock().changed).max();
        (changed, last.unwrap_or(change))
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Job {
    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().ended.is_none()
    }

    /// Whether a visitor may stop the job: who started it, and operators.
    pub(crate) fn may_be_stopped_by(&self, visitor: &Visitor) -> bool {
        self.visitor.name == visitor.name || (visitor.is_operator)()
    }

    /// Reports progress: its JSON form, and how much of how much is done.
    pub(crate) fn progress(&self, progress: Value, done: u64, total: Option<u64>) {
        self.change(|state| (state.progress, state.done, state.total) = (progress, done, total));
    }

    /// Ends the job: `done`, `stopped` or `failed`.
    fn end(&self, name: &'static str, error: Option<String>) {
        self.change(|state| {
            state.name = name;
            state.error = error;
            state.ended = Some((Instant::now(), millis_since_epoch(SystemTime::now())));
        });
    }

    /// Runs the work of the job until it is done, the job is stopped, its visitor may no longer log in, or the
    /// dashboard ends.
    pub(crate) async fn run(
        &self,
        ended: &CancellationToken,
        work: impl Future<Output = Result<(), millstream_worker::Error>>,
    ) {
        // If the work panics, the job must not run forever: jobs are few.
        let _ends = EndsWhenDropped(self);
        tokio::select! {
            result = work => match result {
                Ok(()) => self.end("done", None),
                Err(error) => self.end("failed", Some(error.to_string())),
            },
            () = self.visitor_is_gone() => {
                self.end("stopped", Some(format!("the user {} may no longer log in", self.visitor.name)));
            }
            () = self.stop.cancelled() => self.end("stopped", None),
            () = ended.cancelled() => self.end("stopped", None),
        }
    }

    async fn visitor_is_gone(&self) {
        while (self.visitor.is_valid)() {
            sleep(VISITOR_INTERVAL).await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.changes.send_modify(|count| {
            *count += 1;
            let mut state = self.state.lock();
            change(&mut state);
            state.changed = *count;
        });
    }

    /// Returns the state of the job.
    pub(crate) fn state(&self) -> JobJson {
        JobJson::new(self, self.state.lock().clone())
    }
}

answers! {
    /// An action that takes long. It ends with the dashboard.
    pub(crate) struct JobJson(job: &Job, now: State) [
        let until = now.ended.map_or_else(Instant::now, |(at, _)| at);
        let seconds = until.duration_since(job.started).as_secs_f64();
    ] {
        id: String = job.id.to_string(),
        kind: &'static str = job.kind,
        stream: String = job.stream.clone(),
        state: &'static str = now.name,
        progress: Value = now.progress,
        done: u64 = now.done,
        total: Option<u64> = now.total,
        rate: Option<f64> = (seconds > 0.0).then(|| now.done as f64 / seconds),
        started_ms: u64 = job.started_ms,
        ended_ms: Option<u64> = now.ended.map(|(_, at_ms)| at_ms),
        error: Option<String> = now.error,
    }
}

struct EndsWhenDropped<'a>(&'a Job);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        if self.0.is_running() {
            self.0.end("failed", Some("the dashboard could not finish it".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::access::tests::visitor;

    #[tokio::test]
    async fn a_job_that_panics_or_whose_visitor_is_gone_ends() {
        let jobs = Arc::new(Jobs::default());
        let mut alice = visitor("alice").await;
        let job = jobs.start("purge", "a", &alice).unwrap();
        let running = Arc::clone(&job);
        let ended = tokio::spawn(async move {
            running.run(&CancellationToken::new(), async { panic!("a planted defect") }).await;
        });
        assert!(ended.await.is_err());
        assert_eq!(json!(job.state())["state"], "failed");
        alice.is_valid = Arc::new(|| false);
        let job = jobs.start("purge", "a", &alice).unwrap();
        job.run(&CancellationToken::new(), std::future::pending()).await;
        assert_eq!(json!(job.state())["state"], "stopped");
    }

    #[tokio::test]
    async fn only_its_visitor_and_operators_stop_a_job() {
        let (jobs, alice, mut bob) = (Jobs::default(), visitor("alice").await, visitor("bob").await);
        let job = jobs.start("purge", "a", &alice).unwrap();
        assert!(job.may_be_stopped_by(&alice) && job.may_be_stopped_by(&bob));
        bob.is_operator = Arc::new(|| false);
        assert!(!job.may_be_stopped_by(&bob));
    }

    #[tokio::test]
    async fn two_jobs_run_at_a_time() {
        let (jobs, alice) = (Jobs::default(), visitor("alice").await);
        let first = jobs.start("purge", "a", &alice).unwrap();
        let second = jobs.start("purge", "b", &alice).unwrap();
        assert_eq!(jobs.start("purge", "c", &alice).err().unwrap().code(), "too_many_jobs");
        first.progress(json!({"deleted": 5}), 5, Some(9));
        first.end("done", None);
        assert!(jobs.start("purge", "c", &alice).is_ok() && second.is_running());
        let listed = json!(jobs.list(&|stream| stream == "a"));
        assert_eq!((&listed[0]["state"], &listed[0]["done"]), (&json!("done"), &json!(5)));
        assert_eq!(listed.as_array().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn changes_are_found_once() {
        let (jobs, alice) = (Jobs::default(), visitor("alice").await);
        let job = jobs.start("purge", "a", &alice).unwrap();
        let (changed, last) = jobs.since(0);
        assert_eq!(changed.len(), 1);
        assert!(jobs.since(last).0.is_empty());
        job.end("stopped", None);
        assert_eq!(jobs.since(last).0.len(), 1);
    }
}
