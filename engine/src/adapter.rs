//! The one module that touches the engine's core API.
//!
//! The surface of the core changes between releases, so nothing above this file names one
//! of its types. What the adapter adds: typed errors, a loop that drives a statement to its
//! end, statements prepared once and kept, a time limit, interruption, and containment of
//! panics (a connection that panicked is marked broken and must be dropped).
//!
//! Everything here blocks. Call it from threads of our own, never from an async runtime:
//! the engine does its I/O inside `step`.
//!
//! A [`Connection`] has one user at a time (`&mut`), which also keeps the engine's rule that
//! a connection runs one writing statement at a time.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use turso::core as tc;

use crate::error::{Error, Result};
use crate::value::{Value, ValueRef};

/// Statements a connection keeps prepared. Preparing costs 30–45 µs, reuse 1–2 µs.
const STATEMENT_CACHE_MAX: usize = 256;

/// An open database file.
#[derive(Clone)]
pub struct Database {
    inner: Arc<tc::Database>,
}

/// A connection: one user at a time.
pub struct Connection {
    inner: Arc<tc::Connection>,
    cache: StatementCache,
    broken: bool,
    kept_rows: bool,
}

/// Interrupts what a connection is running, from another thread.
#[derive(Clone)]
pub struct InterruptHandle {
    inner: Arc<tc::Connection>,
}

/// The row under the cursor.
pub struct Row<'a> {
    inner: &'a tc::Row,
}

/// A statement's result columns: name and declared type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name as the engine gives it.
    pub name: String,
    /// The declared type of the table's column, when the result is a bare column.
    pub decltype: Option<String>,
}

/// What a prepared statement looks like from outside.
#[derive(Debug, Clone)]
pub struct Description {
    /// Result columns; empty for statements that give no rows.
    pub columns: Vec<Column>,
    /// Parameters in order: `None` for `?`, the name with its prefix otherwise.
    pub parameters: Vec<Option<String>>,
}

/// The capture setting of a connection, to be given to others. Setting it by PRAGMA waits for
/// the engine's write lock; handing on what a PRAGMA has once set does not.
#[derive(Clone)]
pub struct CaptureSetting {
    inner: tc::CaptureDataChangesInfo,
}

/// Values for the parameters of one run of a statement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bindings<'a> {
    /// In order of position.
    pub positional: &'a [Value],
    /// By name, with or without the prefix.
    pub named: &'a [(String, Value)],
}

/// A frozen view of the file's pages, for a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Watermark {
    max_frame: u64,
}

/// What a checkpoint did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointOutcome {
    /// False when a reader or writer kept it from finishing.
    pub complete: bool,
    /// Frames that were in the log, and frames moved to the database file.
    pub frames: (i64, i64),
}

impl Database {
    /// Opens the file, creating it when absent. Experimental features of the engine stay off.
    pub fn open(path: &Path) -> Result<Self> {
        let path = path
            .to_str()
            .ok_or_else(|| Error::Io(format!("{} is not UTF-8", path.display())))?;
        let inner = contain(|| {
            let io: Arc<dyn tc::IO> = Arc::new(tc::UnixIO::new()?);
            tc::Database::open_file_with_flags(
                io,
                path,
                tc::OpenFlags::default(),
                tc::DatabaseOpts::new(),
                None,
                Arc::new(tc::SqliteDialect),
            )
        })?;
        Ok(Self { inner })
    }

    /// True when no connection and no clone of this database is left. The engine keeps one
    /// database for each file of a process, so that a file that is to be moved must have
    /// been let go by everybody.
    pub fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// A bare connection: capture off, foreign keys off, automatic checkpoints off.
    /// Only the factory of this crate turns it into one that may write.
    pub fn connect(&self) -> Result<Connection> {
        let inner = contain(|| self.inner.connect())?;
        inner.wal_auto_actions_disable();
        Ok(Connection {
            inner,
            cache: StatementCache::default(),
            broken: false,
            kept_rows: false,
        })
    }
}

impl Connection {
    /// Runs a statement, ignoring rows. Returns the number of rows it changed.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<i64> {
        self.query(sql, params, |_| Ok(()))
    }

    /// Runs a statement and hands each row to `each`. Returns the number of rows changed.
    /// An error from `each` ends the statement.
    pub fn query(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<i64> {
        self.run(sql, params.iter().map(Value::as_ref), each)
    }

    /// The same with borrowed parameters; text must be UTF-8.
    pub fn run<'p>(
        &mut self,
        sql: &str,
        params: impl Iterator<Item = ValueRef<'p>>,
        mut each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<i64> {
        self.run_until(sql, params, |row| each(row).map(ControlFlow::Continue))
    }

    /// The same, until `each` breaks: the rows behind that one are never computed.
    pub fn run_until<'p>(
        &mut self,
        sql: &str,
        params: impl Iterator<Item = ValueRef<'p>>,
        each: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<i64> {
        let mut statement = self.take_statement(sql)?;
        let outcome = self.drive(&mut statement, params, each);
        if outcome.is_ok() {
            self.cache.put(sql, statement);
        }
        outcome
    }

    /// Runs a client's statement: binds by position and by name, leaves every other
    /// parameter NULL, and gives the result's columns as they are when the statement ends
    /// (one prepared before a change of the schema is prepared anew by the engine).
    pub fn run_bound(
        &mut self,
        sql: &str,
        bindings: Bindings<'_>,
        columns: Option<&mut Vec<Column>>,
        mut each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<i64> {
        let mut statement = self.take_statement(sql)?;
        let outcome = bind_all(&mut statement, bindings).and_then(|()| {
            let each = |row: &Row<'_>| each(row).map(ControlFlow::Continue);
            self.drive(&mut statement, std::iter::empty(), each)
        });
        if let (Ok(_), Some(columns)) = (&outcome, columns) {
            *columns = describe_columns(&statement);
        }
        if outcome.is_ok() {
            self.cache.put(sql, statement);
        }
        outcome
    }

    /// Prepares and keeps a statement. What fails here fails without any effect.
    pub fn prepare(&mut self, sql: &str) -> Result<()> {
        let statement = self.take_statement(sql)?;
        self.cache.put(sql, statement);
        Ok(())
    }

    /// The only value of the only row; an error when there is none.
    pub fn query_value(&mut self, sql: &str, params: &[Value]) -> Result<Value> {
        let mut found = None;
        self.query(sql, params, |row| {
            if found.is_none() {
                found = Some(row.value(0)?);
            }
            Ok(())
        })?;
        found.ok_or_else(|| Error::Corrupt(format!("no row from: {sql}")))
    }

    /// The only value as an integer; NULL counts as `None`.
    pub fn query_integer(&mut self, sql: &str, params: &[Value]) -> Result<Option<i64>> {
        match self.query_value(sql, params)? {
            Value::Integer(i) => Ok(Some(i)),
            Value::Null => Ok(None),
            other => Err(Error::Corrupt(format!(
                "{other:?} is not an integer: {sql}"
            ))),
        }
    }

    /// All rows, owned.
    pub fn query_all(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        self.query(sql, params, |row| {
            rows.push(row.to_values()?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Prepares without running: columns and parameters.
    pub fn describe(&mut self, sql: &str) -> Result<Description> {
        let statement = self.take_statement(sql)?;
        let columns = describe_columns(&statement);
        let parameters = describe_parameters(&statement);
        self.cache.put(sql, statement);
        Ok(Description {
            columns,
            parameters,
        })
    }

    /// Bytes of `sql` that its first statement takes, for texts that hold several.
    pub fn first_statement_len(&mut self, sql: &str) -> Result<usize> {
        let statement = contain(|| self.inner.prepare(sql)).map_err(|e| self.note(e))?;
        Ok(statement.tail_offset())
    }

    /// True while no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        self.inner.get_auto_commit()
    }

    /// Row id of the last insert of this connection.
    pub fn last_insert_rowid(&self) -> i64 {
        self.inner.last_insert_rowid()
    }

    /// The capture setting in force; `None` when capture is off.
    pub fn capture_setting(&self) -> Option<CaptureSetting> {
        let info = self.inner.get_capture_data_changes_info().clone();
        info.map(|inner| CaptureSetting { inner })
    }

    /// Takes over the capture setting of another connection of this database.
    pub fn set_capture_setting(&mut self, setting: &CaptureSetting) {
        self.cache.clear();
        self.inner
            .set_capture_data_changes_info(Some(setting.inner.clone()));
    }

    /// Rows changed by the last statement.
    pub fn changes(&self) -> i64 {
        self.inner.changes()
    }

    /// Rows changed since the connection was made.
    pub fn total_changes(&self) -> i64 {
        self.inner.total_changes()
    }

    /// Sets what `changes()` answers on this connection.
    pub fn set_changes(&self, changes: i64) {
        self.inner.set_changes(changes);
    }

    /// Limits each later statement to this time; zero means no limit.
    pub fn set_query_timeout(&mut self, limit: Duration) {
        self.inner.set_query_timeout(limit);
    }

    /// Waits this long for the engine's lock before answering busy. Zero at first.
    pub fn set_busy_timeout(&mut self, limit: Duration) {
        self.inner.set_busy_timeout(limit);
    }

    /// A handle that can interrupt this connection.
    pub fn interrupt_handle(&self) -> InterruptHandle {
        InterruptHandle {
            inner: self.inner.clone(),
        }
    }

    /// True when the last statement failed and kept what it had done until then: OR FAIL, a
    /// constraint declared ON CONFLICT FAIL, RAISE(FAIL).
    pub fn has_kept_rows(&self) -> bool {
        self.kept_rows
    }

    /// True after a panic: drop the connection.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Moves the write-ahead log into the file and truncates it.
    pub fn checkpoint_truncate(&mut self) -> Result<CheckpointOutcome> {
        self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    /// Moves what no reader needs into the file. Never bounds the log by itself.
    pub fn checkpoint_passive(&mut self) -> Result<CheckpointOutcome> {
        self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")
    }

    /// The pages this connection's open read transaction sees, for [`Self::read_page`].
    pub fn watermark(&mut self) -> Result<Watermark> {
        let state = contain(|| self.inner.wal_state()).map_err(|e| self.note(e))?;
        Ok(Watermark {
            max_frame: state.max_frame,
        })
    }

    /// Reads one page (numbers start at 1) as of the watermark. A page that did not exist
    /// then leaves `false`.
    pub fn read_page(&mut self, page: u32, at: Watermark, buffer: &mut [u8]) -> Result<bool> {
        contain(|| {
            self.inner
                .try_wal_watermark_read_page(page, buffer, Some(at.max_frame))
        })
        .map_err(|e| self.note(e))
    }

    /// Forgets prepared statements.
    pub fn clear_statements(&mut self) {
        self.cache.clear();
    }

    /// Closes the connection. With automatic checkpoints off, as here, not even the last one
    /// moves the write-ahead log into the file: checkpoint first.
    pub fn close(mut self) -> Result<()> {
        self.cache.clear();
        contain(|| self.inner.close())
    }

    fn checkpoint(&mut self, sql: &str) -> Result<CheckpointOutcome> {
        let mut outcome = None;
        self.query(sql, &[], |row| {
            let number = |i| row.get(i).as_integer().unwrap_or(-1);
            outcome = Some(CheckpointOutcome {
                complete: number(0) == 0,
                frames: (number(1), number(2)),
            });
            Ok(())
        })?;
        outcome.ok_or_else(|| Error::Corrupt("a checkpoint gave no row".into()))
    }

    /// Before ALTER TABLE the cache is emptied: the engine changes its picture of the schema
    /// in place and panics while a prepared statement still points into it.
    fn take_statement(&mut self, sql: &str) -> Result<Box<tc::Statement>> {
        if self.broken {
            return Err(Error::Panicked("the connection is retired".into()));
        }
        if first_word(sql).eq_ignore_ascii_case("ALTER") {
            self.cache.clear();
        }
        match self.cache.take(sql) {
            Some(mut statement) => {
                // What an earlier user of the connection bound is none of the next one's.
                statement.clear_bindings();
                Ok(statement)
            }
            None => contain(|| self.inner.prepare(sql).map(Box::new)).map_err(|e| self.note(e)),
        }
    }

    fn drive<'p>(
        &mut self,
        statement: &mut tc::Statement,
        params: impl Iterator<Item = ValueRef<'p>>,
        mut each: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<i64> {
        // The inner result is the engine's, the outer one the caller's closure's.
        let mut kept_rows = false;
        let driven = contain(|| {
            for (index, value) in params.enumerate() {
                let at = NonZeroUsize::new(index + 1).expect("parameters count from one");
                statement.bind_at(at, to_core(value)?)?;
            }
            let outcome = step_to_end(statement, &mut each);
            kept_rows = matches!(
                outcome,
                Err(tc::LimboError::Raise(
                    turso_parser::ast::ResolveType::Fail,
                    _
                ))
            );
            if outcome.is_err() || matches!(outcome, Ok(Err(_))) {
                statement.reset_best_effort();
            } else {
                statement.reset()?;
            }
            outcome
        });
        self.kept_rows = kept_rows;
        match driven {
            Ok(Ok(changes)) => Ok(changes),
            Ok(Err(from_closure)) => Err(from_closure),
            Err(error) => Err(self.note(error)),
        }
    }

    /// Remembers that a panic happened, so that the connection is never used again.
    fn note(&mut self, error: Error) -> Error {
        if matches!(error, Error::Panicked(_)) {
            self.broken = true;
            self.cache.clear();
        }
        error
    }
}

impl InterruptHandle {
    /// Stops running statements; a no-op when none runs.
    pub fn interrupt(&self) {
        self.inner.interrupt();
    }
}

impl<'a> Row<'a> {
    /// Number of columns.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// True for a row without columns.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The value in a column, borrowed. Panics when `index` is out of range.
    pub fn get(&self, index: usize) -> ValueRef<'a> {
        from_core(self.inner.get_value(index))
    }

    /// The value in a column, owned.
    pub fn value(&self, index: usize) -> Result<Value> {
        self.get(index).to_value().ok_or_else(not_utf8)
    }

    /// All values, borrowed.
    pub fn values(&self) -> impl Iterator<Item = ValueRef<'a>> + use<'a> {
        self.inner.get_values().map(from_core)
    }

    /// All values, owned.
    pub fn to_values(&self) -> Result<Vec<Value>> {
        self.values()
            .map(|v| v.to_value().ok_or_else(not_utf8))
            .collect()
    }

    /// An integer column; anything else is an error that names it.
    pub fn integer(&self, index: usize) -> Result<i64> {
        self.get(index)
            .as_integer()
            .ok_or_else(|| Error::Corrupt(format!("column {index} is not an integer")))
    }

    /// A text column; anything else is an error that names it.
    pub fn text(&self, index: usize) -> Result<&'a str> {
        self.get(index)
            .as_text()
            .ok_or_else(|| Error::Corrupt(format!("column {index} is not text")))
    }
}

/// Least recently used statements leave first. Linear eviction: it happens only when a
/// connection sees more than [`STATEMENT_CACHE_MAX`] different texts.
#[derive(Default)]
struct StatementCache {
    /// Boxed: a statement is large, and taking and putting it moves it.
    entries: HashMap<String, (u64, Box<tc::Statement>)>,
    clock: u64,
}

impl StatementCache {
    fn take(&mut self, sql: &str) -> Option<Box<tc::Statement>> {
        self.entries.remove(sql).map(|(_, statement)| statement)
    }

    fn put(&mut self, sql: &str, statement: Box<tc::Statement>) {
        if self.entries.len() >= STATEMENT_CACHE_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&key);
            }
        }
        self.clock += 1;
        self.entries.insert(sql.to_owned(), (self.clock, statement));
    }

    fn clear(&mut self) {
        self.entries.clear();
    }
}

/// The first word of a statement, whatever blanks and comments stand before it.
fn first_word(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic());
            return &rest[..end.unwrap_or(rest.len())];
        };
        rest = after.trim_start();
    }
}

fn bind_all(statement: &mut tc::Statement, bindings: Bindings<'_>) -> Result<()> {
    let count = statement.parameters_count();
    if bindings.positional.len() > count {
        return Err(sql(
            "SQLITE_RANGE",
            format!(
                "{} values for {count} parameters",
                bindings.positional.len()
            ),
        ));
    }
    for (index, value) in bindings.positional.iter().enumerate() {
        bind_one(statement, NonZeroUsize::MIN.saturating_add(index), value)?;
    }
    for (name, value) in bindings.named {
        let at = find_parameter(statement, name)
            .ok_or_else(|| sql("SQLITE_RANGE", format!("no parameter is named {name}")))?;
        bind_one(statement, at, value)?;
    }
    Ok(())
}

fn bind_one(statement: &mut tc::Statement, at: NonZeroUsize, value: &Value) -> Result<()> {
    to_core(value.as_ref())
        .and_then(|value| statement.bind_at(at, value))
        .map_err(from_core_error)
}

fn find_parameter(statement: &tc::Statement, name: &str) -> Option<NonZeroUsize> {
    statement.parameter_index(name).or_else(|| {
        [":", "@", "$"]
            .iter()
            .find_map(|prefix| statement.parameter_index(&format!("{prefix}{name}")))
    })
}

fn step_to_end(
    statement: &mut tc::Statement,
    each: &mut impl FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
) -> tc::Result<Result<i64>> {
    loop {
        match statement.step()? {
            tc::StepResult::Done => return Ok(Ok(statement.n_change())),
            tc::StepResult::Row => {
                let inner = statement.row().expect("a row is present after Row");
                match each(&Row { inner }) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return Ok(Ok(statement.n_change())),
                    Err(error) => return Ok(Err(error)),
                }
            }
            tc::StepResult::IO | tc::StepResult::Yield => statement._io().step()?,
            tc::StepResult::Sleep { duration } => std::thread::sleep(duration),
            tc::StepResult::Busy => return Err(tc::LimboError::Busy),
            tc::StepResult::Interrupt => return Err(tc::LimboError::Interrupt),
        }
    }
}

fn describe_columns(statement: &tc::Statement) -> Vec<Column> {
    (0..statement.num_columns())
        .map(|i| Column {
            name: statement.get_column_name(i).into_owned(),
            decltype: statement.get_column_decltype(i),
        })
        .collect()
}

fn describe_parameters(statement: &tc::Statement) -> Vec<Option<String>> {
    let parameters = statement.parameters();
    (1..=statement.parameters_count())
        .map(|i| parameters.name(NonZeroUsize::new(i)?))
        .collect()
}

/// Runs a call of the engine; a panic becomes an error.
fn contain<T>(call: impl FnOnce() -> tc::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(outcome) => outcome.map_err(from_core_error),
        Err(payload) => Err(Error::Panicked(panic_message(payload.as_ref()))),
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

fn from_core(value: &tc::Value) -> ValueRef<'_> {
    match value {
        tc::Value::Null => ValueRef::Null,
        tc::Value::Numeric(tc::Numeric::Integer(i)) => ValueRef::Integer(*i),
        tc::Value::Numeric(tc::Numeric::Float(f)) => ValueRef::Real(f64::from(*f)),
        tc::Value::Text(t) => ValueRef::Text(t.as_str().as_bytes()),
        tc::Value::Blob(b) => ValueRef::Blob(b.as_ref()),
    }
}

fn to_core(value: ValueRef<'_>) -> tc::Result<tc::Value> {
    Ok(match value {
        ValueRef::Null => tc::Value::Null,
        ValueRef::Integer(i) => tc::Value::from_i64(i),
        ValueRef::Real(r) => tc::Value::from_f64(r),
        ValueRef::Text(t) => {
            let text = std::str::from_utf8(t)
                .map_err(|_| tc::LimboError::InvalidArgument("text is not UTF-8".into()))?;
            tc::Value::from_text(text.to_owned())
        }
        ValueRef::Blob(b) => tc::Value::from_blob(b.to_vec()),
    })
}

fn not_utf8() -> Error {
    Error::Sql {
        code: "SQLITE_ERROR",
        message: "text that is not UTF-8; read it with CAST(column AS BLOB)".into(),
    }
}

fn from_core_error(error: tc::LimboError) -> Error {
    use tc::LimboError as E;
    let message = error.to_string();
    match error {
        E::Busy | E::TableLocked | E::StatementsInProgress(_) => Error::Busy,
        E::BusySnapshot => Error::StaleSnapshot,
        E::Interrupt => Error::Interrupted,
        E::DatabaseFull => Error::NoSpace(message),
        E::Corrupt(_) | E::NotADB => Error::Corrupt(message),
        E::TooBig | E::OutOfMemory => Error::TooLarge(message),
        E::CompletionError(_) => from_io_error(&message),
        E::Constraint(_) => Error::Sql {
            code: constraint_code(&message),
            message,
        },
        E::ForeignKeyConstraint(_) => sql("SQLITE_CONSTRAINT_FOREIGNKEY", message),
        // The engine raises a failed OR FAIL the way a trigger's RAISE is raised.
        E::Raise(..) => match constraint_code(&message) {
            "SQLITE_CONSTRAINT" => sql("SQLITE_CONSTRAINT_TRIGGER", message),
            code => sql(code, message),
        },
        E::ReadOnly => sql("SQLITE_READONLY", message),
        E::SchemaUpdated | E::SchemaConflict => sql("SQLITE_SCHEMA", message),
        _ => sql("SQLITE_ERROR", message),
    }
}

fn sql(code: &'static str, message: String) -> Error {
    Error::Sql { code, message }
}

/// The engine tells errors of the file system by text only.
fn from_io_error(message: &str) -> Error {
    let lower = message.to_ascii_lowercase();
    let full = ["no space", "storage full", "quota", "storagefull"];
    if full.iter().any(|word| lower.contains(word)) {
        Error::NoSpace(message.to_owned())
    } else {
        Error::Io(message.to_owned())
    }
}

fn constraint_code(message: &str) -> &'static str {
    const CODES: [(&str, &str); 5] = [
        ("UNIQUE constraint", "SQLITE_CONSTRAINT_UNIQUE"),
        ("PRIMARY KEY constraint", "SQLITE_CONSTRAINT_PRIMARYKEY"),
        ("NOT NULL constraint", "SQLITE_CONSTRAINT_NOTNULL"),
        ("CHECK constraint", "SQLITE_CONSTRAINT_CHECK"),
        ("FOREIGN KEY constraint", "SQLITE_CONSTRAINT_FOREIGNKEY"),
    ];
    CODES
        .iter()
        .find(|(words, _)| message.starts_with(words))
        .map_or("SQLITE_CONSTRAINT", |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_found_behind_comments() {
        for sql in [
            "ALTER TABLE t",
            " \n ALTER\tTABLE",
            "-- a\n/* b */ALTER TABLE",
        ] {
            assert_eq!(first_word(sql), "ALTER", "{sql}");
        }
        assert_eq!(first_word("/* never closed"), "");
        assert_eq!(first_word("(SELECT 1)"), "");
    }
}
