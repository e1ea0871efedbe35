//! The one owner of background tasks.
//!
//! Every task of the daemon is spawned here with a name. A task that is meant to live as
//! long as the node and ends before shutdown began, or panics, is a fault: the owner records
//! it, and the daemon shuts down with an error rather than limp on without that task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns and counts tasks; clones are the same owner.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    fault: Arc<watch::Sender<Option<Fault>>>,
}

/// A task that ended although it should not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name of the task.
    pub task: &'static str,
    /// How it ended.
    pub message: String,
}

impl Tasks {
    /// An owner of no tasks.
    pub fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            fault: Arc::new(watch::Sender::new(None)),
        }
    }

    /// A task that lives until shutdown. Give it [`Self::stopping`] to know when.
    pub fn spawn<E: std::fmt::Display>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.spawn_until(name, self.stop.clone(), task);
    }

    /// A task that lives until `until` is cancelled, which shutdown should do too: make it a
    /// child of [`Self::stopping`]. Wait for its end with the handle.
    pub fn spawn_until<E: std::fmt::Display>(
        &self,
        name: &'static str,
        until: CancellationToken,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> JoinHandle<()> {
        let fault = self.fault.clone();
        self.tracker.spawn(async move {
            let message = match catch(task).await {
                Ok(Ok(())) if until.is_cancelled() => return,
                Ok(Ok(())) => "it ended before shutdown".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(panic) => format!("it panicked: {panic}"),
            };
            tracing::error!(task = name, error = %message, "a task failed");
            fault.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(Fault {
                    task: name,
                    message,
                });
                is_first
            });
        })
    }

    /// A task that may end by itself: a connection, a single request.
    pub fn spawn_short(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Fires when shutdown begins.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The first task that ended unexpectedly.
    pub async fn fault(&self) -> Fault {
        let mut faults = self.fault.subscribe();
        let fault = faults.wait_for(Option::is_some).await;
        fault
            .expect("the sender lives in self")
            .clone()
            .expect("waited for one")
    }

    /// Asks all tasks to stop.
    pub fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
    }

    /// Waits until all have ended; false when that takes longer than `budget`.
    pub async fn wait(&self, budget: Duration) -> bool {
        tokio::time::timeout(budget, self.tracker.wait())
            .await
            .is_ok()
    }

    /// Tasks running now.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs a task to its end, turning a panic into its message.
async fn catch<T>(task: impl Future<Output = T>) -> Result<T, String> {
    let mut task = std::pin::pin!(task);
    std::future::poll_fn(move |context| {
        let poll = std::panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        match poll {
            Ok(std::task::Poll::Ready(value)) => std::task::Poll::Ready(Ok(value)),
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Err(panic) => std::task::Poll::Ready(Err(panic_message(&*panic))),
        }
    })
    .await
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_early_is_a_fault_with_its_name() {
        let tasks = Tasks::new();
        tasks.spawn("ticker", async { Err("no clock") });
        let fault = tasks.fault().await;
        assert_eq!((fault.task, fault.message.as_str()), ("ticker", "no clock"));
    }

    #[tokio::test]
    async fn a_panic_is_a_fault_too() {
        let tasks = Tasks::new();
        tasks.spawn("jumper", async {
            if true {
                panic!("boom");
            }
            Ok::<_, String>(())
        });
        assert_eq!(tasks.fault().await.message, "it panicked: boom");
    }

    #[tokio::test]
    async fn a_task_of_a_role_may_end_with_it() {
        let tasks = Tasks::new();
        let role = tasks.stopping().child_token();
        let until = role.clone();
        let ended = tasks.spawn_until("role", role.clone(), async move {
            until.cancelled().await;
            Ok::<_, String>(())
        });
        role.cancel();
        ended.await.expect("ended");
        assert_eq!(*tasks.fault.borrow(), None);
    }

    #[tokio::test]
    async fn tasks_that_end_when_asked_are_no_fault() {
        let tasks = Tasks::new();
        let stopping = tasks.stopping();
        tasks.spawn("patient", async move {
            stopping.cancelled().await;
            Ok::<_, String>(())
        });
        tasks.stop();
        assert!(tasks.wait(Duration::from_secs(10)).await);
        assert_eq!(*tasks.fault.borrow(), None);
    }
}
