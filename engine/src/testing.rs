//! What the tests of this crate and of the ones above stand on: a primary and its copies,
//! driven through the production functions, and a comparison that forgives nothing.
//!
//! Here, and not in each test, because a test that re-implements the loop under test proves
//! nothing. Only tests use it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use turso_parser::ast::Stmt;

use crate::adapter::Connection;
use crate::apply::{Applied, Applier};
use crate::batch::Batch;
use crate::batch_reader::BatchLimits;
use crate::change::Seq;
use crate::codec;
use crate::ddl::{self, DdlEffect};
use crate::error::{Error, Result};
use crate::finals::{self, FinalsKnown};
use crate::logged::{self, Ledger};
use crate::meta;
use crate::names;
use crate::openings::{NextEpoch, open_as_primary};
use crate::schema::table_shape;
use crate::spool::{PART_BYTES_MAX, SPOOL_MEMORY_DEFAULT, Spool};
use crate::store::{Store, Synchronous};
use crate::triggers;
use crate::value::Value;
use crate::view::{ReadView, read_head};

/// Rows of one table that [`differences`] describes before it only counts.
const ROWS_DESCRIBED: usize = 3;

/// A primary that runs single statements as the writer does: every write in a transaction of
/// ours, with the log's rules.
pub struct Primary {
    /// Its data directory.
    pub store: Store,
    connection: Connection,
    ledger: Option<Ledger>,
}

/// A copy that follows.
pub struct Replica {
    /// Its data directory.
    pub store: Store,
    /// Applies what is shipped.
    pub applier: Applier,
    /// Final values it is known to have.
    pub known: FinalsKnown,
    /// Limits for the batches it asks for.
    pub limits: BatchLimits,
    /// The reader at the source, kept from batch to batch as a real source keeps it.
    reader: Option<(PathBuf, Connection)>,
}

/// A primary and one replica.
pub struct Pair {
    /// Takes statements.
    pub primary: Primary,
    /// Follows.
    pub replica: Replica,
}

impl Pair {
    /// Two new data directories under `dir`, foreign keys on.
    pub fn new(dir: &Path) -> Result<Self> {
        Ok(Self {
            primary: Primary::open(&dir.join("primary"), "primary", true)?,
            replica: Replica::open(&dir.join("replica"))?,
        })
    }

    /// Runs a statement on the primary; see [`Primary::run`].
    pub fn run(&mut self, sql: &str) -> Result<i64> {
        self.primary.run(sql)
    }

    /// Brings the replica to the primary's head. `None` when it was there.
    pub fn ship(&mut self) -> Result<Option<Applied>> {
        self.replica.follow(&self.primary.store)
    }

    /// How the two differ; empty when they are equal.
    pub fn differences(&self) -> Result<Vec<String>> {
        differences(&self.primary.store, &self.replica.store)
    }
}

impl Primary {
    /// Opens, or creates, a data directory and an opening in it.
    pub fn open(dir: &Path, node: &str, foreign_keys: bool) -> Result<Self> {
        Self::open_epoch(open_store(dir)?, node, foreign_keys, NextEpoch::Same)
    }

    /// The same with a chosen epoch, on an open store.
    pub fn open_epoch(
        store: Store,
        node: &str,
        foreign_keys: bool,
        epoch: NextEpoch,
    ) -> Result<Self> {
        let mut connection = store.capturing(foreign_keys)?;
        open_as_primary(&mut connection, node, "test", 0, epoch)?;
        Ok(Self {
            store,
            connection,
            ledger: None,
        })
    }

    /// Runs one statement: reads, writes, schema statements, transaction control, and
    /// `PRAGMA user_version = …`. Outside BEGIN … COMMIT each is a transaction of its own.
    /// Returns the changed rows.
    pub fn run(&mut self, sql: &str) -> Result<i64> {
        let statement = ddl::parse_one(sql)?;
        let outcome = match &statement {
            Stmt::Begin { .. } => self.begin(),
            Stmt::Commit { .. } => self.commit(),
            Stmt::Rollback {
                savepoint_name: None,
                ..
            } => self.connection.execute("ROLLBACK", &[]),
            _ if self.ledger.is_some() => self.run_inside(&statement, sql),
            _ => self.run_alone(&statement, sql),
        };
        if self.connection.is_autocommit() {
            self.ledger = None;
        }
        outcome
    }

    /// Runs a script, one statement a line, and fails with the line that failed.
    pub fn script(&mut self, lines: &str) -> Result<()> {
        for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let ran = self.run(line);
            ran.map_err(|error| Error::Io(format!("{line}: {error}")))?;
        }
        Ok(())
    }

    /// Rows of a query on the writing connection.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Value>>> {
        self.connection.query_all(sql, &[])
    }

    /// The writing connection, for what [`Self::run`] cannot do.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Stops writing; the directory stays open.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// The committed head.
    pub fn head(&self) -> Result<Seq> {
        read_head(&mut self.store.reader()?)
    }

    /// Runs `work` in one transaction with the log's rules.
    pub fn transaction<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin()?;
        match work(self) {
            Ok(done) => self.commit().map(|_| done),
            Err(error) => {
                if !self.connection.is_autocommit() {
                    self.connection.execute("ROLLBACK", &[])?;
                }
                self.ledger = None;
                Err(error)
            }
        }
    }

    /// Runs a statement with parameters inside an open transaction.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<i64> {
        let changes = self.connection.execute(sql, params)?;
        let ledger = self.ledger.as_mut().expect("a transaction is open");
        ledger.wrote(changes, true);
        Ok(changes)
    }

    fn begin(&mut self) -> Result<i64> {
        self.connection.execute("BEGIN IMMEDIATE", &[])?;
        self.ledger = Some(Ledger::begin(&mut self.connection)?);
        Ok(0)
    }

    fn commit(&mut self) -> Result<i64> {
        if let Some(ledger) = self.ledger.clone() {
            ledger.seal(&mut self.connection)?;
        }
        self.connection.execute("COMMIT", &[])
    }

    fn run_alone(&mut self, statement: &Stmt, sql: &str) -> Result<i64> {
        self.begin()?;
        let outcome = self.run_inside(statement, sql);
        let is_open = !self.connection.is_autocommit();
        let outcome = match outcome {
            // OR FAIL keeps the rows before the one that failed.
            Ok(changes) if is_open => self.commit().map(|_| changes),
            Err(error) if is_open && keeps_rows(sql) => self.commit().and(Err(error)),
            other => other,
        };
        if !self.connection.is_autocommit() {
            self.connection.execute("ROLLBACK", &[])?;
        }
        outcome
    }

    fn run_inside(&mut self, statement: &Stmt, sql: &str) -> Result<i64> {
        let connection = &mut self.connection;
        let ledger = self.ledger.as_mut().expect("a transaction is open");
        match statement {
            Stmt::AlterTable(_)
            | Stmt::CreateTable { .. }
            | Stmt::CreateIndex { .. }
            | Stmt::CreateView { .. }
            | Stmt::CreateTrigger { .. }
            | Stmt::DropTable { .. }
            | Stmt::DropIndex { .. }
            | Stmt::DropView { .. }
            | Stmt::DropTrigger { .. } => run_schema_statement(connection, sql),
            Stmt::Rollback { .. } => {
                connection.execute(sql, &[])?;
                ledger.undone(connection)?;
                Ok(0)
            }
            Stmt::Insert { .. } | Stmt::Update { .. } | Stmt::Delete { .. } => {
                let changes = connection.execute(sql, &[])?;
                ledger.wrote(changes, true);
                Ok(changes)
            }
            Stmt::Pragma { .. } => {
                connection.execute(sql, &[])?;
                ledger.wrote(0, true);
                Ok(0)
            }
            _ => connection.execute(sql, &[]),
        }
    }
}

impl Replica {
    /// Opens, or creates, a data directory that follows.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::of_store(open_store(dir)?)
    }

    /// Follows with an open store.
    pub fn of_store(store: Store) -> Result<Self> {
        Ok(Self {
            applier: Applier::open(&store)?,
            store,
            known: FinalsKnown::default(),
            limits: BatchLimits::default(),
            reader: None,
        })
    }

    /// Applies everything that `source` has beyond this copy's position, shipped in parts.
    pub fn follow(&mut self, source: &Store) -> Result<Option<Applied>> {
        let Some(batch) = self.fetch(source)? else {
            return Ok(None);
        };
        let mut received = Spool::new(self.store.dir(), SPOOL_MEMORY_DEFAULT);
        while let Some(part) = batch.spool.part(received.len(), PART_BYTES_MAX)? {
            received.append_part(&part)?;
        }
        assert_eq!(received.hash(), batch.spool.hash());
        self.applier.apply(&mut received).map(Some)
    }

    /// Reads the batch that comes next from `source`.
    pub fn fetch(&mut self, source: &Store) -> Result<Option<Batch>> {
        let kept = self.reader.take().filter(|(dir, _)| dir == source.dir());
        let (_, connection) = match kept {
            Some(kept) => self.reader.insert(kept),
            None => self
                .reader
                .insert((source.dir().to_owned(), source.reader()?)),
        };
        let mut view = ReadView::begin(connection, source.gate())?;
        let from = self.applier.position();
        view.read_batch(from, &mut self.known, source.dir(), &self.limits)
    }

    /// Stops following and becomes a primary in the next epoch.
    pub fn promote(self, node: &str) -> Result<Primary> {
        drop(self.applier);
        Primary::open_epoch(self.store, node, true, NextEpoch::Next)
    }
}

/// Everything in which two copies differ, in words; empty when they are equal. Compared:
/// positions, every replicated row (row id, storage class, exact bytes), the schema in the
/// parser's own print, the trigger set whether awake or dormant, sequences, header numbers,
/// and the engine's integrity check of both.
pub fn differences(a: &Store, b: &Store) -> Result<Vec<String>> {
    let (mut a, mut b) = (a.reader()?, b.reader()?);
    let mut found = Vec::new();
    let mut compare = |what: &str, left: String, right: String| {
        if left != right {
            found.push(format!("{what}: {left} / {right}"));
        }
    };
    compare(
        "position",
        read_head(&mut a)?.to_string(),
        read_head(&mut b)?.to_string(),
    );
    compare("schema", schema_text(&mut a)?, schema_text(&mut b)?);
    compare("triggers", trigger_text(&mut a)?, trigger_text(&mut b)?);
    let sequences = |c: &mut Connection| finals::read_sequences(c).map(|s| format!("{s:?}"));
    compare("sequences", sequences(&mut a)?, sequences(&mut b)?);
    let header = |c: &mut Connection| finals::read_header(c).map(|h| format!("{h:?}"));
    compare("header", header(&mut a)?, header(&mut b)?);
    let floor = meta::floor(&mut a)?.max(meta::floor(&mut b)?);
    for table in replicated_tables(&mut a)?.union(&replicated_tables(&mut b)?) {
        // Each node trims its log of schema statements in its own time.
        let lowest = match table.as_str() {
            names::DDL_TABLE => floor.next().to_sql(),
            _ => i64::MIN,
        };
        compare_rows(&mut a, &mut b, table, lowest, &mut found)?;
    }
    for (side, connection) in [("first", &mut a), ("second", &mut b)] {
        let verdict = connection.query_value("PRAGMA integrity_check", &[])?;
        if verdict.as_text() != Some("ok") {
            found.push(format!("integrity of the {side}: {verdict:?}"));
        }
    }
    Ok(found)
}

fn open_store(dir: &Path) -> Result<Store> {
    Store::open_with(dir, Synchronous::Normal, 4_000)
}

fn run_schema_statement(connection: &mut Connection, sql: &str) -> Result<i64> {
    connection.execute("SAVEPOINT \"_tidegate_statement\"", &[])?;
    let ran = logged::run_ddl(connection, sql);
    if !connection.is_autocommit() {
        if ran.is_err() {
            connection.execute("ROLLBACK TO \"_tidegate_statement\"", &[])?;
        }
        connection.execute("RELEASE \"_tidegate_statement\"", &[])?;
    }
    ran.map(|_| 0)
}

fn keeps_rows(sql: &str) -> bool {
    sql.to_ascii_uppercase().contains("OR FAIL")
}

fn replicated_tables(connection: &mut Connection) -> Result<BTreeSet<String>> {
    let mut tables = BTreeSet::new();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    connection.query(sql, &[], |row| {
        let name = row.text(0)?;
        if names::is_replicated(name) {
            tables.insert(ddl::fold(name));
        }
        Ok(())
    })?;
    Ok(tables)
}

/// Every object but triggers, printed by the parser, in the order of their names.
fn schema_text(connection: &mut Connection) -> Result<String> {
    let mut objects = BTreeMap::new();
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type <> 'trigger'";
    connection.query(sql, &[], |row| {
        let (name, table) = (row.text(1)?, row.text(2)?);
        if names::is_user(table) && !names::is_internal(name) {
            let key = format!(
                "{} {} on {}",
                row.text(0)?,
                ddl::fold(name),
                ddl::fold(table)
            );
            objects.insert(key, row.get(3).as_text().map(str::to_owned));
        }
        Ok(())
    })?;
    let mut text = String::new();
    for (key, sql) in objects {
        let printed = sql.map(|sql| ddl::parse_one(&sql).map(|s| s.to_string()));
        text.push_str(&format!("\n  {key}: {:?}", printed.transpose()?));
    }
    Ok(text)
}

fn trigger_text(connection: &mut Connection) -> Result<String> {
    let mut text = String::new();
    for trigger in triggers::trigger_set(connection)? {
        let statement = ddl::parse_one(&trigger.sql)?;
        assert_eq!(DdlEffect::of_statement(&statement), DdlEffect::Trigger);
        text.push_str(&format!("\n  {}: {statement}", ddl::fold(&trigger.name)));
    }
    Ok(text)
}

fn compare_rows(
    a: &mut Connection,
    b: &mut Connection,
    table: &str,
    lowest: i64,
    found: &mut Vec<String>,
) -> Result<()> {
    let (left, right) = (encoded_rows(a, table)?, encoded_rows(b, table)?);
    let keys: BTreeSet<i64> = left.keys().chain(right.keys()).copied().collect();
    let keys = keys.range(lowest..);
    let differing: Vec<i64> = keys
        .copied()
        .filter(|key| left.get(key) != right.get(key))
        .collect();
    for key in differing.iter().take(ROWS_DESCRIBED) {
        let show = |rows: &BTreeMap<i64, Vec<u8>>| rows.get(key).map(|bytes| describe(bytes));
        found.push(format!(
            "table {table} row {key}: {:?} / {:?}",
            show(&left),
            show(&right)
        ));
    }
    if differing.len() > ROWS_DESCRIBED {
        found.push(format!("table {table}: {} rows differ", differing.len()));
    }
    Ok(())
}

fn encoded_rows(connection: &mut Connection, table: &str) -> Result<BTreeMap<i64, Vec<u8>>> {
    let mut rows = BTreeMap::new();
    let Some(shape) = table_shape(connection, table)? else {
        return Ok(rows);
    };
    let sql = format!(
        "SELECT {}, {} FROM {} NOT INDEXED",
        names::quote(&shape.rowid_alias),
        shape.column_list(),
        shape.quoted_name()
    );
    connection.query(&sql, &[], |row| {
        let mut bytes = Vec::new();
        for value in row.values().skip(1) {
            codec::put_value(&mut bytes, value);
        }
        rows.insert(row.integer(0)?, bytes);
        Ok(())
    })?;
    Ok(rows)
}

fn describe(encoded: &[u8]) -> String {
    let mut reader = codec::Reader::new(encoded);
    let mut values = Vec::new();
    while let Ok(value) = reader.value() {
        values.push(match value.as_text() {
            Some(text) => format!("{text:.40?}"),
            None => format!("{value:.8?}"),
        });
    }
    values.join(", ")
}
