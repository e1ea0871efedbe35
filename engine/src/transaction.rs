//! Interactive transactions: BEGIN now, statements one by one, COMMIT when the client says so.
//!
//! Each has a thread and a connection of its own, from a bounded pool. The thread owns the
//! transaction: it waits for the next statement no longer than the limits allow, and whatever
//! ends the wait (a limit, a session that is gone, a checkpoint that must not wait) rolls
//! back at once.
//!
//! The write permit is taken at BEGIN IMMEDIATE, otherwise at the first write, and kept until
//! the transaction ends; ROLLBACK TO does not give it back, COMMIT never waits for it. A
//! transaction that reads before it writes holds a pass of the read gate from its first read,
//! because its snapshot keeps the log from being checkpointed.
//!
//! A plain BEGIN that has read nothing when it first writes is begun again as an immediate
//! one: nobody can tell. If it has read, and somebody has committed since, the engine refuses
//! the write, and the client is told that its snapshot is stale.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::adapter::{Connection, Description};
use crate::cancel::Cancel;
use crate::commit::{self, CommitFailure};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::gate::Pass;
use crate::logged::Ledger;
use crate::queue::{Popped, Queue};
use crate::result::{Params, ResultSet};
use crate::shared::{Role, STACK_BYTES, Shared};
use crate::statement::{self, Reply, RunLimits, Statement};
use crate::statement_gate::{self, BeginKind, Inspected, Kind, SessionValues};
use crate::stats::Family;
use crate::write;
use crate::writer::{LendJob, Permit, WriterJob};

/// A thread of the pool without work ends after this time, and its memory with it.
const THREAD_IDLE_MAX: Duration = Duration::from_secs(60);
/// While it waits for the permit, a transaction looks this often whether its client is there.
const PERMIT_POLL: Duration = Duration::from_millis(20);

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

/// What others may do to an open transaction.
struct Open {
    steps: mpsc::Sender<Step>,
    /// What is running, while a snapshot is held without the permit.
    snapshot: Option<Option<Arc<Cancel>>>,
}

/// A transaction on its way to a thread.
struct Start {
    id: u64,
    foreign_keys: bool,
    steps: mpsc::Receiver<Step>,
    ended: Arc<Mutex<Option<Error>>>,
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
        for open in self.lock().values() {
            if let Some(running) = &open.snapshot {
                open.steps.send(Step::Evict).ok();
                if let Some(cancel) = running {
                    cancel.cancel(crate::cancel::Reason::Checkpoint);
                }
            }
        }
    }

    /// Rolls back all and starts no more.
    pub(crate) fn close(&self) {
        self.starting.finish();
        for open in self.lock().values() {
            open.steps.send(Step::Close).ok();
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
            snapshot: None,
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
            self.lock().remove(&id);
        }
        started
    }

    fn set_snapshot(&self, id: u64, snapshot: Option<Option<Arc<Cancel>>>) {
        if let Some(open) = self.lock().get_mut(&id) {
            open.snapshot = snapshot;
        }
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
                let mut transaction = Transaction::new(&self.shared, connection, &start);
                transaction.serve(&start);
                self.put_back(kind, transaction.into_connection());
            }
            Err(error) => end(&start, error),
        }
        self.shared.transactions.lock().remove(&start.id);
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

fn end(start: &Start, error: Error) {
    let mut ended = start.ended.lock().unwrap_or_else(PoisonError::into_inner);
    ended.get_or_insert(error);
}

/// One open transaction on its thread.
struct Transaction<'a> {
    shared: &'a Arc<Shared>,
    connection: Connection,
    id: u64,
    began: Instant,
    facts: Arc<Facts>,
    state: State,
}

/// What an open transaction holds.
#[derive(Default)]
struct State {
    read_only: bool,
    /// True while nothing was read or written since BEGIN.
    untouched: bool,
    /// The outermost savepoint opened the transaction, so its RELEASE commits.
    opened_by_savepoint: bool,
    savepoints: Vec<String>,
    writing: Option<Writing>,
    pass: Option<Pass>,
    changed_schema: bool,
}

/// The permit and what is owed to the log.
struct Writing {
    ledger: Ledger,
    _permit: Permit,
}

impl<'a> Transaction<'a> {
    fn new(shared: &'a Arc<Shared>, connection: Connection, start: &Start) -> Self {
        Self {
            shared,
            connection,
            id: start.id,
            began: Instant::now(),
            facts: shared.facts.get(),
            state: State::default(),
        }
    }

    /// Serves steps until the transaction has ended.
    fn serve(&mut self, start: &Start) {
        loop {
            let wait = self.wait_limit();
            let step = match start.steps.recv_timeout(wait) {
                Ok(step) => step,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let error = self.timed_out();
                    return self.give_up(start, error);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => Step::Close,
            };
            match step {
                Step::Run(step) => {
                    if !self.answer(start, step) {
                        return;
                    }
                }
                Step::Describe { sql, respond } => drop(respond.send(self.describe(&sql))),
                Step::Close => return self.give_up(start, Error::Closed),
                // The permit was taken since: no snapshot stands in the way any more.
                Step::Evict if self.state.writing.is_some() => {}
                Step::Evict => {
                    let count = |word| self.shared.counters.count(Family::TransactionEnded, word);
                    count("checkpoint");
                    let error = Error::TransactionTimeout(
                        "its snapshot kept the write-ahead log from being emptied; begin again"
                            .into(),
                    );
                    return self.give_up(start, error);
                }
            }
        }
    }

    /// Runs a step and answers it. False when the transaction has ended.
    fn answer(&mut self, start: &Start, step: RunStep) -> bool {
        let mut outcome = self.run(&step);
        let mut open = !self.connection.is_broken() && !self.connection.is_autocommit();
        if self.began.elapsed() > self.shared.options.transaction_time_max && open {
            let error = self.timed_out();
            self.roll_back();
            outcome = Err(error);
            open = false;
        }
        if !open {
            self.release();
        }
        // The permit is back and the registry is right before the client hears of it.
        if !open {
            self.shared.transactions.lock().remove(&start.id);
        }
        step.respond.send(StepReply { outcome, open }).ok();
        open
    }

    fn run(&mut self, step: &RunStep) -> Result<Reply> {
        let statement = self.inspect(step)?;
        let quiet = |result| Reply {
            result,
            values: step.values,
        };
        match &statement.inspected.kind {
            Kind::Empty => Ok(quiet(ResultSet::default())),
            Kind::Begin(kind) => self.begin(*kind, &step.cancel).map(quiet),
            Kind::Savepoint(name) => self.savepoint(name).map(quiet),
            Kind::Release(name) => self.release_savepoint(name).map(quiet),
            Kind::RollbackTo(name) => self.rollback_to(name).map(quiet),
            Kind::Commit => self.commit().map(quiet),
            Kind::Rollback => self.rollback().map(quiet),
            Kind::Read => self.read(&statement).map(quiet),
            // A no-op inside a transaction, as in SQLite; the session answers the question.
            Kind::ForeignKeys(_) => Ok(quiet(ResultSet::default())),
            Kind::Write(_) | Kind::Ddl(_) | Kind::HeaderPragma { .. } => {
                self.write(&statement, &step.cancel)
            }
        }
    }

    fn inspect(&mut self, step: &RunStep) -> Result<Statement> {
        if !self.connection.is_autocommit() && !self.facts.are_of(&mut self.connection)? {
            self.facts = Arc::new(Facts::read(&mut self.connection)?);
        }
        let limits = &self.shared.options.limits;
        let inspected = self.facts.inspect(&step.sql, limits).inspect_err(|error| {
            if let Error::Refused { reason, .. } = error {
                self.shared.counters.count(Family::Refused, reason);
            }
        })?;
        let rewritten = inspected
            .uses_session_values
            .then(|| statement_gate::bind_session_values(&inspected.sql, &step.values))
            .transpose()?;
        Ok(Statement {
            inspected,
            rewritten,
            params: step.params.clone(),
            want_rows: step.want_rows,
            values: step.values,
            cancel: step.cancel.clone(),
        })
    }

    fn describe(&mut self, sql: &str) -> Result<(Description, Arc<Inspected>)> {
        let inspected = self.facts.inspect(sql, &self.shared.options.limits)?;
        let description = self.connection.describe(&inspected.sql)?;
        Ok((description, inspected))
    }

    fn begin(&mut self, kind: BeginKind, cancel: &Cancel) -> Result<ResultSet> {
        if !self.connection.is_autocommit() {
            return Err(sql_error("cannot start a transaction within a transaction"));
        }
        self.state = State {
            read_only: kind == BeginKind::ReadOnly,
            untouched: true,
            ..State::default()
        };
        match kind {
            BeginKind::Immediate => self.begin_immediate(cancel)?,
            BeginKind::Deferred | BeginKind::ReadOnly => {
                self.connection.execute("BEGIN", &[])?;
            }
        }
        Ok(ResultSet::default())
    }

    fn begin_immediate(&mut self, cancel: &Cancel) -> Result<()> {
        let permit = self.take_permit(cancel)?;
        self.connection.execute("BEGIN IMMEDIATE", &[])?;
        let ledger = Ledger::begin(&mut self.connection)?;
        self.state.untouched = false;
        self.state.writing = Some(Writing {
            ledger,
            _permit: permit,
        });
        Ok(())
    }

    /// Waits for the writer to lend the permit.
    fn take_permit(&self, cancel: &Cancel) -> Result<Permit> {
        let (respond, lent) = mpsc::sync_channel(1);
        let job = LendJob {
            queued: Instant::now(),
            respond,
        };
        self.shared.push_write(WriterJob::Lend(job), 0)?;
        loop {
            match lent.recv_timeout(PERMIT_POLL) {
                Ok(permit) => return permit,
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Error::Closed),
                Err(mpsc::RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                    return Err(Error::Interrupted);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn savepoint(&mut self, name: &str) -> Result<ResultSet> {
        if self.connection.is_autocommit() {
            self.connection.execute("BEGIN", &[])?;
            self.state = State {
                untouched: true,
                opened_by_savepoint: true,
                ..State::default()
            };
        }
        self.connection.execute(&savepoint_sql(name), &[])?;
        self.state.savepoints.push(name.to_owned());
        Ok(ResultSet::default())
    }

    fn release_savepoint(&mut self, name: &str) -> Result<ResultSet> {
        let at = self.find_savepoint(name)?;
        if at == 0 && self.state.opened_by_savepoint {
            return self.commit();
        }
        let sql = format!("RELEASE {}", crate::names::quote(name));
        self.connection.execute(&sql, &[])?;
        self.state.savepoints.truncate(at);
        Ok(ResultSet::default())
    }

    fn rollback_to(&mut self, name: &str) -> Result<ResultSet> {
        let at = self.find_savepoint(name)?;
        let sql = format!("ROLLBACK TO {}", crate::names::quote(name));
        self.connection.execute(&sql, &[])?;
        self.state.savepoints.truncate(at + 1);
        if let Some(writing) = &mut self.state.writing {
            writing.ledger.undone(&mut self.connection)?;
        }
        Ok(ResultSet::default())
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        let mut open = self.state.savepoints.iter();
        open.rposition(|open| crate::names::same(open, name))
            .ok_or_else(|| sql_error(&format!("no such savepoint: {name}")))
    }

    fn read(&mut self, statement: &Statement) -> Result<ResultSet> {
        if self.state.writing.is_none() && self.state.pass.is_none() {
            self.state.pass = Some(self.shared.store.gate().enter());
        }
        self.state.untouched = false;
        let watch_snapshot = self.state.writing.is_none();
        if watch_snapshot {
            let running = Some(Some(statement.cancel.clone()));
            self.shared.transactions.set_snapshot(self.id, running);
        }
        let limits = self.limits();
        let outcome = statement::run(&mut self.connection, statement, limits);
        if watch_snapshot {
            self.shared.transactions.set_snapshot(self.id, Some(None));
        }
        outcome.map_err(|error| self.explain(error))
    }

    fn write(&mut self, statement: &Statement, cancel: &Cancel) -> Result<Reply> {
        if self.state.read_only {
            return Err(Error::Sql {
                code: "SQLITE_READONLY",
                message: "this transaction was begun READONLY".into(),
            });
        }
        if self.state.writing.is_none() {
            self.start_writing(cancel)?;
        }
        // RETURNING that is cut short, and a schema statement that fails half-way, must
        // leave nothing behind: that is not left to the engine's own undo.
        let guarded = match &statement.inspected.kind {
            Kind::Write(info) => info.returning,
            _ => true,
        };
        self.state.changed_schema |= matches!(statement.inspected.kind, Kind::Ddl(_));
        let outcome = if guarded {
            self.write_guarded(statement)
        } else {
            self.write_plain(statement)
        };
        if matches!(outcome, Err(Error::StaleSnapshot)) {
            // The transaction may go on reading; others may write.
            self.state.writing = None;
        }
        outcome.map_err(|error| self.explain(error))
    }

    fn write_plain(&mut self, statement: &Statement) -> Result<Reply> {
        let limits = self.limits();
        let writing = self.state.writing.as_mut().ok_or(Error::Closed)?;
        write::run(&mut self.connection, &mut writing.ledger, statement, limits)
    }

    fn write_guarded(&mut self, statement: &Statement) -> Result<Reply> {
        const NAME: &str = "\"_tidegate_guard\"";
        self.connection.execute(&format!("SAVEPOINT {NAME}"), &[])?;
        let outcome = self.write_plain(statement);
        let standing = !self.connection.is_broken() && !self.connection.is_autocommit();
        let kept = match &outcome {
            Ok(_) => true,
            Err(Error::Sql { code, .. }) => code.starts_with("SQLITE_CONSTRAINT"),
            Err(_) => false,
        };
        if standing {
            if !kept {
                self.connection
                    .execute(&format!("ROLLBACK TO {NAME}"), &[])?;
            }
            self.connection.execute(&format!("RELEASE {NAME}"), &[])?;
        }
        outcome
    }

    /// Takes the permit for the first write. A transaction that has read nothing yet is begun
    /// again, with its savepoints, so that its snapshot is the newest.
    fn start_writing(&mut self, cancel: &Cancel) -> Result<()> {
        if self.state.untouched {
            let permit = self.take_permit(cancel)?;
            self.connection.execute("ROLLBACK", &[])?;
            self.connection.execute("BEGIN IMMEDIATE", &[])?;
            for name in &self.state.savepoints {
                self.connection.execute(&savepoint_sql(name), &[])?;
            }
            return self.note_writing(permit);
        }
        let permit = self.take_permit(cancel)?;
        self.note_writing(permit)
    }

    fn note_writing(&mut self, permit: Permit) -> Result<()> {
        let ledger = Ledger::begin(&mut self.connection)?;
        self.state.untouched = false;
        self.state.writing = Some(Writing {
            ledger,
            _permit: permit,
        });
        Ok(())
    }

    fn commit(&mut self) -> Result<ResultSet> {
        let mut result = ResultSet::default();
        let Some(writing) = self.state.writing.take() else {
            self.connection.execute("COMMIT", &[])?;
            result.position = Some(self.shared.head.borrow().seq);
            return Ok(result);
        };
        let kept = writing.ledger.clone();
        match commit::commit(&mut self.connection, writing.ledger, self.shared) {
            Ok(position) => {
                result.position = Some(position);
                if self.state.changed_schema {
                    self.shared.facts.refresh(&mut self.connection)?;
                }
                Ok(result)
            }
            Err(CommitFailure::ForeignKey(error)) => {
                // Still open, as in SQLite: the client may mend it, or roll back.
                self.state.writing = Some(Writing {
                    ledger: kept,
                    _permit: writing._permit,
                });
                Err(error)
            }
            Err(failure) => {
                self.roll_back();
                Err(failure.into_error())
            }
        }
    }

    fn rollback(&mut self) -> Result<ResultSet> {
        self.roll_back();
        Ok(ResultSet::default())
    }

    fn roll_back(&mut self) {
        if self.connection.is_broken() || self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.connection.execute("ROLLBACK", &[]) {
            tracing::error!(%error, "ROLLBACK failed; the connection is dropped");
        }
    }

    /// Rolls back without having been asked to, and leaves word why.
    fn give_up(&mut self, start: &Start, error: Error) {
        self.roll_back();
        self.release();
        end(start, error);
    }

    /// Gives back the permit and the pass. Only after the engine's transaction has ended.
    fn release(&mut self) {
        self.shared.transactions.set_snapshot(self.id, None);
        self.state = State::default();
    }

    /// An error that took the transaction with it says so.
    fn explain(&self, error: Error) -> Error {
        if !self.connection.is_autocommit() || self.connection.is_broken() {
            return error;
        }
        Error::TransactionGone {
            code: error.code(),
            message: error.to_string(),
        }
    }

    fn limits(&self) -> RunLimits {
        RunLimits {
            time_max: self.shared.statement_time(self.time_left()),
            result_bytes_max: self.shared.options.result_bytes_max,
        }
    }

    fn time_left(&self) -> Duration {
        let all = self.shared.options.transaction_time_max;
        all.saturating_sub(self.began.elapsed())
    }

    fn wait_limit(&self) -> Duration {
        self.idle_limit().min(self.time_left())
    }

    fn idle_limit(&self) -> Duration {
        match self.state.writing {
            Some(_) => self.shared.options.transaction_permit_idle_max,
            None => self.shared.options.transaction_idle_max,
        }
    }

    fn timed_out(&self) -> Error {
        let options = &self.shared.options;
        let (word, message) = if self.time_left().is_zero() {
            let limit = options.transaction_time_max;
            ("total", format!("it was open for longer than {limit:?}"))
        } else if self.state.writing.is_some() {
            let limit = options.transaction_permit_idle_max;
            let message = format!("it was idle for {limit:?} while holding up all other writers");
            ("permit_idle", message)
        } else {
            let limit = options.transaction_idle_max;
            ("idle", format!("it was idle for longer than {limit:?}"))
        };
        self.shared.counters.count(Family::TransactionEnded, word);
        Error::TransactionTimeout(message)
    }

    fn into_connection(self) -> Connection {
        self.connection
    }
}

fn savepoint_sql(name: &str) -> String {
    format!("SAVEPOINT {}", crate::names::quote(name))
}

fn sql_error(message: &str) -> Error {
    Error::Sql {
        code: "SQLITE_ERROR",
        message: message.to_owned(),
    }
}
