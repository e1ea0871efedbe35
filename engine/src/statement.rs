//! One inspected statement, and how a thread runs it.
//!
//! Readers, the writer and interactive transactions all run clients' statements through
//! [`run`]: bounded in time and in the size of the result, and cancelled when nobody waits
//! for the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::adapter::{Bindings, Connection, Row};
use crate::cancel::{Cancel, Reason};
use crate::error::{Error, Result};
use crate::result::{Params, ResultSet};
use crate::statement_gate::{Inspected, SessionValues};

/// A statement on its way through the engine.
#[derive(Clone)]
pub(crate) struct Statement {
    /// What the gate found out about it.
    pub(crate) inspected: Arc<Inspected>,
    /// The text to run, when it differs from the gate's (session values put in).
    pub(crate) rewritten: Option<String>,
    /// Values of its parameters.
    pub(crate) params: Params,
    /// False when only the number of changes is of interest.
    pub(crate) want_rows: bool,
    /// What the session's functions answer.
    pub(crate) values: SessionValues,
    /// Stops it.
    pub(crate) cancel: Arc<Cancel>,
}

/// A statement's answer with what it does to its session.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The answer.
    pub(crate) result: ResultSet,
    /// What the session's functions answer from now on.
    pub(crate) values: SessionValues,
}

/// Bounds for one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimits {
    /// Zero means none.
    pub(crate) time_max: Duration,
    /// Bytes of values in the result.
    pub(crate) result_bytes_max: usize,
}

impl Statement {
    /// The text to run.
    pub(crate) fn sql(&self) -> &str {
        self.rewritten.as_deref().unwrap_or(&self.inspected.sql)
    }

    /// Bytes it occupies while it waits.
    pub(crate) fn size_bytes(&self) -> usize {
        self.sql().len() + self.params.size_bytes()
    }
}

/// Runs a statement to its end and collects its rows.
pub(crate) fn run(
    connection: &mut Connection,
    statement: &Statement,
    limits: RunLimits,
) -> Result<ResultSet> {
    if !statement.cancel.start(connection.interrupt_handle()) {
        statement.cancel.finish();
        return Err(Error::Interrupted);
    }
    let started = Instant::now();
    connection.set_query_timeout(limits.time_max);
    let outcome = collect(connection, statement, limits.result_bytes_max);
    connection.set_query_timeout(Duration::ZERO);
    let stopped = statement.cancel.finish();
    outcome.map_err(|error| explain(error, stopped, limits.time_max, started.elapsed()))
}

fn collect(
    connection: &mut Connection,
    statement: &Statement,
    bytes_max: usize,
) -> Result<ResultSet> {
    let mut result = ResultSet::default();
    let mut bytes = 0;
    let bindings = Bindings {
        positional: &statement.params.positional,
        named: &statement.params.named,
    };
    let (rows, rows_read) = (&mut result.rows, &mut result.rows_read);
    let each = |row: &Row<'_>| {
        // The one way for a test to have a panic in the middle of a statement.
        #[cfg(test)]
        assert!(!statement.sql().contains("panic here"), "wanted by a test");
        *rows_read += 1;
        if statement.want_rows {
            bytes += row_bytes(row);
            if bytes > bytes_max {
                return Err(too_large(bytes_max));
            }
            rows.push(row.to_values()?);
        }
        Ok(())
    };
    let columns = statement.want_rows.then_some(&mut result.columns);
    let changes = connection.run_bound(statement.sql(), bindings, columns, each)?;
    result.changes = u64::try_from(changes).unwrap_or(0);
    Ok(result)
}

/// What a row costs in memory: its values and the vectors that hold them.
fn row_bytes(row: &Row<'_>) -> usize {
    const PER_VALUE: usize = size_of::<crate::value::Value>();
    let values: usize = row.values().map(|v| v.size_bytes() + PER_VALUE).sum();
    values + size_of::<Vec<crate::value::Value>>()
}

fn too_large(bytes_max: usize) -> Error {
    Error::TooLarge(format!(
        "the result is larger than {bytes_max} bytes: ask for fewer rows at a time"
    ))
}

/// An interrupt has three causes; the client is told which.
fn explain(error: Error, stopped: Option<Reason>, limit: Duration, ran: Duration) -> Error {
    if !matches!(error, Error::Interrupted) {
        return error;
    }
    let message = match stopped {
        Some(Reason::ClientGone) => return Error::Interrupted,
        Some(Reason::Closing) => return Error::Closed,
        Some(Reason::Checkpoint) => {
            "the read was stopped because it kept the write-ahead log from being emptied: \
             run it again"
                .to_owned()
        }
        None if !limit.is_zero() && ran >= limit => {
            format!("the statement was stopped at its time limit of {limit:?}")
        }
        None => return Error::Interrupted,
    };
    Error::Sql {
        code: "SQLITE_INTERRUPT",
        message,
    }
}
