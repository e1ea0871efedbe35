//! A read view: one read transaction, in which everything is of one snapshot.
//!
//! The tail, the digest and the snapshot all stand on it: the head, the keys touched up to
//! it and the rows those keys have now are read in one view and so belong together.
//!
//! Two traps of the engine are kept out here. The snapshot is taken at the first read, not
//! at BEGIN, so the view reads its head at once. And some errors roll the transaction back
//! and leave the connection in autocommit (a bad JSON text in a SELECT is enough), after
//! which later reads would see other commits; so the view checks after every statement that
//! it still stands, and an abandoned view answers nothing any more.

use crate::adapter::{Connection, Row, Watermark};
use crate::change::Seq;
use crate::error::{Error, Result};
use crate::gate::{Pass, ReadGate};
use crate::logged;
use crate::names;
use crate::store::table_exists;
use crate::value::Value;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A read transaction. Ends when dropped.
pub struct ReadView<'c> {
    connection: &'c mut Connection,
    head: Seq,
    _pass: Pass,
}

impl<'c> ReadView<'c> {
    /// Begins a read transaction and reads the head, which fixes the snapshot.
    /// Waits while a checkpoint holds the gate.
    pub fn begin(connection: &'c mut Connection, gate: &Arc<ReadGate>) -> Result<Self> {
        let pass = gate.enter();
        Self::begin_inside(connection, pass)
    }

    /// The same for reading the whole file: checkpoints do not try to wait for it.
    pub fn begin_long(connection: &'c mut Connection, gate: &Arc<ReadGate>) -> Result<Self> {
        let pass = gate.enter_long();
        Self::begin_inside(connection, pass)
    }

    fn begin_inside(connection: &'c mut Connection, pass: Pass) -> Result<Self> {
        connection.execute("BEGIN", &[])?;
        let mut view = Self {
            connection,
            head: Seq::ZERO,
            _pass: pass,
        };
        view.head = read_head(view.connection)?;
        view.check_open()?;
        Ok(view)
    }

    /// The log's head in this snapshot.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// Runs a query inside the view.
    pub fn query(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        self.connection.query(sql, params, each)?;
        self.check_open()
    }

    /// Runs a query inside the view until `each` breaks.
    pub fn query_until(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.check_open()?;
        let params = params.iter().map(Value::as_ref);
        self.connection.run_until(sql, params, each)?;
        self.check_open()
    }

    /// All rows of a query, owned.
    pub fn query_all(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        self.query(sql, params, |row| {
            rows.push(row.to_values()?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Runs several queries inside the view, for readers that also work outside one.
    pub(crate) fn with<T>(&mut self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        self.check_open()?;
        let outcome = work(self.connection)?;
        self.check_open()?;
        Ok(outcome)
    }

    /// The pages of this snapshot.
    pub fn watermark(&mut self) -> Result<Watermark> {
        self.check_open()?;
        self.connection.watermark()
    }

    /// Reads one page of this snapshot; see [`Connection::read_page`].
    pub fn read_page(&mut self, page: u32, at: Watermark, buffer: &mut [u8]) -> Result<bool> {
        self.check_open()?;
        self.connection.read_page(page, at, buffer)
    }

    fn check_open(&self) -> Result<()> {
        if self.connection.is_autocommit() {
            Err(Error::Io(
                "the read transaction was ended by an error; nothing it read is used".into(),
            ))
        } else {
            Ok(())
        }
    }
}

/// What a read view and a bare connection have in common, for what is read through either:
/// table shapes, openings, settings.
pub trait Reads {
    /// Runs a query and hands each row to `each`; an error from `each` ends it.
    fn read(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()>;
}

impl Reads for ReadView<'_> {
    fn read(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        self.query(sql, params, each)
    }
}

impl Reads for Connection {
    fn read(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        self.query(sql, params, each).map(drop)
    }
}

impl Drop for ReadView<'_> {
    fn drop(&mut self) {
        if !self.connection.is_autocommit() && self.connection.execute("COMMIT", &[]).is_err() {
            // The connection is of no use if it cannot even end a read transaction.
            self.connection.execute("ROLLBACK", &[]).ok();
        }
    }
}

/// The head of the log: the highest position written. An absent table is an empty log, but
/// only where nothing was ever recorded; with a history it means that the log was dropped.
pub fn read_head(connection: &mut Connection) -> Result<Seq> {
    if !table_exists(connection, names::CAPTURE_TABLE)? {
        let sql = format!("SELECT count(*) FROM {}", names::HISTORY_TABLE);
        return match connection.query_integer(&sql, &[])? {
            Some(0) => Ok(Seq::ZERO),
            _ => Err(Error::Fatal(
                "the capture table is missing although this database has a history".into(),
            )),
        };
    }
    let head = connection.query_integer("SELECT max(change_id) FROM turso_cdc", &[])?;
    Seq::from_sql(head.unwrap_or(0))
        .ok_or_else(|| Error::Corrupt(format!("negative position {head:?} in the log")))
}

/// The same inside an open transaction, in one statement where there is a log, which is
/// nearly always.
pub(crate) fn snapshot_head(connection: &mut Connection) -> Result<Seq> {
    match logged::head(connection) {
        Ok(head) => Ok(head),
        Err(_) => read_head(connection),
    }
}
