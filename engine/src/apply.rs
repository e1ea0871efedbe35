//! Applying a batch: making this copy exactly what its source was at the batch's end.
//!
//! One transaction, in this order:
//!
//! 1. every touched row is deleted, under the table names valid at the start;
//! 2. the schema statements are run again (triggers are not among them);
//! 3. the rows are put, under the names valid at the end;
//! 4. sequences, `user_version`, `application_id` and the dormant triggers are set;
//! 5. the stretch of the log is stored, so that this copy knows its position by its own log
//!    and can feed another.
//!
//! Deleting all before putting any lets unique values be swapped. A put is a plain INSERT: a
//! conflict would mean that this copy holds a row that its source does not, and is an alarm,
//! not something to replace. Whatever surprises is [`Error::Diverging`], the transaction is
//! rolled back and the position stays; nothing is ever skipped.

use std::sync::{Arc, Mutex, PoisonError};

use crate::adapter::Connection;
use crate::batch::{BatchReader, Header, Record};
use crate::change::{LogItem, Seq};
use crate::codec;
use crate::error::{Error, Result};
use crate::finals::{self, HeaderValues, Sequence};
use crate::log::{COMMIT_RECORD, INSERT_RECORD};
use crate::names;
use crate::plan::{self, Plan};
use crate::rows::{self, Puts};
use crate::schema::{TableShape, table_shape};
use crate::spool::Spool;
use crate::store::Store;
use crate::triggers::{self, Trigger};
use crate::value::Value;
use crate::view::read_head;

/// Applies batches to one copy, in order.
pub struct Applier {
    connection: Connection,
    position: Seq,
    turn: Arc<Mutex<()>>,
}

/// What was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The position before.
    pub from: Seq,
    /// The position now.
    pub to: Seq,
    /// Rows put.
    pub rows: u64,
    /// The source's time of the batch, in milliseconds since 1970.
    pub committed_ms: i64,
}

impl Applier {
    /// Begins to follow: whatever trigger is awake in this copy is put to sleep first.
    pub fn open(store: &Store) -> Result<Self> {
        let mut connection = store.applying()?;
        in_transaction(&mut connection, |connection| {
            triggers::put_to_sleep(connection)?;
            Ok(())
        })?;
        let position = read_head(&mut connection)?;
        Ok(Self {
            connection,
            position,
            turn: store.turn().clone(),
        })
    }

    /// The position of this copy.
    pub fn position(&self) -> Seq {
        self.position
    }

    /// True after a panic of the engine: open another applier.
    pub fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }

    /// Applies one batch, durably and wholly, or not at all.
    pub fn apply(&mut self, batch: &mut Spool) -> Result<Applied> {
        let (mut reader, header) = BatchReader::open(batch)?;
        let position = self.position;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = in_transaction(&mut self.connection, |connection| {
            if header.from != position || read_head(connection)? != position {
                return Err(Error::Diverging(format!(
                    "the batch starts at {} but this copy is at {position}",
                    header.from
                )));
            }
            Apply::new(connection, header).run(&mut reader)
        })?;
        let head = read_head(&mut self.connection)?;
        if head != header.to {
            return Err(Error::Fatal(format!(
                "after applying up to {} the log ends at {head}",
                header.to
            )));
        }
        self.position = header.to;
        Ok(Applied {
            from: header.from,
            to: header.to,
            rows,
            committed_ms: header.committed_ms,
        })
    }

    /// The connection, for what belongs to the same node and must not run beside an apply.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Runs `work` in a transaction; rolls back when it fails.
fn in_transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    connection.execute("BEGIN IMMEDIATE", &[])?;
    let outcome = work(connection).and_then(|done| {
        check_open(connection)?;
        connection.execute("COMMIT", &[])?;
        Ok(done)
    });
    if outcome.is_err() && !connection.is_broken() && !connection.is_autocommit() {
        connection.execute("ROLLBACK", &[])?;
    }
    outcome
}

/// Some errors end the transaction and leave the connection in autocommit, where each later
/// statement would be a commit of its own.
fn check_open(connection: &Connection) -> Result<()> {
    if connection.is_autocommit() {
        Err(Error::Diverging(
            "the transaction of a batch was ended by a statement in it".into(),
        ))
    } else {
        Ok(())
    }
}

/// The final values that a batch carried.
#[derive(Default)]
struct Final {
    sequences: Option<Vec<Sequence>>,
    header: Option<HeaderValues>,
    triggers: Option<Vec<Trigger>>,
}

struct Apply<'c> {
    connection: &'c mut Connection,
    header: Header,
    items: Vec<LogItem>,
    plan: Plan,
    puts: Option<Puts>,
    sequences_before: Vec<Sequence>,
}

impl<'c> Apply<'c> {
    fn new(connection: &'c mut Connection, header: Header) -> Self {
        Self {
            connection,
            header,
            items: Vec::new(),
            plan: Plan::default(),
            puts: None,
            sequences_before: Vec::new(),
        }
    }

    fn run(mut self, reader: &mut BatchReader<'_>) -> Result<u64> {
        self.sequences_before = finals::read_sequences(self.connection)?;
        let mut last = Final::default();
        let mut in_log = true;
        loop {
            let record = reader.read()?;
            if in_log && !matches!(record, Record::Item(_)) {
                in_log = false;
                self.begin_rows()?;
            }
            match record {
                Record::Item(item) => self.items.push(item),
                Record::Table { name, columns } => self.begin_table(name, &columns)?,
                Record::Row { rowid, values } => {
                    let puts = self.puts.as_mut().expect("a row follows its table");
                    puts.put(self.connection, rowid, &values)?;
                }
                Record::Sequences(sequences) => last.sequences = Some(sequences),
                Record::Pragmas(header) => last.header = Some(header),
                Record::Triggers(triggers) => last.triggers = Some(triggers),
                Record::End { rows } => {
                    self.end(last)?;
                    return Ok(rows);
                }
            }
        }
    }

    fn end(mut self, last: Final) -> Result<()> {
        self.flush()?;
        self.set_finals(last)?;
        self.store_log()?;
        check_open(self.connection)
    }

    /// The log is read: delete the touched rows and change the schema.
    fn begin_rows(&mut self) -> Result<()> {
        check_items(&self.items, self.header)?;
        self.plan = plan::plan(&self.items)?;
        for (table, keys) in std::mem::take(&mut self.plan.deletes) {
            let shape = self.shape(&table)?;
            rows::delete_rows(self.connection, &shape, &keys)?;
        }
        if self.plan.has_ddl {
            self.run_statements()?;
        }
        Ok(())
    }

    /// Prepared statements do not outlive a change of what they refer to.
    fn run_statements(&mut self) -> Result<()> {
        self.connection.clear_statements();
        for item in &self.items {
            if let LogItem::Ddl(ddl) = item {
                rows::run(self.connection, &ddl.sql, std::iter::empty())?;
            }
        }
        self.connection.clear_statements();
        Ok(())
    }

    fn begin_table(&mut self, name: &str, columns: &[&str]) -> Result<()> {
        let shape = self.shape(name)?;
        if shape.columns != columns {
            return Err(Error::Diverging(format!(
                "table {name} has columns {:?} here and {columns:?} in the batch",
                shape.columns
            )));
        }
        let keys = self.plan.puts.remove(&crate::ddl::fold(name));
        let keys = keys.ok_or_else(|| {
            Error::Diverging(format!("rows of table {name}, which the log does not name"))
        })?;
        self.flush()?;
        self.puts = Some(Puts::new(&shape, keys));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match self.puts.take() {
            Some(mut puts) => puts.flush(self.connection),
            None => Ok(()),
        }
    }

    /// Sequences are set even when the batch has none: a put moves them, where on the source
    /// an UPDATE of the key did not.
    fn set_finals(&mut self, last: Final) -> Result<()> {
        let before = std::mem::take(&mut self.sequences_before);
        let sequences = last.sequences.unwrap_or(before);
        finals::write_sequences(self.connection, &sequences)?;
        if let Some(header) = last.header {
            finals::write_header(self.connection, header)?;
        }
        if let Some(triggers) = last.triggers {
            triggers::replace_dormant(self.connection, &triggers)?;
        }
        check_open(self.connection)
    }

    fn store_log(&mut self) -> Result<()> {
        let items = std::mem::take(&mut self.items);
        let mut last = self.header.from;
        for item in &items {
            match item {
                LogItem::Interval(interval) => self.store_row(
                    &format!(
                        "INSERT INTO {}(to_seq, from_seq, keys) VALUES (?, ?, ?)",
                        names::KEYS_TABLE
                    ),
                    &[
                        interval.to.to_sql().into(),
                        interval.from.to_sql().into(),
                        codec::encode_keys(&interval.touched).into(),
                    ],
                )?,
                LogItem::Ddl(ddl) => {
                    let at = ddl.seq.to_sql();
                    let sql = format!("INSERT INTO {}(id, sql) VALUES (?, ?)", names::DDL_TABLE);
                    self.store_row(&sql, &[at.into(), ddl.sql.as_str().into()])?;
                    let touched = [names::DDL_TABLE.into(), at.into()];
                    self.store_captured(ddl.seq, INSERT_RECORD, touched)?;
                    last = ddl.seq;
                }
            }
        }
        if last < self.header.to {
            let nothing = [Value::Null, Value::Null];
            self.store_captured(self.header.to, COMMIT_RECORD, nothing)?;
        }
        Ok(())
    }

    /// A row of the engine's own log, as the primary has it.
    fn store_captured(&mut self, seq: Seq, change: i64, touched: [Value; 2]) -> Result<()> {
        let [table, key] = touched;
        let sql = "INSERT INTO turso_cdc\
                   (change_id, change_time, change_txn_id, change_type, table_name, id) \
                   VALUES (?, ?, ?, ?, ?, ?)";
        let time = self.header.committed_ms / 1000;
        let transaction = self.header.from.next().to_sql();
        let row = [
            seq.to_sql().into(),
            time.into(),
            transaction.into(),
            change.into(),
            table,
            key,
        ];
        self.store_row(sql, &row)
    }

    fn store_row(&mut self, sql: &str, row: &[Value]) -> Result<()> {
        rows::run(self.connection, sql, row.iter().map(Value::as_ref))?;
        Ok(())
    }

    fn shape(&mut self, table: &str) -> Result<TableShape> {
        let shape = table_shape(self.connection, table)?;
        shape.ok_or_else(|| {
            Error::Diverging(format!("the batch names table {table}, which is not here"))
        })
    }
}

/// Items ascend, lie in the batch, and name only tables that are replicated as rows.
fn check_items(items: &[LogItem], header: Header) -> Result<()> {
    let mut last = header.from;
    for item in items {
        let ascends = match item {
            LogItem::Interval(interval) => {
                check_tables(interval.touched.keys())?;
                interval.from >= last && interval.to > interval.from
            }
            LogItem::Ddl(ddl) => ddl.seq > last,
        };
        if !ascends || item.end() > header.to {
            return Err(Error::Format(format!(
                "an item ends at {} in a batch from {} to {}, after {last}",
                item.end(),
                header.from,
                header.to
            )));
        }
        last = item.end();
    }
    Ok(())
}

fn check_tables<'a>(mut tables: impl Iterator<Item = &'a String>) -> Result<()> {
    let is_row_table = |name: &str| names::is_replicated(name) && name != names::DDL_TABLE;
    match tables.find(|name| !is_row_table(name)) {
        None => Ok(()),
        Some(name) => Err(Error::Format(format!(
            "a batch touches {name}, which is local to each node"
        ))),
    }
}
