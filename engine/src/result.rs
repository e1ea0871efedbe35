//! What goes into a statement and what comes out of it.

use std::time::Duration;

pub use crate::adapter::Column;
use crate::change::Seq;
use crate::value::Value;

/// Values for a statement's parameters. A parameter without a value is NULL, as in SQLite;
/// a value without a parameter is an error.
#[derive(Debug, Clone, Default)]
pub struct Params {
    /// Values for `?` and `?NNN`, in order.
    pub positional: Vec<Value>,
    /// Values by name, with or without the prefix `:`, `@` or `$`.
    pub named: Vec<(String, Value)>,
}

/// The answer to one statement.
#[derive(Debug, Clone, Default)]
pub struct ResultSet {
    /// Names and declared types of the result's columns.
    pub columns: Vec<Column>,
    /// Rows, when they were asked for.
    pub rows: Vec<Vec<Value>>,
    /// Rows that the statement itself inserted, updated or deleted; zero for reads.
    pub changes: u64,
    /// The session's last inserted row id, after a statement that writes.
    pub last_insert_rowid: Option<i64>,
    /// The position this answer stands for: after a write, where it is committed; after a
    /// read, the snapshot that was read. `None` inside a transaction that has not ended.
    pub position: Option<Seq>,
    /// Rows that the statement gave.
    pub rows_read: u64,
    /// Rows that the statement wrote.
    pub rows_written: u64,
    /// From the moment the session handed the statement over to its answer.
    pub elapsed: Duration,
}

/// What a statement looks like, without running it.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// Result columns.
    pub columns: Vec<Column>,
    /// Parameters in order: `None` for `?`, the name with its prefix otherwise.
    pub parameters: Vec<Option<String>>,
    /// True when the statement writes nothing.
    pub is_readonly: bool,
    /// True for EXPLAIN.
    pub is_explain: bool,
}

/// The newest committed position, and when it was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The position.
    pub seq: Seq,
    /// Milliseconds since 1970 on the primary's clock.
    pub committed_ms: i64,
}

impl Params {
    /// Values for `?` in order.
    pub fn positional(values: impl IntoIterator<Item = Value>) -> Self {
        Self {
            positional: values.into_iter().collect(),
            named: Vec::new(),
        }
    }

    /// Bytes of all values, for limits on memory.
    pub fn size_bytes(&self) -> usize {
        let positional: usize = self.positional.iter().map(Value::size_bytes).sum();
        let named = self.named.iter();
        let named: usize = named.map(|(n, v)| n.len() + v.size_bytes()).sum();
        positional + named
    }
}

impl ResultSet {
    /// The answer to `PRAGMA foreign_keys`.
    pub(crate) fn foreign_keys(on: bool) -> Self {
        Self {
            columns: vec![Column {
                name: "foreign_keys".into(),
                decltype: None,
            }],
            rows: vec![vec![Value::Integer(i64::from(on))]],
            rows_read: 1,
            ..Self::default()
        }
    }

    /// The only value of the only row, for tests and small questions.
    pub fn single(&self) -> Option<&Value> {
        match self.rows.as_slice() {
            [row] => row.first(),
            _ => None,
        }
    }
}
