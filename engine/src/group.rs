//! Group commit: many clients' statements, one COMMIT, one fsync.
//!
//! A group runs in one transaction. Each client must see exactly what a transaction of its
//! own would have shown: its error is its alone, and its success is durable. How that is kept:
//!
//! - A constraint error, and what fails while it is prepared, leave no trace of the
//!   statement (or, with OR FAIL, the rows that SQLite keeps): the group goes on.
//! - After any other error the engine's own undo is not relied upon. The transaction is
//!   rolled back and the group is run again **carefully**, with a savepoint around each
//!   statement; nobody was answered yet, so nobody sees it. Savepoints cost 15–20 %, which
//!   is why they are not used until something fails.
//! - Some errors end the transaction at once (a bad JSON text is enough). That client gets
//!   its error, the others are run again; after a second such death each runs alone.
//! - A COMMIT refused by a deferred foreign key does not say whose fault it was: each runs
//!   alone. Any other failed COMMIT is indeterminate for all, and never run again.
//! - A panic retires the connection; its client gets the error, the others are run again.

use std::sync::Arc;
use std::time::Instant;

use crate::adapter::Connection;
use crate::change::Seq;
use crate::commit::{self, CommitFailure};
use crate::error::{Error, Result};
use crate::logged::Ledger;
use crate::shared::Shared;
use crate::statement::{Reply, RunLimits};
use crate::statement_gate::Kind;
use crate::stats::Family;
use crate::write;
use crate::writer::WriteJob;

/// The savepoint around a statement of a careful group. Clients cannot name it.
const SAVEPOINT: &str = "SAVEPOINT \"_tidegate_statement\"";
const ROLLBACK_TO: &str = "ROLLBACK TO \"_tidegate_statement\"";
const RELEASE: &str = "RELEASE \"_tidegate_statement\"";

/// Groups that stay careful after one that had to be run again.
const CAREFUL_GROUPS: u32 = 32;
/// A group that lost its transaction this often runs its statements one by one.
const DEATHS_MAX: u32 = 2;

/// Runs groups, on a connection for each setting of foreign keys.
pub(crate) struct Groups {
    shared: Arc<Shared>,
    connections: [Option<Connection>; 2],
    careful_left: u32,
}

/// How one try at a group ended.
enum Ended {
    /// Committed at this position.
    Committed(Seq),
    /// Rolled back; run it again with savepoints.
    Unclear,
    /// Rolled back by the statement with this index, which is answered with the error.
    Killed(usize, Error),
    /// Rolled back; whose fault it was is not known.
    Refused(CommitFailure),
    /// Whether it took effect is not known, or it cannot even begin.
    Failed(Error),
}

type Outcome = Result<Reply>;

impl Groups {
    /// Opens the connection of the usual kind; the other one follows when it is asked for.
    pub(crate) fn open(shared: &Arc<Shared>) -> Result<Self> {
        let usual = shared.options.foreign_keys;
        let mut groups = Self {
            shared: shared.clone(),
            connections: [None, None],
            careful_left: 0,
        };
        groups.connections[usize::from(usual)] = Some(shared.store.capturing(usual)?);
        Ok(groups)
    }

    /// Closes the connections.
    pub(crate) fn close(&mut self) {
        for connection in self.connections.iter_mut().filter_map(Option::take) {
            self.shared.retire(connection);
        }
    }

    /// Runs jobs of one kind of foreign keys and answers each of them.
    pub(crate) fn run(&mut self, jobs: Vec<WriteJob>) {
        let mut jobs = self.admit(jobs);
        let mut careful = self.careful_left > 0;
        self.careful_left = self.careful_left.saturating_sub(1);
        let mut deaths = 0;
        while !jobs.is_empty() {
            let (ended, tried, outcomes) = self.attempt(&jobs, careful);
            match ended {
                Ended::Committed(position) => {
                    let rest = jobs.split_off(tried);
                    self.answer(jobs, outcomes, position);
                    jobs = rest;
                }
                // With savepoints nothing should be unclear: no third way is tried.
                Ended::Unclear if careful => return self.run_singly(jobs),
                Ended::Unclear => {
                    careful = true;
                    self.careful_left = CAREFUL_GROUPS;
                    self.shared.counters.count(Family::GroupRerun, "error");
                }
                Ended::Killed(index, error) => {
                    jobs.remove(index).respond.send(Err(error)).ok();
                    deaths += 1;
                    if !jobs.is_empty() {
                        self.shared.counters.count(Family::GroupRerun, "killed");
                    }
                    if deaths >= DEATHS_MAX {
                        return self.run_singly(jobs);
                    }
                }
                Ended::Refused(failure) if jobs.len() == 1 => {
                    return answer_all(jobs, &failure.into_error());
                }
                Ended::Refused(_) => {
                    self.shared.counters.count(Family::GroupRerun, "refused");
                    return self.run_singly(jobs);
                }
                Ended::Failed(error) => return answer_all(jobs, &error),
            }
        }
    }

    fn run_singly(&mut self, jobs: Vec<WriteJob>) {
        for job in jobs {
            self.run(vec![job]);
        }
    }

    /// Drops the jobs whose clients are gone, and inspects those again that were inspected
    /// under an older schema.
    fn admit(&self, jobs: Vec<WriteJob>) -> Vec<WriteJob> {
        let facts = self.shared.facts.get();
        let mut admitted = Vec::with_capacity(jobs.len());
        for mut job in jobs {
            if job.statement.cancel.is_cancelled() {
                continue;
            }
            let waited = &self.shared.counters.permit_wait_seconds;
            waited.observe_time(job.queued.elapsed());
            if !Arc::ptr_eq(&job.facts, &facts) {
                let inspected = facts.inspect(&job.original_sql, &self.shared.options.limits);
                match inspected {
                    Ok(inspected) => job.statement.inspected = inspected,
                    Err(error) => {
                        job.respond.send(Err(error)).ok();
                        continue;
                    }
                }
                job.facts = facts.clone();
            }
            admitted.push(job);
        }
        admitted
    }

    /// One try. Gives back how it ended, how many jobs (from the front) it covers, and what
    /// each of those came to.
    fn attempt(&mut self, jobs: &[WriteJob], careful: bool) -> (Ended, usize, Vec<Outcome>) {
        let kind = usize::from(jobs[0].foreign_keys);
        let connection = match self.connections[kind].take() {
            Some(connection) => Ok(connection),
            None => self.shared.store.capturing(jobs[0].foreign_keys),
        };
        let mut connection = match connection {
            Ok(connection) => connection,
            Err(error) => return (Ended::Failed(error), 0, Vec::new()),
        };
        let mut attempt = Attempt {
            shared: &self.shared,
            connection: &mut connection,
            careful,
            outcomes: Vec::with_capacity(jobs.len()),
        };
        let ended = attempt.run(jobs);
        let outcomes = attempt.outcomes;
        if matches!(ended, Ended::Committed(_)) && is_ddl(&jobs[0]) {
            self.refresh_facts(&mut connection);
        }
        if connection.is_broken() {
            self.shared.retire(connection);
        } else {
            self.connections[kind] = Some(connection);
        }
        (ended, outcomes.len(), outcomes)
    }

    fn refresh_facts(&self, connection: &mut Connection) {
        if let Err(error) = self.shared.facts.refresh(connection) {
            tracing::error!(%error, "the schema cannot be read after it changed");
        }
    }

    fn answer(&self, jobs: Vec<WriteJob>, outcomes: Vec<Outcome>, position: Seq) {
        let size = &self.shared.counters.group_size;
        size.observe(outcomes.len() as f64);
        for (job, mut outcome) in jobs.into_iter().zip(outcomes) {
            if let Ok(reply) = &mut outcome {
                reply.result.position = Some(position);
            }
            job.respond.send(outcome).ok();
        }
    }
}

/// One try at a group.
struct Attempt<'a> {
    shared: &'a Shared,
    connection: &'a mut Connection,
    careful: bool,
    outcomes: Vec<Outcome>,
}

/// What becomes of the group after one statement.
enum Next {
    GoOn,
    Unclear,
    Killed(Error),
}

impl Attempt<'_> {
    fn run(&mut self, jobs: &[WriteJob]) -> Ended {
        let mut ledger = match self.begin() {
            Ok(ledger) => ledger,
            Err(error) => return Ended::Failed(not_busy(self.abandon(error), self.shared)),
        };
        let started = Instant::now();
        for (index, job) in jobs.iter().enumerate() {
            match self.run_one(&mut ledger, job, jobs.len() == 1) {
                Next::GoOn => {}
                Next::Unclear => {
                    self.roll_back();
                    return Ended::Unclear;
                }
                Next::Killed(error) => {
                    self.roll_back();
                    return Ended::Killed(index, error);
                }
            }
            if started.elapsed() > self.shared.options.group_time_max {
                break;
            }
        }
        match commit::commit(self.connection, ledger, self.shared) {
            Ok(position) => Ended::Committed(position),
            Err(CommitFailure::Unknown(error)) => Ended::Failed(self.abandon(error)),
            Err(failure) => {
                self.roll_back();
                Ended::Refused(failure)
            }
        }
    }

    fn begin(&mut self) -> Result<Ledger> {
        self.connection.execute("BEGIN IMMEDIATE", &[])?;
        Ledger::begin(self.connection)
    }

    fn run_one(&mut self, ledger: &mut Ledger, job: &WriteJob, alone: bool) -> Next {
        let limits = RunLimits {
            time_max: self.shared.options.write_time_max,
            result_bytes_max: self.shared.options.result_bytes_max,
        };
        if self.careful && !alone && self.connection.execute(SAVEPOINT, &[]).is_err() {
            return Next::Unclear;
        }
        let outcome = write::run(self.connection, ledger, &job.statement, limits);
        if self.connection.is_broken() || self.connection.is_autocommit() {
            let error = outcome.err().unwrap_or_else(|| Error::TransactionGone {
                code: "SQLITE_ERROR",
                message: "the statement ended the transaction it ran in".into(),
            });
            return Next::Killed(error);
        }
        let settled = |error| write::is_settled(error, self.connection, &job.statement);
        let kept = outcome.as_ref().err().is_none_or(settled);
        match outcome {
            Err(error) if alone && !kept => return Next::Killed(error),
            _ => {}
        }
        if self.careful && !alone {
            let undone = kept || self.connection.execute(ROLLBACK_TO, &[]).is_ok();
            if !undone || self.connection.execute(RELEASE, &[]).is_err() {
                return Next::Killed(Error::Io("a savepoint could not be ended".into()));
            }
        } else if !kept && !self.failed_while_preparing(job) {
            return Next::Unclear;
        }
        self.outcomes.push(outcome);
        Next::GoOn
    }

    /// Preparing has no effects. A text that does not prepare now did not run a moment ago.
    fn failed_while_preparing(&mut self, job: &WriteJob) -> bool {
        !matches!(job.statement.inspected.kind, Kind::Ddl(_))
            && self.connection.prepare(job.statement.sql()).is_err()
            && !self.connection.is_broken()
    }

    /// Leaves the transaction, if it is still open, and passes the error on.
    fn abandon(&mut self, error: Error) -> Error {
        self.roll_back();
        error
    }

    fn roll_back(&mut self) {
        if self.connection.is_broken() || self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.connection.execute("ROLLBACK", &[]) {
            self.shared.fail(format!("ROLLBACK failed: {error}"));
        }
    }
}

/// Nobody but us writes to the file, so the engine's lock is free when we have the permit.
/// Should it not be, somebody else has the file open; a client only hears that it may retry.
pub(crate) fn not_busy(error: Error, shared: &Shared) -> Error {
    match error {
        Error::Busy => {
            tracing::error!("the engine's write lock is held by somebody without the permit");
            shared.overloaded(
                "engine_lock",
                "the database is locked; try again in a moment",
            )
        }
        other => other,
    }
}

fn is_ddl(job: &WriteJob) -> bool {
    matches!(job.statement.inspected.kind, Kind::Ddl(_))
}

fn answer_all(jobs: Vec<WriteJob>, error: &Error) {
    for job in jobs {
        job.respond.send(Err(error.clone())).ok();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::engine::Engine;
    use crate::options::Options;
    use crate::result::Params;
    use crate::statement::Statement;
    use crate::statement_gate::{Inspected, SessionValues, WriteInfo};

    /// A write that no gate has seen.
    fn job(engine: &Engine, sql: &str) -> (WriteJob, oneshot::Receiver<Result<Reply>>) {
        let (respond, answer) = oneshot::channel();
        let info = WriteInfo {
            table: String::new(),
            returning: false,
            deferred_keys: false,
            sets_off_more: false,
        };
        let inspected = Inspected {
            kind: Kind::Write(info),
            sql: sql.to_owned(),
            uses_session_values: false,
            touches_session_triggers: false,
        };
        let job = WriteJob {
            statement: Statement {
                inspected: Arc::new(inspected),
                rewritten: None,
                params: Params::default(),
                want_rows: false,
                values: SessionValues::default(),
                cancel: Arc::default(),
            },
            foreign_keys: true,
            facts: engine.shared().facts.get(),
            original_sql: sql.to_owned(),
            queued: Instant::now(),
            respond,
        };
        (job, answer)
    }

    fn answers(engine: &Engine, groups: &mut Groups, statements: &[&str]) -> Vec<Result<Reply>> {
        let (jobs, answers): (Vec<_>, Vec<_>) = statements.iter().map(|s| job(engine, s)).unzip();
        groups.run(jobs);
        let answers = answers.into_iter();
        answers.map(|a| a.blocking_recv().unwrap()).collect()
    }

    #[test]
    fn a_panic_and_an_uncaptured_write_fail_alone() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let mut groups = Groups::open(engine.shared()).unwrap();
        let good = "INSERT INTO t VALUES (1)";
        let mut writer = engine.store().capturing(true).unwrap();
        writer.execute("CREATE TABLE t(a)", &[]).unwrap();
        writer.close().unwrap();
        let panics = "INSERT INTO t VALUES (7) RETURNING 'panic here'";
        let outcomes = answers(&engine, &mut groups, &[good, panics, good]);
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        assert!(matches!(outcomes[1], Err(Error::Panicked(_))));
        assert_eq!(engine.stats().engine_panics, 1);
        // Rows of the log itself are not captured, so this changes rows and logs nothing.
        let uncaptured = "DELETE FROM turso_cdc WHERE change_id = 1";
        let outcomes = answers(&engine, &mut groups, &[good, uncaptured, good]);
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        assert_eq!(outcomes[1].as_ref().unwrap_err().code(), "TIDEGATE_REFUSED");
        assert!(engine.stats().uncaptured_writes > 0);
        groups.close();
        let mut reader = engine.store().reader().unwrap();
        let count = reader.query_integer("SELECT count(*) FROM t", &[]);
        assert_eq!(count.unwrap(), Some(4));
        let integrity = reader.query_value("PRAGMA integrity_check", &[]);
        assert_eq!(integrity.unwrap().as_text(), Some("ok"));
    }
}
