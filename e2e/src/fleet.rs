//! The nodes as a workload sees them, and the workers that send requests to them.
//!
//! A [`Fleet`] counts for each node how many requests are unanswered at this moment, so that
//! a node can be killed in the middle of many; and it notes every request with its fate, so
//! that a report can say what the kill did to them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Client, Outcome};
use crate::history::{Fate, History, Tally};
use crate::rng::Rng;
use crate::stream::Statement;

/// Pause of a worker whose node cannot be reached; a node that is down would else be dialled
/// thousands of times a second.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(20);

/// Several nodes of one cluster, the first one taking writes.
pub struct Fleet {
    targets: Vec<Target>,
    /// Index of the only node to be used, or [`NO_FOCUS`].
    focus: AtomicUsize,
    /// Whether writes go to every node, or to the first one only.
    writes_everywhere: AtomicBool,
    stopping: AtomicBool,
    sent: AtomicU64,
    statements: AtomicU64,
    requests: History<Request>,
    failures: Mutex<BTreeMap<String, (u64, String)>>,
    started: Instant,
}

/// One request to one node.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Index of the node.
    pub node: usize,
    /// Statements in it.
    pub statements: u64,
}

/// One client that does one thing after the other.
pub struct Worker {
    /// Its number, from 0.
    pub id: usize,
    /// Its choices.
    pub rng: Rng,
    fleet: Arc<Fleet>,
    issued: i64,
}

struct Target {
    client: Client,
    /// Requests without an answer yet: number and when they were sent.
    open: Mutex<BTreeMap<u64, Instant>>,
}

const NO_FOCUS: usize = usize::MAX;

impl Fleet {
    /// The nodes behind these clients, the primary first.
    pub fn new(clients: Vec<Client>) -> Arc<Self> {
        let started = Instant::now();
        let target = |client| Target {
            client,
            open: Mutex::default(),
        };
        Arc::new(Self {
            targets: clients.into_iter().map(target).collect(),
            focus: AtomicUsize::new(NO_FOCUS),
            writes_everywhere: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            statements: AtomicU64::new(0),
            requests: History::new(started),
            failures: Mutex::default(),
            started,
        })
    }

    /// When times in its histories are 0.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Sends all requests to one node from now on, or to all nodes again.
    pub fn focus(&self, node: Option<usize>) {
        self.focus.store(node.unwrap_or(NO_FOCUS), Ordering::SeqCst);
    }

    /// Sends writes to the first node only.
    pub fn write_to_the_first_only(&self) {
        self.writes_everywhere.store(false, Ordering::SeqCst);
    }

    /// True while all requests go to a node that takes no writes.
    pub fn only_reads(&self) -> bool {
        let focus = self.focus.load(Ordering::SeqCst);
        let elsewhere = focus != NO_FOCUS && focus != 0;
        elsewhere && !self.writes_everywhere.load(Ordering::SeqCst)
    }

    /// Requests that this node has not answered yet.
    pub fn in_flight(&self, node: usize) -> usize {
        self.targets[node].open().len()
    }

    /// Requests sent to this node before `moment` that it has not answered yet.
    pub fn unanswered_since(&self, node: usize, moment: Instant) -> usize {
        let open = self.targets[node].open();
        open.values().filter(|&&sent| sent <= moment).count()
    }

    /// Statements sent so far.
    pub fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Asks workers to stop after what they are doing.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// True when workers have been asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The fates of the requests to `node` that were on their way at `moment`; those that are
    /// on their way still are not among them.
    pub fn fates_at(&self, node: usize, moment: Instant) -> Tally {
        let moment = moment.duration_since(self.started);
        let mut tally = Tally::default();
        for record in self.requests.records() {
            if record.op.node == node && record.started <= moment && record.ended >= moment {
                tally.count(record.fate);
            }
        }
        tally
    }

    /// All requests by fate.
    pub fn tally(&self) -> Tally {
        self.requests.tally()
    }

    /// Error codes seen, how often, and one message for each.
    pub fn failures(&self) -> BTreeMap<String, (u64, String)> {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note_failure(&self, outcome: &Outcome) {
        let (code, message) = match outcome {
            Outcome::Acknowledged(_) => return,
            Outcome::Failed(code, message) => (code.as_str(), message),
            Outcome::Indeterminate(message) => ("(indeterminate)", message),
        };
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = failures
            .entry(code.to_owned())
            .or_insert_with(|| (0, message.clone()));
        entry.0 += 1;
    }

    fn pick(&self, rng: &mut Rng, write: bool) -> usize {
        let focus = self.focus.load(Ordering::SeqCst);
        if write && !self.writes_everywhere.load(Ordering::SeqCst) {
            return 0;
        }
        if focus != NO_FOCUS {
            return focus;
        }
        usize::try_from(rng.below(self.targets.len() as u64)).expect("a small number")
    }
}

impl Target {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// A worker of this fleet with choices of its own.
    pub fn new(fleet: Arc<Fleet>, id: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let own = rng
            .next_u64()
            .wrapping_add(id as u64 * 0x5851_f42d_4c95_7f2d);
        Self {
            id,
            rng: Rng::new(own),
            fleet,
            issued: 0,
        }
    }

    /// A number that no other worker has.
    pub fn fresh_id(&mut self) -> i64 {
        self.issued += 1;
        let id = i64::try_from(self.id).expect("a small number");
        (id + 1) * 1_000_000_000 + self.issued
    }

    /// Its number as SQL has it.
    pub fn owner(&self) -> i64 {
        i64::try_from(self.id).expect("a small number")
    }

    /// True while it can only read.
    pub fn only_reads(&self) -> bool {
        self.fleet.only_reads()
    }

    /// Runs one read in autocommit.
    pub async fn read(&mut self, sql: &str, args: &[Value]) -> Outcome {
        let node = self.fleet.pick(&mut self.rng, false);
        let client = self.fleet.targets[node].client.clone();
        self.request(node, 1, client.execute(sql, args)).await
    }

    /// Runs one write in autocommit.
    pub async fn write(&mut self, sql: &str, args: &[Value]) -> Outcome {
        let node = self.fleet.pick(&mut self.rng, true);
        let client = self.fleet.targets[node].client.clone();
        self.request(node, 1, client.execute(sql, args)).await
    }

    /// Runs statements as one transaction in one request.
    pub async fn transaction(&mut self, statements: &[Statement]) -> Outcome {
        let node = self.fleet.pick(&mut self.rng, true);
        let client = self.fleet.targets[node].client.clone();
        let count = statements.len() as u64 + 2;
        self.request(node, count, client.transaction(statements))
            .await
    }

    /// Runs statements as one transaction, one request for each. With `abandon` it ends with
    /// ROLLBACK instead of COMMIT.
    pub async fn interactive(&mut self, statements: &[Statement], abandon: bool) -> Outcome {
        let node = self.fleet.pick(&mut self.rng, true);
        let mut stream = self.fleet.targets[node].client.stream();
        let begin = ("BEGIN IMMEDIATE".to_owned(), Vec::new());
        for (sql, args) in std::iter::once(&begin).chain(statements) {
            let outcome = self.request(node, 1, stream.execute(sql, args)).await;
            if !outcome.is_acknowledged() {
                stream.close().await;
                // COMMIT was never sent, so the transaction certainly did not happen.
                return Outcome::Failed("ABANDONED".into(), format!("{sql}: {outcome:?}"));
            }
        }
        let last = if abandon { "ROLLBACK" } else { "COMMIT" };
        let outcome = self.request(node, 1, stream.execute(last, &[])).await;
        stream.close().await;
        if abandon {
            return Outcome::Failed("ABANDONED".into(), "rolled back on purpose".into());
        }
        outcome
    }

    async fn request(
        &self,
        node: usize,
        statements: u64,
        answer: impl Future<Output = Outcome>,
    ) -> Outcome {
        let started = Instant::now();
        let target = &self.fleet.targets[node];
        let number = self.fleet.sent.fetch_add(1, Ordering::Relaxed);
        target.open().insert(number, started);
        let outcome = answer.await;
        target.open().remove(&number);
        let request = Request { node, statements };
        self.fleet
            .requests
            .note(request, Fate::from(&outcome), started);
        self.fleet.note_failure(&outcome);
        if matches!(&outcome, Outcome::Failed(code, _) if code == "CONNECT") {
            tokio::time::sleep(UNREACHABLE_PAUSE).await;
        } else {
            self.fleet
                .statements
                .fetch_add(statements, Ordering::Relaxed);
        }
        outcome
    }
}
