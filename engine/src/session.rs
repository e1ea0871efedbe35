//! A client's session: statements in, results out.
//!
//! A session decides for each statement who runs it: a reader thread, the writer, or the
//! thread of its own open transaction. It carries what belongs to the client across shared
//! connections: whether foreign keys are enforced, and what `last_insert_rowid()`,
//! `changes()` and `total_changes()` answer. Dropping it rolls an open transaction back.
//!
//! Methods are `async` and only wait; SQL never runs on the caller's thread. Dropping the
//! future of a statement that is still running stops it.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::adapter::Description;
use crate::cancel::{Cancel, CancelOnDrop};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::queue::Refused;
use crate::reader::ReadJob;
use crate::result::{Described, Params, ResultSet};
use crate::shared::Shared;
use crate::statement::{Reply, Statement};
use crate::statement_gate::{self, BeginKind, Inspected, Kind, SessionValues};
use crate::stats::{Asked, Family};
use crate::transactions::{OpenTransaction, RunStep, Step};
use crate::writer::{WriteJob, WriterJob};

/// See the module's head.
pub struct Session {
    engine: Arc<Engine>,
    foreign_keys: bool,
    begin_immediate: bool,
    values: SessionValues,
    transaction: Option<OpenTransaction>,
}

/// What belongs to a client, whichever node runs its statements. A session that goes on
/// elsewhere takes it along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionState {
    /// Foreign keys are enforced.
    pub foreign_keys: bool,
    /// A plain BEGIN takes the write permit at once.
    pub begin_immediate: bool,
    /// What the session functions answer.
    pub values: SessionValues,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            foreign_keys: engine.shared().options.foreign_keys,
            begin_immediate: false,
            engine,
            values: SessionValues::default(),
            transaction: None,
        }
    }

    /// Runs one statement. Without `want_rows` rows are counted but not kept.
    pub async fn execute(
        &mut self,
        sql: &str,
        params: Params,
        want_rows: bool,
    ) -> Result<ResultSet> {
        let started = Instant::now();
        let (asked, outcome) = self.dispatch(sql, params, want_rows).await;
        let took = started.elapsed();
        let counters = &self.shared().counters;
        counters.answered(asked, outcome.is_ok(), took);
        outcome.map(|mut result| {
            result.elapsed = took;
            result
        })
    }

    /// Runs several statements in order, ignoring rows, and stops at the first error. What
    /// ran before it stays, as in SQLite's shell.
    pub async fn execute_script(&mut self, sql: &str) -> Result<()> {
        let statements = statement_gate::split(sql, &self.shared().options.limits)?;
        for statement in statements {
            self.execute(&statement, Params::default(), false).await?;
        }
        Ok(())
    }

    /// Tells a statement's columns and parameters without running it.
    pub async fn describe(&mut self, sql: &str) -> Result<Described> {
        let (description, inspected) = match &self.transaction {
            Some(transaction) => {
                let (respond, answer) = oneshot::channel();
                let sql = sql.to_owned();
                transaction.send(Step::Describe { sql, respond })?;
                answer.await.map_err(|_| transaction.why_ended())??
            }
            None => self.describe_outside(sql).await?,
        };
        Ok(described(description, &inspected))
    }

    /// True while no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        self.transaction.is_none()
    }

    /// Makes a plain BEGIN take the write permit at once, for clients that read before they
    /// write and would rather wait than be told that their snapshot is stale.
    pub fn set_begin_immediate(&mut self, on: bool) {
        self.begin_immediate = on;
    }

    /// What it knows of its client.
    pub fn state(&self) -> SessionState {
        SessionState {
            foreign_keys: self.foreign_keys,
            begin_immediate: self.begin_immediate,
            values: self.values,
        }
    }

    /// Goes on where another session of the same client stopped.
    pub fn restore(&mut self, state: SessionState) {
        self.foreign_keys = state.foreign_keys;
        self.begin_immediate = state.begin_immediate;
        self.values = state.values;
    }

    /// What a statement is, without running it, as far as the committed schema tells.
    pub fn classify(&self, sql: &str) -> Result<Kind> {
        let shared = self.shared();
        let inspected = shared.facts.get().inspect(sql, &shared.options.limits)?;
        Ok(inspected.kind.clone())
    }

    /// The statements of a script, one by one.
    pub fn split(&self, sql: &str) -> Result<Vec<String>> {
        statement_gate::split(sql, &self.shared().options.limits)
    }

    /// The session's last inserted row id.
    pub fn last_insert_rowid(&self) -> i64 {
        self.values.last_insert_rowid
    }

    /// Ends the session; an open transaction is rolled back.
    pub async fn close(self) {}

    async fn dispatch(
        &mut self,
        sql: &str,
        params: Params,
        want_rows: bool,
    ) -> (Asked, Result<ResultSet>) {
        if self.transaction.is_some() {
            let outcome = self.step(sql, params, want_rows).await;
            return (Asked::Transaction, outcome);
        }
        let facts = self.shared().facts.get();
        let inspected = match self.inspect(&facts, sql) {
            Ok(inspected) => inspected,
            Err(error) => return (Asked::Read, Err(error)),
        };
        match &inspected.kind {
            Kind::Empty => (Asked::Read, Ok(ResultSet::default())),
            Kind::Read => {
                let outcome = match self.statement(inspected, params, want_rows) {
                    Ok(statement) => self.read(statement).await,
                    Err(error) => Err(error),
                };
                (Asked::Read, outcome)
            }
            Kind::Write(_) | Kind::Ddl(_) | Kind::HeaderPragma { .. } => {
                let outcome = match self.statement(inspected, params, want_rows) {
                    Ok(statement) => self.write(statement, facts, sql).await,
                    Err(error) => Err(error),
                };
                (Asked::Write, outcome)
            }
            Kind::Begin(BeginKind::Deferred) if self.begin_immediate => {
                let outcome = self.open_transaction("BEGIN IMMEDIATE").await;
                (Asked::Transaction, outcome)
            }
            Kind::Begin(_) | Kind::Savepoint(_) => {
                let outcome = self.open_transaction(sql).await;
                (Asked::Transaction, outcome)
            }
            Kind::ForeignKeys(set) => (Asked::Read, Ok(self.foreign_keys(*set))),
            Kind::Commit => outside("cannot commit - no transaction is active"),
            Kind::Rollback => outside("cannot rollback - no transaction is active"),
            Kind::Release(name) | Kind::RollbackTo(name) => {
                outside(&format!("no such savepoint: {name}"))
            }
        }
    }

    fn inspect(&self, facts: &Facts, sql: &str) -> Result<Arc<Inspected>> {
        let shared = self.shared();
        facts
            .inspect(sql, &shared.options.limits)
            .inspect_err(|error| {
                if let Error::Refused { reason, .. } = error {
                    shared.counters.count(Family::Refused, reason);
                }
            })
    }

    fn statement(
        &self,
        inspected: Arc<Inspected>,
        params: Params,
        want_rows: bool,
    ) -> Result<Statement> {
        let rewritten = inspected
            .uses_session_values
            .then(|| statement_gate::bind_session_values(&inspected.sql, &self.values))
            .transpose()?;
        Ok(Statement {
            inspected,
            rewritten,
            params,
            want_rows,
            values: self.values,
            cancel: Arc::new(Cancel::default()),
        })
    }

    async fn read(&self, statement: Statement) -> Result<ResultSet> {
        let guard = CancelOnDrop::new(statement.cancel.clone());
        let (respond, answer) = oneshot::channel();
        let bytes = statement.size_bytes();
        let job = ReadJob::Query {
            statement,
            queued: Instant::now(),
            respond,
        };
        self.push_read(job, bytes)?;
        let outcome = answer.await.map_err(|_| Error::Closed)?;
        guard.disarm();
        outcome
    }

    fn push_read(&self, job: ReadJob, bytes: usize) -> Result<()> {
        let shared = self.shared();
        match shared.reads.push(job, bytes) {
            Ok(()) => Ok(()),
            Err((_, Refused::Closed)) => Err(Error::Closed),
            Err((_, Refused::Full)) => Err(shared.overloaded(
                "read_queue",
                "too many reads are waiting; try again in a moment",
            )),
        }
    }

    async fn write(
        &mut self,
        statement: Statement,
        facts: Arc<Facts>,
        sql: &str,
    ) -> Result<ResultSet> {
        let guard = CancelOnDrop::new(statement.cancel.clone());
        let (respond, answer) = oneshot::channel();
        let bytes = statement.size_bytes();
        let job = WriteJob {
            statement,
            foreign_keys: self.foreign_keys,
            facts,
            original_sql: sql.to_owned(),
            queued: Instant::now(),
            respond,
        };
        self.shared().push_write(WriterJob::Write(job), bytes)?;
        let outcome = answer.await.map_err(|_| Error::Closed)?;
        guard.disarm();
        outcome.map(|reply| self.keep(reply))
    }

    async fn open_transaction(&mut self, sql: &str) -> Result<ResultSet> {
        if self.shared().role() == crate::Role::Closed {
            return Err(Error::Closed);
        }
        let opened = OpenTransaction::open(self.shared(), self.foreign_keys)?;
        self.transaction = Some(opened);
        self.step(sql, Params::default(), false).await
    }

    /// Runs a statement inside the open transaction.
    async fn step(&mut self, sql: &str, params: Params, want_rows: bool) -> Result<ResultSet> {
        let Some(transaction) = &self.transaction else {
            return Err(Error::Closed);
        };
        let cancel = Arc::new(Cancel::default());
        let guard = CancelOnDrop::new(cancel.clone());
        let (respond, answer) = oneshot::channel();
        let step = RunStep {
            sql: sql.to_owned(),
            params,
            want_rows,
            values: self.values,
            cancel,
            respond,
        };
        if let Err(error) = transaction.send(Step::Run(step)) {
            self.transaction = None;
            return Err(error);
        }
        let answer = answer.await;
        guard.disarm();
        let Ok(reply) = answer else {
            let error = self.transaction.take().map(|t| t.why_ended());
            return Err(error.unwrap_or(Error::Closed));
        };
        if !reply.open {
            self.transaction = None;
        }
        reply.outcome.map(|reply| self.keep(reply))
    }

    /// Answers, and on outside a transaction sets, whether foreign keys are enforced.
    fn foreign_keys(&mut self, set: Option<bool>) -> ResultSet {
        if let Some(on) = set {
            self.foreign_keys = on;
            return ResultSet::default();
        }
        ResultSet::foreign_keys(self.foreign_keys)
    }

    fn keep(&mut self, reply: Reply) -> ResultSet {
        self.values = reply.values;
        reply.result
    }

    async fn describe_outside(&self, sql: &str) -> Result<(Description, Arc<Inspected>)> {
        let inspected = self.inspect(&self.shared().facts.get(), sql)?;
        if is_control(&inspected.kind) {
            let nothing = Description {
                columns: Vec::new(),
                parameters: Vec::new(),
            };
            return Ok((nothing, inspected));
        }
        let (respond, answer) = oneshot::channel();
        let sql = inspected.sql.clone();
        let bytes = sql.len();
        self.push_read(ReadJob::Describe { sql, respond }, bytes)?;
        let description = answer.await.map_err(|_| Error::Closed)??;
        Ok((description, inspected))
    }

    fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }
}

/// Statements that a session carries out itself.
fn is_control(kind: &Kind) -> bool {
    !matches!(
        kind,
        Kind::Read | Kind::Write(_) | Kind::Ddl(_) | Kind::HeaderPragma { .. }
    )
}

fn described(description: Description, inspected: &Inspected) -> Described {
    let writes = matches!(
        inspected.kind,
        Kind::Write(_) | Kind::Ddl(_) | Kind::HeaderPragma { .. }
    );
    let head = inspected.sql.trim_start().get(..7);
    Described {
        columns: description.columns,
        parameters: description.parameters,
        is_readonly: !writes,
        is_explain: head.is_some_and(|head| head.eq_ignore_ascii_case("EXPLAIN")),
    }
}

fn outside(message: &str) -> (Asked, Result<ResultSet>) {
    let error = Error::Sql {
        code: "SQLITE_ERROR",
        message: message.to_owned(),
    };
    (Asked::Transaction, Err(error))
}
