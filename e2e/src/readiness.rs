//! Watches what `/readyz` promises.
//!
//! For each node a sampler asks `/readyz` every 50 ms, and after each 200 runs the one read
//! that holds in every committed state ([`Condition`]) on that very node. A ready node whose
//! answer breaks it is a *false ready*, the one thing that must never happen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinHandle;

use crate::checker::Condition;
use crate::client::{Client, Outcome};
use crate::node::Node;

/// Pause between samples.
pub const PERIOD: Duration = Duration::from_millis(50);
/// How long a replica may take to find a difference after its start.
const FOUND_LIMIT: Duration = Duration::from_secs(20);
/// Watched on after it was found, for a 200 that comes late.
const WATCHED_ON: Duration = Duration::from_secs(2);
/// False readies described in full; the rest is counted.
const NAMED_MAX: usize = 10;

/// A running sampler of one node.
pub struct Sampler {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What a sampler saw.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Times `/readyz` was asked and answered.
    pub asked: u64,
    /// Times it answered 200.
    pub ready: u64,
    /// Times a read after a 200 was answered and the condition held.
    pub proven: u64,
    /// Times the read was not answered, since the node was killed or shut down in between.
    pub unanswered: u64,
    /// Times the condition did not hold.
    pub false_ready: u64,
    /// What was wrong.
    pub problems: Vec<String>,
    /// Times the answer changed between ready and not ready.
    pub changes: u64,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    asked: AtomicU64,
    ready: AtomicU64,
    proven: AtomicU64,
    unanswered: AtomicU64,
    false_ready: AtomicU64,
    changes: AtomicU64,
    problems: Mutex<Vec<String>>,
}

impl Sampler {
    /// Starts to watch a node, whether it runs or not.
    pub fn start(client: Client) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(sample(client, shared.clone()));
        Self { shared, task }
    }

    /// What was seen so far.
    pub fn so_far(&self) -> Samples {
        self.shared.samples()
    }

    /// Stops after the sample in progress.
    pub async fn stop(self) -> Samples {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.task.await.expect("a sampler does not panic");
        self.shared.samples()
    }
}

impl Shared {
    fn samples(&self) -> Samples {
        let load = |c: &AtomicU64| c.load(Ordering::SeqCst);
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        Samples {
            asked: load(&self.asked),
            ready: load(&self.ready),
            proven: load(&self.proven),
            unanswered: load(&self.unanswered),
            false_ready: load(&self.false_ready),
            changes: load(&self.changes),
            problems: problems.clone(),
        }
    }

    fn count(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::SeqCst);
    }

    fn note_false(&self, what: String) {
        self.count(&self.false_ready);
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if problems.len() < NAMED_MAX {
            problems.push(what);
        }
    }
}

/// Polls `/readyz` until the node says `diverged`, and a while longer. Fails on any 200.
pub async fn never_ready_while_diverging(node: &mut Node) -> Result<()> {
    let client = node.client();
    let deadline = Instant::now() + FOUND_LIMIT;
    let mut found_at = None;
    loop {
        ensure!(!client.is_ready().await, "ready with a difference");
        let verdict = client.health("/convergence").await;
        if found_at.is_none() && matches!(verdict, Ok((409, _))) {
            found_at = Some(Instant::now());
        }
        if found_at.is_some_and(|at| at.elapsed() > WATCHED_ON) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "never found: {verdict:?}\n{}",
            node.log_tail()
        );
        tokio::time::sleep(PERIOD).await;
    }
}

async fn sample(client: Client, shared: Arc<Shared>) {
    let started = Instant::now();
    let mut was_ready = false;
    while !shared.stopping.load(Ordering::SeqCst) {
        let next = tokio::time::Instant::now() + PERIOD;
        if let Ok((status, _)) = client.health("/readyz").await {
            shared.count(&shared.asked);
            let is_ready = status == 200;
            if is_ready != was_ready {
                shared.count(&shared.changes);
            }
            was_ready = is_ready;
            if is_ready {
                shared.count(&shared.ready);
                prove(&client, &shared, started).await;
            }
        }
        tokio::time::sleep_until(next).await;
    }
}

async fn prove(client: &Client, shared: &Shared, started: Instant) {
    match client.execute(Condition::SQL, &[]).await {
        Outcome::Acknowledged(rows) => match Condition::check(&rows) {
            Ok(()) => shared.count(&shared.proven),
            Err(why) => {
                let at = started.elapsed().as_millis();
                shared.note_false(format!("after {at} ms: {why}"));
            }
        },
        // Error answers of a node that said it was ready are as false as a wrong sum, unless
        // it is going down right now.
        Outcome::Failed(code, message) if !is_ending(&code) => {
            shared.note_false(format!("{code}: {message}"));
        }
        Outcome::Failed(..) | Outcome::Indeterminate(_) => shared.count(&shared.unanswered),
    }
}

fn is_ending(code: &str) -> bool {
    matches!(
        code,
        "" | "CONNECT" | "TIDEGATE_NOT_READY" | "TIDEGATE_OVERLOADED"
    )
}
