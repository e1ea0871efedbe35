//! The pool of threads for interactive transactions, and the register of those open.
//!
//! A transaction has a thread and a connection of its own, because the client decides when
//! its next statement comes. Threads are started when they are needed, reused with their
//! connections, bounded in number, and end when idle. What a session holds is the sending
//! end of a channel; the register holds another, through which a checkpoint or the shutdown
//! of the node can ask a transaction to go. What a thread does with its transaction is in
//! `transaction`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::adapter::{Connection, Description};
use crate::cancel::{Cancel, Reason};
use crate::error::{Error, Result};
use crate::queue::{Popped, Queue};
use crate::result::Params;
use crate::shared::{Role, STACK_BYTES, Shared};
use crate::statement::Reply;
use crate::statement_gate::{Inspected, SessionValues};
use crate::transaction_thread;

/// A thread of the pool without work ends after this time, and its memory with it.
const THREAD_IDLE_MAX: Duration = Duration::from_secs(60);
/// One request of a session to its transaction.
pub(crate) enum Step {
    /// Run a statement.
    Run(RunStep),
    /// Describe a statement under the transaction's schema.
    Describe {
        sql: String,
        respond: oneshot::Sender<Result<(Description, Arc<Inspected>)>>,
    },
    /// The session is gone, or the node closes: roll back.
    Close,
    /// The snapshot stands in the way of a checkpoint: roll back.
    Evict,
}

/// A statement for a transaction, not yet inspected: its schema may differ from everybody's.
pub(crate) struct RunStep {
    pub(crate) sql: String,
    pub(crate) params: Params,
    pub(crate) want_rows: bool,
    pub(crate) values: SessionValues,
    pub(crate) cancel: Arc<Cancel>,
    pub(crate) respond: oneshot::Sender<StepReply>,
}

/// The answer to a statement.
pub(crate) struct StepReply {
    pub(crate) outcome: Result<Reply>,
    /// False when the transaction has ended.
    pub(crate) open: bool,
}

/// A session's end of its transaction. Dropping it rolls back.
pub(crate) struct OpenTransaction {
    steps: mpsc::Sender<Step>,
    /// Why the thread ended it on its own, if it did.
    ended: Arc<Mutex<Option<Error>>>,
}

/// The pool of threads, and all transactions that are open.
pub(crate) struct Transactions {
    starting: Queue<Start>,
    open: Mutex<HashMap<u64, Open>>,
    idle_threads: AtomicU64,
    next_id: AtomicU64,
    threads: Mutex<usize>,
    thread_ended: Condvar,
    max: usize,
}

/// What others must know of an open transaction to end it.
struct Open {
    steps: mpsc::Sender<Step>,
    /// The statement that is running.
    running: Option<Arc<Cancel>>,
    /// True while it holds a snapshot without the permit.
    holds_snapshot: bool,
}

/// A transaction on its way to a thread.
pub(crate) struct Start {
    /// Its number in the register.
    pub(crate) id: u64,
    /// Whether its session enforces foreign keys.
    pub(crate) foreign_keys: bool,
    /// What the session asks for.
    pub(crate) steps: mpsc::Receiver<Step>,
    ended: Arc<Mutex<Option<Error>>>,
}

impl Start {
    /// Leaves word why the transaction ended without having been asked to.
    pub(crate) fn note_end(&self, error: Error) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert(error);
    }
}

impl Open {
    fn end(&self, step: Step, reason: Reason) {
        self.steps.send(step).ok();
        if let Some(running) = &self.running {
            running.cancel(reason);
        }
    }
}

impl OpenTransaction {
    /// Opens one. The first step must be a BEGIN or a SAVEPOINT.
    pub(crate) fn open(shared: &Arc<Shared>, foreign_keys: bool) -> Result<Self> {
        let (steps, received) = mpsc::channel();
        let ended = Arc::new(Mutex::new(None));
        let id = shared.transactions.register(shared, &steps)?;
        let start = Start {
            id,
            foreign_keys,
            steps: received,
            ended: ended.clone(),
        };
        shared.transactions.start(shared, start)?;
        Ok(Self { steps, ended })
    }

    /// Sends a step. When the thread has ended the transaction, tells why.
    pub(crate) fn send(&self, step: Step) -> Result<()> {
        self.steps.send(step).map_err(|_| self.why_ended())
    }

    /// Why the transaction is no longer there.
    pub(crate) fn why_ended(&self) -> Error {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.clone().unwrap_or_else(|| Error::TransactionGone {
            code: "SQLITE_ABORT",
            message: "the transaction has ended".into(),
        })
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        self.steps.send(Step::Close).ok();
    }
}

impl Transactions {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            starting: Queue::new(max.max(1), usize::MAX),
            open: Mutex::new(HashMap::new()),
            idle_threads: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            threads: Mutex::new(0),
            thread_ended: Condvar::new(),
            max: max.max(1),
        }
    }

    /// Transactions that are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Rolls back every transaction that holds a snapshot without the permit.
    pub(crate) fn evict_snapshots(&self) {
        for open in self.lock().values().filter(|open| open.holds_snapshot) {
            open.end(Step::Evict, Reason::Checkpoint);
        }
    }

    /// Rolls back all and starts no more.
    pub(crate) fn close(&self) {
        self.starting.finish();
        for open in self.lock().values() {
            open.end(Step::Close, Reason::Closing);
        }
    }

    /// Waits until every thread of the pool has ended, after [`Self::close`].
    pub(crate) fn wait_for_threads(&self) {
        let mut threads = self.lock_threads();
        while *threads > 0 {
            let waited = self.thread_ended.wait(threads);
            threads = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock_threads(&self) -> MutexGuard<'_, usize> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, shared: &Shared, steps: &mpsc::Sender<Step>) -> Result<u64> {
        let mut open = self.lock();
        if open.len() >= self.max {
            drop(open);
            return Err(shared.overloaded(
                "transactions",
                "too many transactions are open; try again in a moment",
            ));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let entry = Open {
            steps: steps.clone(),
            running: None,
            holds_snapshot: false,
        };
        open.insert(id, entry);
        Ok(id)
    }

    fn start(&self, shared: &Arc<Shared>, start: Start) -> Result<()> {
        let id = start.id;
        let thread_is_free = take_one(&self.idle_threads);
        let pushed = self.starting.push(start, 0).map_err(|_| Error::Closed);
        let started = pushed.and_then(|()| {
            if thread_is_free {
                Ok(())
            } else {
                spawn_thread(shared.clone())
            }
        });
        if started.is_err() {
            self.forget(id);
        }
        started
    }

    /// Notes what a transaction is running.
    pub(crate) fn set_running(&self, id: u64, running: Option<Arc<Cancel>>) {
        if let Some(open) = self.lock().get_mut(&id) {
            open.running = running;
        }
    }

    /// Notes whether a transaction holds a snapshot without the permit.
    pub(crate) fn set_holds_snapshot(&self, id: u64, holds: bool) {
        if let Some(open) = self.lock().get_mut(&id) {
            open.holds_snapshot = holds;
        }
    }

    /// Strikes a transaction that has ended off the register.
    pub(crate) fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one from a counter that is above zero.
fn take_one(counter: &AtomicU64) -> bool {
    let take = |n: u64| n.checked_sub(1);
    counter
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
        .is_ok()
}

fn spawn_thread(shared: Arc<Shared>) -> Result<()> {
    let alive = Alive::new(shared.clone());
    thread::Builder::new()
        .name("transaction".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            Worker::new(shared).work();
            drop(alive);
        })
        .map_err(|error| Error::Overloaded(format!("no thread for a transaction: {error}")))?;
    Ok(())
}

/// Counts a thread of the pool for as long as it lives, even if it panics.
struct Alive(Arc<Shared>);

impl Alive {
    fn new(shared: Arc<Shared>) -> Self {
        *shared.transactions.lock_threads() += 1;
        Self(shared)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let transactions = &self.0.transactions;
        *transactions.lock_threads() -= 1;
        transactions.thread_ended.notify_all();
    }
}

/// A thread of the pool with its connections: capturing with foreign keys off and on, and
/// one that only reads, for a node that takes no writes.
struct Worker {
    shared: Arc<Shared>,
    connections: [Option<Connection>; 3],
}

const READ_ONLY_CONNECTION: usize = 2;

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            connections: [None, None, None],
        }
    }

    fn work(&mut self) {
        loop {
            match self.shared.transactions.starting.pop(THREAD_IDLE_MAX) {
                Popped::Entry(start) => self.run(start),
                // Counted idle threads are owed a transaction, so one leaves only if it can
                // take itself out of the count.
                Popped::TimedOut if !take_one(&self.shared.transactions.idle_threads) => continue,
                Popped::TimedOut | Popped::Closed => break,
            }
            let idle = &self.shared.transactions.idle_threads;
            idle.fetch_add(1, Ordering::AcqRel);
        }
        for connection in self.connections.iter_mut().filter_map(Option::take) {
            self.shared.retire(connection);
        }
    }

    fn run(&mut self, start: Start) {
        let kind = match self.shared.role() {
            Role::Primary => usize::from(start.foreign_keys),
            _ => READ_ONLY_CONNECTION,
        };
        match self.connection(kind) {
            Ok(connection) => {
                let connection = transaction_thread::serve(&self.shared, connection, &start);
                self.put_back(kind, connection);
            }
            Err(error) => start.note_end(error),
        }
        self.shared.transactions.forget(start.id);
    }

    fn connection(&mut self, kind: usize) -> Result<Connection> {
        match self.connections[kind].take() {
            Some(connection) => Ok(connection),
            None if kind == READ_ONLY_CONNECTION => self.shared.store.reader(),
            None => self.shared.store.capturing(kind == 1),
        }
    }

    fn put_back(&mut self, kind: usize, connection: Connection) {
        if connection.is_broken() || !connection.is_autocommit() {
            self.shared.retire(connection);
        } else {
            self.connections[kind] = Some(connection);
        }
    }
}
