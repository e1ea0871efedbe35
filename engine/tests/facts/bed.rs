//! The test bed: a file of its own for each test, bare connections, and the log as words.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidegate_engine::adapter::{Connection, Database};
use tidegate_engine::{Error, Value};

/// A database file in a directory that goes when the test ends.
pub struct Bed {
    pub database: Database,
    dir: TempDir,
}

impl Bed {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(&dir.path().join("fact.db")).expect("a new database");
        Self { database, dir }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("fact.db")
    }

    pub fn wal_len(&self) -> u64 {
        let wal = self.dir.path().join("fact.db-wal");
        std::fs::metadata(wal).map_or(0, |m| m.len())
    }

    /// A connection as the engine gives it: no capture, no foreign keys.
    pub fn plain(&self) -> Connection {
        self.database.connect().expect("a connection")
    }

    /// A connection that captures keys, as Tidegate's do.
    pub fn capturing(&self) -> Connection {
        self.capturing_in("id")
    }

    /// A connection that captures in another of the engine's modes.
    pub fn capturing_in(&self, mode: &str) -> Connection {
        let mut connection = self.plain();
        run(
            &mut connection,
            &format!("PRAGMA capture_data_changes_conn('{mode}')"),
        );
        connection
    }
}

/// Runs a statement that must succeed.
#[track_caller]
pub fn run(connection: &mut Connection, sql: &str) -> i64 {
    match connection.execute(sql, &[]) {
        Ok(changes) => changes,
        Err(error) => panic!("{sql}: {error}"),
    }
}

/// Runs statements that must all succeed.
#[track_caller]
pub fn run_all(connection: &mut Connection, statements: &[&str]) {
    for sql in statements {
        run(connection, sql);
    }
}

/// Runs statements in one transaction of ours.
#[track_caller]
pub fn transact(connection: &mut Connection, statements: &[&str]) {
    run(connection, "BEGIN IMMEDIATE");
    run_all(connection, statements);
    run(connection, "COMMIT");
}

/// Runs a statement that must fail.
#[track_caller]
pub fn fails(connection: &mut Connection, sql: &str) -> Error {
    match connection.execute(sql, &[]) {
        Ok(_) => panic!("did not fail: {sql}"),
        Err(error) => error,
    }
}

/// All rows of a query.
#[track_caller]
pub fn rows(connection: &mut Connection, sql: &str) -> Vec<Vec<Value>> {
    connection
        .query_all(sql, &[])
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The first column of all rows, as integers.
#[track_caller]
pub fn integers(connection: &mut Connection, sql: &str) -> Vec<i64> {
    rows(connection, sql)
        .iter()
        .map(|row| match row[0] {
            Value::Integer(i) => i,
            ref other => panic!("{sql}: {other:?} is not an integer"),
        })
        .collect()
}

/// The first column of all rows, as text.
#[track_caller]
pub fn texts(connection: &mut Connection, sql: &str) -> Vec<String> {
    rows(connection, sql)
        .iter()
        .map(|row| match &row[0] {
            Value::Text(text) => text.clone(),
            other => panic!("{sql}: {other:?} is not text"),
        })
        .collect()
}

/// The log as words: `insert t 1`, `update t 1`, `delete t 1`, `insert schema`, `commit`,
/// and `empty commit` where the engine recorded a commit of no transaction.
#[track_caller]
pub fn log(connection: &mut Connection) -> Vec<String> {
    log_after(connection, 0)
}

/// The log beyond a position.
#[track_caller]
pub fn log_after(connection: &mut Connection, from: i64) -> Vec<String> {
    let sql = format!(
        "SELECT change_type, table_name, id, change_txn_id FROM turso_cdc \
         WHERE change_id > {from} ORDER BY change_id"
    );
    rows(connection, &sql)
        .iter()
        .map(|row| words(row))
        .collect()
}

/// The log's head.
#[track_caller]
pub fn head(connection: &mut Connection) -> i64 {
    integers(
        connection,
        "SELECT coalesce(max(change_id), 0) FROM turso_cdc",
    )[0]
}

/// What capture logs while `body` runs.
#[track_caller]
pub fn logged(connection: &mut Connection, body: impl FnOnce(&mut Connection)) -> Vec<String> {
    let from = head(connection);
    body(connection);
    log_after(connection, from)
}

fn words(row: &[Value]) -> String {
    let kind = match row[0] {
        Value::Integer(1) => "insert",
        Value::Integer(0) => "update",
        Value::Integer(-1) => "delete",
        Value::Integer(2) if row[3] == Value::Integer(-1) => return "empty commit".into(),
        Value::Integer(2) => return "commit".into(),
        ref other => panic!("unknown kind of change {other:?}"),
    };
    match (&row[1], &row[2]) {
        (Value::Text(table), _) if table == "sqlite_schema" => format!("{kind} schema"),
        (Value::Text(table), Value::Integer(key)) => format!("{kind} {table} {key}"),
        other => panic!("a change of {other:?}"),
    }
}
