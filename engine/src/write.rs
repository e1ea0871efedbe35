//! One writing statement inside an open transaction, and what it does to its session.
//!
//! Connections are shared by sessions, so what `last_insert_rowid()`, `changes()` and
//! `total_changes()` answer is carried with the session: the gate puts the values into the
//! text of a statement that asks, and here the connection is primed for the rarer one that
//! asks from within a trigger, and read out afterwards.

use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::logged::{self, Ledger};
use crate::names;
use crate::result::ResultSet;
use crate::statement::{self, Reply, RunLimits, Statement};
use crate::statement_gate::{Kind, SessionValues};

/// The savepoint in which a connection is primed. Clients cannot name it.
const PRIME_SAVEPOINT: &str = "\"_tidegate_prime\"";

/// Runs a write, a schema statement or a header pragma and notes it in the ledger.
pub(crate) fn run(
    connection: &mut Connection,
    ledger: &mut Ledger,
    statement: &Statement,
    limits: RunLimits,
) -> Result<Reply> {
    if statement.inspected.touches_session_triggers {
        prime(connection, &statement.values)?;
    }
    let before = Mark::of(connection);
    let mut result = match statement.inspected.kind {
        Kind::Ddl(_) => {
            logged::run_ddl(connection, statement.sql())?;
            ResultSet::default()
        }
        Kind::HeaderPragma { .. } => {
            let result = statement::run(connection, statement, limits)?;
            ledger.wrote(0, true);
            result
        }
        _ => {
            let outcome = statement::run(connection, statement, limits);
            if outcome.is_err() && may_have_kept(connection, statement.sql()) {
                ledger.wrote(0, true);
            }
            let result = outcome?;
            let changes = i64::try_from(result.changes).unwrap_or(i64::MAX);
            let counted = if may_overcount(statement.sql()) {
                0
            } else {
                changes
            };
            ledger.wrote(counted, may_be_quiet(statement.sql()));
            result
        }
    };
    let values = before.values_after(connection, statement, &result);
    result.rows_written = result.changes;
    result.last_insert_rowid = Some(values.last_insert_rowid);
    Ok(Reply { result, values })
}

/// True for errors after which nothing must be undone by us: for a constraint the engine has
/// undone the statement, or kept the rows that OR FAIL keeps. Either is what SQLite does.
///
/// Not when it failed in the manner of FAIL in what it had set off: the engine logs a row
/// after its triggers have run, so the row whose trigger failed is kept and not logged. Then
/// the whole statement is undone.
pub(crate) fn is_settled(error: &Error, connection: &Connection, statement: &Statement) -> bool {
    let constraint =
        matches!(error, Error::Sql { code, .. } if code.starts_with("SQLITE_CONSTRAINT"));
    constraint && !(sets_off_more(statement) && may_have_kept(connection, statement.sql()))
}

fn sets_off_more(statement: &Statement) -> bool {
    matches!(&statement.inspected.kind, Kind::Write(info) if info.sets_off_more)
}

/// An INSERT whose rows were all ignored may still have moved a sequence, which leaves no
/// log row. UPDATE and DELETE without rows do nothing at all.
fn may_be_quiet(sql: &str) -> bool {
    !starts_with_word(sql, "UPDATE") && !starts_with_word(sql, "DELETE")
}

/// The engine counts rows that it sets aside for a window function as changed. Those can only
/// come from a SELECT (they may hide in a view), so the ledger trusts the count of statements
/// without one.
fn may_overcount(sql: &str) -> bool {
    mentions(sql, "SELECT")
}

/// A statement that fails in the manner of FAIL keeps what it did. Rows are in the log, but
/// all that it did may be to move a sequence.
fn may_have_kept(connection: &Connection, sql: &str) -> bool {
    connection.has_kept_rows() || mentions(sql, "FAIL")
}

fn mentions(sql: &str, word: &str) -> bool {
    sql.as_bytes()
        .windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

fn starts_with_word(sql: &str, word: &str) -> bool {
    let head = sql.trim_start().get(..word.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(word))
}

/// What the connection answered before the statement.
struct Mark {
    last_insert_rowid: i64,
    total_changes: i64,
}

impl Mark {
    fn of(connection: &Connection) -> Self {
        Self {
            last_insert_rowid: connection.last_insert_rowid(),
            total_changes: connection.total_changes(),
        }
    }

    /// The session's values after the statement. The row id is the session's only if the
    /// statement inserted: seen from the connection when it moved; when it did not, a plain
    /// INSERT that changed rows inserted the very same id as somebody before it.
    fn values_after(
        &self,
        connection: &Connection,
        statement: &Statement,
        result: &ResultSet,
    ) -> SessionValues {
        let mut values = statement.values;
        if !matches!(statement.inspected.kind, Kind::Write(_)) {
            return values;
        }
        let rowid = connection.last_insert_rowid();
        let moved = rowid != self.last_insert_rowid;
        if moved || (result.changes > 0 && is_plain_insert(statement.sql())) {
            values.last_insert_rowid = rowid;
        }
        values.changes = i64::try_from(result.changes).unwrap_or(i64::MAX);
        // The engine counts each captured row a second time, for its log row.
        let counted = (connection.total_changes() - self.total_changes) / 2;
        values.total_changes += counted.max(values.changes);
        values
    }
}

/// An INSERT that cannot turn into an update.
fn is_plain_insert(sql: &str) -> bool {
    may_be_quiet(sql) && !(mentions(sql, "CONFLICT") && mentions(sql, "UPDATE"))
}

/// Makes the connection answer the session's values. There is no setter for the row id, but
/// it survives the rollback of the insert that set it.
fn prime(connection: &mut Connection, values: &SessionValues) -> Result<()> {
    if connection.last_insert_rowid() != values.last_insert_rowid {
        let insert = format!(
            "INSERT OR REPLACE INTO {}(to_seq, from_seq, keys) VALUES (?, 0, x'')",
            names::KEYS_TABLE
        );
        connection.execute(&format!("SAVEPOINT {PRIME_SAVEPOINT}"), &[])?;
        connection.execute(&insert, &[values.last_insert_rowid.into()])?;
        connection.execute(&format!("ROLLBACK TO {PRIME_SAVEPOINT}"), &[])?;
        connection.execute(&format!("RELEASE {PRIME_SAVEPOINT}"), &[])?;
    }
    connection.set_changes(values.changes);
    Ok(())
}
