//! Reader threads: reads outside transactions.
//!
//! Each thread has a connection that cannot write, with its own statement cache. A read is
//! one short transaction inside the read gate, so that a checkpoint can wait for it; its
//! head is read in the same snapshot, so that the answer's position is exact.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::adapter::{Connection, Description};
use crate::error::{Error, Result};
use crate::queue::Popped;
use crate::result::ResultSet;
use crate::shared::{STACK_BYTES, Shared};
use crate::statement::{self, RunLimits, Statement};
use crate::view::snapshot_head;

/// How long a reader sleeps before it looks again whether there is work: a formality, since
/// it is woken.
const NAP: Duration = Duration::from_secs(60);

/// How often a read starts over because the schema changed under it, before its client gets
/// the error. Nothing was answered until then.
const SCHEMA_RETRIES_MAX: u32 = 20;

/// How often a read that stood in the way of a checkpoint starts over before its client gets
/// the error. The checkpoint emptied the log, so the next one is as many writes away.
const CHECKPOINT_RETRIES_MAX: u32 = 3;

/// Work for a reader.
pub(crate) enum ReadJob {
    /// Runs a read and answers its rows.
    Query {
        statement: Statement,
        queued: Instant,
        respond: oneshot::Sender<Result<ResultSet>>,
    },
    /// Prepares a statement and answers what it looks like.
    Describe {
        sql: String,
        respond: oneshot::Sender<Result<Description>>,
    },
}

/// Starts the reader threads.
pub(crate) fn spawn(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>> {
    (0..shared.reading.len())
        .map(|slot| {
            let mut reader = Reader {
                connection: Some(shared.store.reader()?),
                describing: None,
                shared: shared.clone(),
                slot,
            };
            let thread = thread::Builder::new()
                .name(format!("reader-{slot}"))
                .stack_size(STACK_BYTES)
                .spawn(move || reader.work())?;
            Ok(thread)
        })
        .collect()
}

struct Reader {
    shared: Arc<Shared>,
    slot: usize,
    connection: Option<Connection>,
    describing: Option<Connection>,
}

impl Reader {
    fn work(&mut self) {
        loop {
            match self.shared.reads.pop(NAP) {
                Popped::Entry(job) => self.answer(job),
                Popped::TimedOut => {}
                Popped::Closed => break,
            }
        }
        let connections = [self.connection.take(), self.describing.take()];
        for connection in connections.into_iter().flatten() {
            self.shared.retire(connection);
        }
    }

    fn answer(&mut self, job: ReadJob) {
        match job {
            ReadJob::Query {
                statement,
                queued,
                respond,
            } => {
                if statement.cancel.is_cancelled() {
                    return;
                }
                respond.send(self.query(&statement, queued)).ok();
            }
            ReadJob::Describe { sql, respond } => {
                respond.send(self.describe(&sql)).ok();
            }
        }
    }

    /// The engine prepares no write on a connection that only reads, so a describing
    /// connection is an ordinary one that never runs anything.
    fn describe(&mut self, sql: &str) -> Result<Description> {
        let mut connection = match self.describing.take() {
            Some(connection) => connection,
            None => self.shared.store.internal()?,
        };
        let described = connection.describe(sql);
        if connection.is_broken() {
            self.shared.retire(connection);
        } else {
            self.describing = Some(connection);
        }
        described
    }

    fn query(&mut self, statement: &Statement, queued: Instant) -> Result<ResultSet> {
        if queued.elapsed() > self.shared.options.read_wait_max {
            return Err(self.shared.overloaded(
                "read_wait",
                "the read waited too long for its turn; try again in a moment",
            ));
        }
        for _ in 0..CHECKPOINT_RETRIES_MAX {
            match self.query_inside_gate(statement) {
                Err(_) if statement.cancel.pardon() => {}
                outcome => return outcome,
            }
        }
        self.query_inside_gate(statement)
    }

    /// Runs the read inside the read gate, where the next checkpoint waits for it.
    fn query_inside_gate(&mut self, statement: &Statement) -> Result<ResultSet> {
        let pass = self.shared.store.gate().enter();
        let limits = RunLimits {
            time_max: self.shared.options.statement_time_max,
            result_bytes_max: self.shared.options.result_bytes_max,
        };
        self.shared
            .set_reading(self.slot, Some(statement.cancel.clone()));
        let mut outcome = self.with_connection(|c| read_once(c, statement, limits));
        for _ in 0..SCHEMA_RETRIES_MAX {
            if !outcome.as_ref().is_err_and(Error::is_schema_change) {
                break;
            }
            outcome = self.with_connection(|c| read_once(c, statement, limits));
        }
        self.shared.set_reading(self.slot, None);
        drop(pass);
        outcome
    }

    /// Runs with the connection; one that panicked, or that will not leave its transaction,
    /// is replaced.
    fn with_connection<T>(&mut self, run: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.shared.store.reader()?,
        };
        let outcome = run(&mut connection);
        if connection.is_broken() || !leave_transaction(&mut connection) {
            self.shared.retire(connection);
        } else {
            self.connection = Some(connection);
        }
        outcome
    }
}

fn read_once(
    connection: &mut Connection,
    statement: &Statement,
    limits: RunLimits,
) -> Result<ResultSet> {
    connection.execute("BEGIN", &[])?;
    let head = snapshot_head(connection)?;
    let mut result = if is_explain(statement.sql()) {
        explain(connection, |c| statement::run(c, statement, limits))?
    } else {
        statement::run(connection, statement, limits)?
    };
    if connection.is_autocommit() {
        return Err(Error::Io("a read ended its own transaction".into()));
    }
    connection.execute("COMMIT", &[])?;
    result.position = Some(head);
    Ok(result)
}

/// Lets a reader compile the write that it is to explain. Nothing that changes rows is ever
/// run here: the gate lets EXPLAIN through, not the statement.
fn explain<T>(
    connection: &mut Connection,
    run: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    connection.execute("PRAGMA query_only = 0", &[])?;
    let outcome = run(connection);
    connection.execute("PRAGMA query_only = 1", &[])?;
    outcome
}

fn is_explain(sql: &str) -> bool {
    let head = sql.trim_start().get(..7);
    head.is_some_and(|head| head.eq_ignore_ascii_case("EXPLAIN"))
}

fn leave_transaction(connection: &mut Connection) -> bool {
    connection.is_autocommit() || connection.execute("ROLLBACK", &[]).is_ok()
}
