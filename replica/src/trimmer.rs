//! The task that keeps the log short.
//!
//! It wakes when the log grew, when a follower went on, or when an absence may have become too
//! long, and asks [`retention`](crate::retention) what to do. Work goes to the engine in chunks,
//! each between two groups of the writer (or two batches of the applier), so clients wait for
//! one chunk at most. An error is told and tried again later: a log that stays too long is a
//! nuisance, and the check `log_retention` shows it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidegate_engine::trim::TRIM_ROWS_DEFAULT;
use tidegate_engine::{Engine, Error as EngineError, Head, Role};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::followers::Followers;
use crate::retention::{Above, Decision, Limits, Log};
use crate::slots;

/// What comes at once is looked at together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Looked at this often although nothing happened: absences grow, and so does the floor that
/// the source tells.
const PERIOD: Duration = Duration::from_secs(5);
/// After an error.
const RETRY: Duration = Duration::from_secs(1);

/// See the module's head.
pub struct Trimmer {
    engine: watch::Receiver<Option<Arc<Engine>>>,
    followers: Arc<Followers>,
    limits: Limits,
    /// The engine whose slots were read. Not held: closing it waits for its holders.
    loaded: Weak<Engine>,
}

impl Trimmer {
    /// For the database that is open at the time, and those who follow this node.
    pub fn new(
        engine: watch::Receiver<Option<Arc<Engine>>>,
        followers: Arc<Followers>,
        limits: Limits,
    ) -> Self {
        Self {
            engine,
            followers,
            limits,
            loaded: Weak::new(),
        }
    }

    /// Trims until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.go_on() => {}
        }
    }

    async fn go_on(&mut self) {
        let mut register = self.followers.status();
        loop {
            let (head, pause) = match self.trim_all().await {
                Ok(head) => (head, TOGETHER),
                Err(error) => {
                    tell(&error);
                    (None, RETRY)
                }
            };
            tokio::time::sleep(pause).await;
            tokio::select! {
                _ = self.engine.changed() => {}
                _ = register.changed() => {}
                () = moved(head) => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }

    /// Does all that can be done at the moment. Gives the head that was looked at.
    pub async fn trim_all(&mut self) -> Result<Option<watch::Receiver<Head>>> {
        loop {
            let Some(engine) = self.engine.borrow_and_update().clone() else {
                return Ok(None);
            };
            if !std::ptr::eq(self.loaded.as_ptr(), Arc::as_ptr(&engine)) {
                self.loaded = Arc::downgrade(&engine);
                let (engine, followers) = (engine.clone(), self.followers.clone());
                blocking(move || slots::load(&engine, &followers)).await?;
            }
            let head = engine.head();
            let Some(log) = log_of(&engine) else {
                return Ok(Some(head));
            };
            let decision = self.followers.claim(log, &self.limits, Instant::now());
            if decision == Decision::default() {
                return Ok(Some(head));
            }
            let (followers, limits) = (self.followers.clone(), self.limits);
            blocking(move || carry_out(&engine, &followers, &decision, &limits)).await?;
        }
    }
}

/// Where the log is; `None` while nobody may trim.
fn log_of(engine: &Engine) -> Option<Log> {
    let source = match engine.role() {
        Role::Primary => Above::Nobody,
        Role::Replica => Above::Source(engine.source_floor()),
        Role::Starting | Role::Closed => return None,
    };
    let floor = *engine.floor().borrow();
    Some(Log {
        head: engine.head().borrow().seq,
        floor,
        claimed: floor,
        source,
    })
}

/// One round: what was decided about slots, and one chunk. What is left is decided anew.
fn carry_out(
    engine: &Engine,
    followers: &Arc<Followers>,
    decision: &Decision,
    limits: &Limits,
) -> Result<()> {
    for node in &decision.take_back {
        tracing::info!(%node, "its slot holds the log again");
        slots::save(engine, followers, node)?;
    }
    for (node, why) in &decision.give_up {
        if slots::give_up(engine, followers, node, limits)? {
            tracing::warn!(%node, why, "its slot is given up: it will need a snapshot");
        }
    }
    if let Some(up_to) = decision.up_to {
        let followers = followers.clone();
        let slots = move || followers.slots();
        let trimmed = engine.trim(up_to, TRIM_ROWS_DEFAULT, slots)?;
        tracing::debug!(floor = %trimmed.floor, rows = trimmed.rows, "the log was trimmed");
        if engine.role() == Role::Replica {
            engine.maintain(false);
        }
    }
    Ok(())
}

fn tell(error: &Error) {
    match error {
        // At the end of the process, while a snapshot takes the file's place, and while this
        // node may not lead: then its log is left as it is.
        Error::Engine(EngineError::Closed | EngineError::Fenced(_) | EngineError::ReadOnly(_)) => {}
        error => tracing::warn!(%error, "the log cannot be trimmed; trying again"),
    }
}

/// Waits until the head has moved. A head that is gone does not move: another engine follows.
async fn moved(head: Option<watch::Receiver<Head>>) {
    if let Some(mut head) = head
        && head.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(EngineError::Panicked(error.to_string()).into()))
}
