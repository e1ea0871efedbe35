//! What each statement does in an interactive transaction.
//!
//! The write permit is taken at BEGIN IMMEDIATE, otherwise at the first write, and kept until
//! the transaction ends; ROLLBACK TO does not give it back, COMMIT never waits for it. A
//! transaction that reads before it writes holds a pass of the read gate from its first read,
//! because its snapshot keeps the log from being checkpointed.
//!
//! A plain BEGIN, or a SAVEPOINT that opens a transaction, is only noted until the first
//! read or write, because the engine's SAVEPOINT would take a snapshot at once. A first write
//! so begins as an immediate transaction on the newest state. If the transaction has read, and
//! somebody has committed since, the engine refuses the write, and the client is told that
//! its snapshot is stale.
//!
//! Some errors make the engine roll everything back, reads' errors too. So after every
//! statement it is looked whether the transaction still stands, and if not, the client is
//! told that it is gone.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::adapter::{Connection, Description};
use crate::cancel::Cancel;
use crate::change::Seq;
use crate::commit::{self, CommitFailure};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::gate::Pass;
use crate::group;
use crate::logged::Ledger;
use crate::names;
use crate::result::ResultSet;
use crate::shared::Shared;
use crate::statement::{self, Reply, RunLimits, Statement};
use crate::statement_gate::{self, BeginKind, Inspected, Kind};
use crate::stats::Family;
use crate::transactions::RunStep;
use crate::view::snapshot_head;
use crate::write;
use crate::writer::{LendJob, Permit, WriterJob};

/// While it waits for the permit, a transaction looks this often whether its client is there.
const PERMIT_POLL: Duration = Duration::from_millis(20);
/// The savepoint around a statement whose own undo is not relied upon. Clients cannot name it.
const GUARD: &str = "\"_tidegate_guard\"";

/// One open transaction.
pub(crate) struct Transaction<'a> {
    shared: &'a Arc<Shared>,
    connection: Connection,
    /// Its number in the register.
    id: u64,
    foreign_keys: bool,
    facts: Arc<Facts>,
    state: State,
}

/// What it holds.
#[derive(Default)]
struct State {
    /// Begun for the client, but not yet for the engine.
    pending: bool,
    read_only: bool,
    /// The outermost savepoint opened the transaction, so its RELEASE commits.
    opened_by_savepoint: bool,
    savepoints: Vec<String>,
    /// From the first read on, until the permit is held.
    reading: Option<Reading>,
    writing: Option<Writing>,
    changed_schema: bool,
}

/// A snapshot that others may have moved on from.
struct Reading {
    head: Seq,
    _pass: Pass,
}

/// The permit, and what is owed to the log.
struct Writing {
    ledger: Ledger,
    _permit: Permit,
}

impl<'a> Transaction<'a> {
    /// None yet: the first statement begins it.
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        connection: Connection,
        id: u64,
        foreign_keys: bool,
    ) -> Self {
        Self {
            shared,
            connection,
            id,
            foreign_keys,
            facts: shared.facts.get(),
            state: State::default(),
        }
    }

    /// True from its beginning to its end, as the client sees it.
    pub(crate) fn is_open(&self) -> bool {
        self.state.pending || self.stands()
    }

    /// True while it holds the write permit.
    pub(crate) fn is_writing(&self) -> bool {
        self.state.writing.is_some()
    }

    /// Runs a statement, which must not take longer than `time_left`.
    pub(crate) fn run(&mut self, step: &RunStep, time_left: Duration) -> Result<Reply> {
        let statement = self.inspect(step)?;
        let limits = RunLimits {
            time_max: self.shared.statement_time(time_left),
            result_bytes_max: self.shared.options.result_bytes_max,
        };
        let outcome = match &statement.inspected.kind {
            Kind::Empty => Ok(ResultSet::default()),
            Kind::Begin(kind) => self.begin(*kind, &step.cancel),
            Kind::Savepoint(name) => self.savepoint(name),
            Kind::Release(name) => self.release_savepoint(name),
            Kind::RollbackTo(name) => self.rollback_to(name),
            Kind::Commit => self.commit(),
            Kind::Rollback => self.rollback(),
            Kind::Read => self.read(&statement, limits),
            // As in SQLite, it cannot be changed inside a transaction.
            Kind::ForeignKeys(None) => Ok(ResultSet::foreign_keys(self.foreign_keys)),
            Kind::ForeignKeys(Some(_)) => Ok(ResultSet::default()),
            Kind::Write(_) | Kind::Ddl(_) | Kind::HeaderPragma { .. } => {
                let written = self.write(step, statement, limits);
                return written.map_err(|error| self.explain(error));
            }
        };
        let values = step.values;
        outcome
            .map(|result| Reply { result, values })
            .map_err(|error| self.explain(error))
    }

    /// Tells a statement's columns and parameters under the transaction's schema.
    pub(crate) fn describe(&mut self, sql: &str) -> Result<(Description, Arc<Inspected>)> {
        let facts = self.facts()?;
        let inspected = facts.inspect(sql, &self.shared.options.limits)?;
        let description = self.connection.describe(&inspected.sql)?;
        Ok((description, inspected))
    }

    /// Rolls back, if there is anything to.
    pub(crate) fn roll_back(&mut self) {
        self.state.pending = false;
        if !self.stands() {
            return;
        }
        if let Err(error) = self.connection.execute("ROLLBACK", &[]) {
            tracing::error!(%error, "ROLLBACK failed; the connection is dropped");
        }
    }

    /// Gives back the permit and the pass. Only after the engine's transaction has ended.
    pub(crate) fn let_go(&mut self) {
        self.state = State::default();
    }

    /// Gives back the connection.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    fn inspect(&mut self, step: &RunStep) -> Result<Statement> {
        let facts = self.facts()?;
        let inspected = facts.inspect(&step.sql, &self.shared.options.limits);
        let inspected = inspected.inspect_err(|error| {
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

    /// The schema as this transaction sees it; everybody's, while it has no snapshot.
    fn facts(&mut self) -> Result<Arc<Facts>> {
        if !self.stands() {
            self.facts = self.shared.facts.get();
        } else if !self.facts.are_of(&mut self.connection)? {
            self.facts = Arc::new(Facts::read(&mut self.connection)?);
        }
        Ok(self.facts.clone())
    }

    /// True while the engine has a transaction open for it.
    fn stands(&self) -> bool {
        !self.connection.is_broken() && !self.connection.is_autocommit()
    }

    fn begin(&mut self, kind: BeginKind, cancel: &Cancel) -> Result<ResultSet> {
        if self.is_open() {
            return Err(sql_error("cannot start a transaction within a transaction"));
        }
        match kind {
            BeginKind::Immediate => {
                let permit = self.take_permit(cancel)?;
                self.begin_now("BEGIN IMMEDIATE")?;
                self.note_writing(permit)?;
            }
            BeginKind::Deferred | BeginKind::ReadOnly => self.state.pending = true,
        }
        self.state.read_only = kind == BeginKind::ReadOnly;
        Ok(ResultSet::default())
    }

    /// Begins for the engine, with the savepoints that were only noted.
    fn begin_now(&mut self, begin: &str) -> Result<()> {
        let begun = self.connection.execute(begin, &[]);
        begun.map_err(|error| group::not_busy(error, self.shared))?;
        self.state.pending = false;
        for name in &self.state.savepoints {
            self.connection.execute(&savepoint_sql(name), &[])?;
        }
        Ok(())
    }

    /// Waits for the writer to lend the permit.
    fn take_permit(&self, cancel: &Cancel) -> Result<Permit> {
        let (respond, lent) = mpsc::sync_channel(1);
        let queued = Instant::now();
        self.shared
            .push_write(WriterJob::Lend(LendJob { queued, respond }), 0)?;
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

    fn note_writing(&mut self, permit: Permit) -> Result<()> {
        let ledger = Ledger::begin(&mut self.connection)?;
        self.shared.transactions.set_holds_snapshot(self.id, false);
        self.state.reading = None;
        self.state.writing = Some(Writing {
            ledger,
            _permit: permit,
        });
        Ok(())
    }

    fn savepoint(&mut self, name: &str) -> Result<ResultSet> {
        if !self.is_open() {
            self.state.pending = true;
            self.state.opened_by_savepoint = true;
        }
        if self.stands() {
            self.connection.execute(&savepoint_sql(name), &[])?;
        }
        self.state.savepoints.push(name.to_owned());
        Ok(ResultSet::default())
    }

    fn release_savepoint(&mut self, name: &str) -> Result<ResultSet> {
        let at = self.find_savepoint(name)?;
        if at == 0 && self.state.opened_by_savepoint {
            return self.commit();
        }
        if self.stands() {
            let sql = format!("RELEASE {}", names::quote(name));
            self.connection.execute(&sql, &[])?;
        }
        self.state.savepoints.truncate(at);
        Ok(ResultSet::default())
    }

    fn rollback_to(&mut self, name: &str) -> Result<ResultSet> {
        let at = self.find_savepoint(name)?;
        if self.stands() {
            let sql = format!("ROLLBACK TO {}", names::quote(name));
            self.connection.execute(&sql, &[])?;
        }
        self.state.savepoints.truncate(at + 1);
        if let Some(writing) = &mut self.state.writing {
            writing.ledger.undone(&mut self.connection)?;
        }
        Ok(ResultSet::default())
    }

    fn find_savepoint(&self, name: &str) -> Result<usize> {
        let mut open = self.state.savepoints.iter();
        open.rposition(|open| names::same(open, name))
            .ok_or_else(|| sql_error(&format!("no such savepoint: {name}")))
    }

    fn read(&mut self, statement: &Statement, limits: RunLimits) -> Result<ResultSet> {
        if self.state.pending {
            let pass = self.shared.store.gate().enter();
            self.begin_now("BEGIN")?;
            let head = snapshot_head(&mut self.connection)?;
            self.shared.transactions.set_holds_snapshot(self.id, true);
            self.state.reading = Some(Reading { head, _pass: pass });
        }
        statement::run(&mut self.connection, statement, limits)
    }

    fn write(
        &mut self,
        step: &RunStep,
        mut statement: Statement,
        limits: RunLimits,
    ) -> Result<Reply> {
        if self.state.read_only {
            return Err(Error::Sql {
                code: "SQLITE_READONLY",
                message: "this transaction was begun READONLY".into(),
            });
        }
        if !self.is_writing() {
            self.start_writing(&step.cancel)?;
            // The snapshot may be newer than the schema it was inspected under.
            statement = self.inspect(step)?;
        }
        let kind = &statement.inspected.kind;
        self.state.changed_schema |= matches!(kind, Kind::Ddl(_));
        let outcome = match kind {
            Kind::Write(info) if !info.returning && !info.sets_off_more => {
                self.write_plain(&statement, limits)
            }
            // A RETURNING that is cut short, or a schema statement that fails half-way, must
            // leave nothing behind.
            _ => self.write_guarded(&statement, limits),
        };
        if matches!(outcome, Err(Error::StaleSnapshot)) {
            self.keep_reading()?;
        }
        outcome
    }

    /// Takes the permit for the first write.
    fn start_writing(&mut self, cancel: &Cancel) -> Result<()> {
        let permit = self.take_permit(cancel)?;
        if self.state.pending {
            self.begin_now("BEGIN IMMEDIATE")?;
        }
        self.note_writing(permit)
    }

    /// After a stale snapshot the transaction may go on reading, and others may write.
    fn keep_reading(&mut self) -> Result<()> {
        let head = snapshot_head(&mut self.connection)?;
        // Before the permit goes: the gate cannot be closed while it is held.
        let pass = self.shared.store.gate().enter();
        self.shared.transactions.set_holds_snapshot(self.id, true);
        self.state.reading = Some(Reading { head, _pass: pass });
        self.state.writing = None;
        Ok(())
    }

    fn write_plain(&mut self, statement: &Statement, limits: RunLimits) -> Result<Reply> {
        let writing = self.state.writing.as_mut().ok_or(Error::Closed)?;
        write::run(&mut self.connection, &mut writing.ledger, statement, limits)
    }

    fn write_guarded(&mut self, statement: &Statement, limits: RunLimits) -> Result<Reply> {
        self.connection
            .execute(&format!("SAVEPOINT {GUARD}"), &[])?;
        let outcome = self.write_plain(statement, limits);
        if self.stands() {
            let settled = |error| write::is_settled(error, &self.connection, statement);
            let kept = outcome.as_ref().err().is_none_or(settled);
            if !kept {
                self.connection
                    .execute(&format!("ROLLBACK TO {GUARD}"), &[])?;
            }
            self.connection.execute(&format!("RELEASE {GUARD}"), &[])?;
        }
        outcome
    }

    fn commit(&mut self) -> Result<ResultSet> {
        let Some(writing) = self.state.writing.take() else {
            self.state.pending = false;
            if self.stands() {
                self.connection.execute("COMMIT", &[])?;
            }
            let read = self.state.reading.as_ref().map(|reading| reading.head);
            return Ok(ended_at(read));
        };
        let ledger = writing.ledger.clone();
        match commit::commit(&mut self.connection, ledger, self.shared) {
            Ok(position) => {
                if self.state.changed_schema {
                    self.shared.facts.refresh(&mut self.connection)?;
                }
                Ok(ended_at(Some(position)))
            }
            Err(CommitFailure::ForeignKey(error)) => {
                // Still open, as in SQLite: the client may mend it, or roll back.
                self.state.writing = Some(writing);
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

    /// An error that took the transaction with it says so.
    fn explain(&self, error: Error) -> Error {
        let is_about_statement = matches!(error, Error::Sql { .. } | Error::Corrupt(_));
        if self.is_open() || self.connection.is_broken() || !is_about_statement {
            return error;
        }
        Error::TransactionGone {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

fn ended_at(position: Option<Seq>) -> ResultSet {
    ResultSet {
        position,
        ..ResultSet::default()
    }
}

fn savepoint_sql(name: &str) -> String {
    format!("SAVEPOINT {}", names::quote(name))
}

fn sql_error(message: &str) -> Error {
    Error::Sql {
        code: "SQLITE_ERROR",
        message: message.to_owned(),
    }
}
