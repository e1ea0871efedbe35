//! Reading the log: the stretch between two positions as intervals and schema statements.
//!
//! The log lives in two tables. The engine writes one row of `turso_cdc` for each touched
//! row. Applying a batch writes its keys packed into one row of `_tidegate_keys`, its schema
//! statements as the two rows that the primary has for them, and one row at the batch's end,
//! so that `max(change_id)` is the position on every node alike. Reading merges both, and so
//! a replica can feed another one, and go on as a primary.
//!
//! A packed row may reach back before the position asked for. It is taken whole: its keys
//! are a superset, which does no harm, and its names are those valid at that position,
//! because no packed row spans a schema statement.
//!
//! What the log must be is checked here and not repaired: another version of the capture
//! table, a schema statement that is listed but missing, or one in the middle of a packed
//! row is an error.

use std::collections::HashMap;

use crate::adapter::{Connection, Row};
use crate::change::{Ddl, Interval, LogItem, Seq, Touched};
use crate::codec;
use crate::ddl::fold;
use crate::error::{Error, Result};
use crate::names;
use crate::store::table_exists;

/// The version of the engine's capture table that this code understands.
const CAPTURE_VERSION: &str = "v2";
/// `change_type` of the record that the engine adds at COMMIT.
pub(crate) const COMMIT_RECORD: i64 = 2;
/// `change_type` of an insert.
pub(crate) const INSERT_RECORD: i64 = 1;

/// Reads the items in (from, to]. The caller holds a transaction whose head is `to`.
pub fn read_slice(connection: &mut Connection, from: Seq, to: Seq) -> Result<Vec<LogItem>> {
    if from >= to {
        return Ok(Vec::new());
    }
    check_version(connection)?;
    let mut slice = Slice::default();
    slice.read_captured(connection, from, to)?;
    slice.read_statements(connection, from)?;
    slice.read_packed(connection, from)?;
    Ok(slice.into_items(from, to))
}

/// Fails unless the capture table is of the version this code understands.
pub fn check_version(connection: &mut Connection) -> Result<()> {
    let mut version = None;
    if table_exists(connection, "turso_cdc_version")? {
        let sql = "SELECT version FROM turso_cdc_version WHERE table_name = 'turso_cdc'";
        connection.query(sql, &[], |row| {
            version = Some(row.text(0)?.to_owned());
            Ok(())
        })?;
    }
    if version.as_deref() == Some(CAPTURE_VERSION) {
        return Ok(());
    }
    Err(Error::Format(format!(
        "the capture table has version {version:?}; this version of Tidegate reads \
         {CAPTURE_VERSION} only"
    )))
}

/// Segment `i` holds what was touched before statement `i`; the last one what came after all.
#[derive(Default)]
struct Slice {
    statements: Vec<Ddl>,
    segments: Vec<Keys>,
}

/// Keys as they come, grouped by table.
#[derive(Default)]
struct Keys {
    tables: HashMap<String, usize>,
    lists: Vec<Vec<i64>>,
}

impl Slice {
    fn read_captured(&mut self, connection: &mut Connection, from: Seq, to: Seq) -> Result<()> {
        let sql = "SELECT change_id, change_type, table_name, id FROM turso_cdc \
                   WHERE change_id > ? ORDER BY change_id";
        let mut last = from;
        let mut captured = Captured::default();
        self.segments.push(Keys::default());
        connection.query(sql, &[from.to_sql().into()], |row| {
            let seq = row_seq(row, 0)?;
            if seq <= last || seq > to {
                return Err(Error::Corrupt(format!(
                    "position {seq} follows {last} in a log that ends at {to}"
                )));
            }
            last = seq;
            self.take_captured(row, seq, &mut captured)
        })?;
        if last == to {
            Ok(())
        } else {
            Err(Error::Corrupt(format!(
                "the log ends at {last} instead of {to}"
            )))
        }
    }

    fn take_captured(&mut self, row: &Row<'_>, seq: Seq, captured: &mut Captured) -> Result<()> {
        if row.integer(1)? == COMMIT_RECORD {
            return Ok(());
        }
        let name = row.text(2)?;
        let key = row.integer(3)?;
        let segment = self.segments.last_mut().expect("one segment at least");
        if captured.name.as_deref() != Some(name) {
            captured.name = Some(name.to_owned());
            captured.kind = Kind::of(name);
            captured.list = None;
        }
        match captured.kind {
            Kind::Ignored => Ok(()),
            Kind::Rows => {
                let list = *captured.list.get_or_insert_with(|| segment.list(name));
                segment.lists[list].push(key);
                Ok(())
            }
            Kind::Statement => {
                if row.integer(1)? != INSERT_RECORD || key != seq.to_sql() {
                    return Err(Error::Corrupt(format!(
                        "the log of schema statements was changed at {seq} (row {key})"
                    )));
                }
                self.statements.push(Ddl {
                    seq,
                    sql: String::new(),
                });
                self.segments.push(Keys::default());
                captured.name = None;
                Ok(())
            }
        }
    }

    /// Fills in the texts. Listed and present must be the same.
    fn read_statements(&mut self, connection: &mut Connection, from: Seq) -> Result<()> {
        let sql = format!(
            "SELECT id, sql FROM {} WHERE id > ? ORDER BY id",
            names::DDL_TABLE
        );
        let mut listed = self.statements.iter_mut();
        connection.query(&sql, &[from.to_sql().into()], |row| {
            let seq = row_seq(row, 0)?;
            match listed.next() {
                Some(ddl) if ddl.seq == seq => {
                    ddl.sql = row.text(1)?.to_owned();
                    Ok(())
                }
                other => Err(Error::Corrupt(format!(
                    "the schema statement at {seq} is not the one listed ({other:?})"
                ))),
            }
        })?;
        match listed.next() {
            None => Ok(()),
            Some(ddl) => Err(Error::Corrupt(format!(
                "the schema statement at {} is listed but missing",
                ddl.seq
            ))),
        }
    }

    fn read_packed(&mut self, connection: &mut Connection, from: Seq) -> Result<()> {
        let sql = format!(
            "SELECT to_seq, from_seq, keys FROM {} WHERE to_seq > ? ORDER BY to_seq",
            names::KEYS_TABLE
        );
        connection.query(&sql, &[from.to_sql().into()], |row| {
            let (end, start) = (row_seq(row, 0)?, row_seq(row, 1)?);
            let segment = self.statements.partition_point(|ddl| ddl.seq < end);
            let first = self.statements.partition_point(|ddl| ddl.seq <= start);
            if first != segment {
                return Err(Error::Corrupt(format!(
                    "the packed keys up to {end} span a schema statement"
                )));
            }
            let crate::ValueRef::Blob(bytes) = row.get(2) else {
                return Err(Error::Corrupt(format!("no packed keys at {end}")));
            };
            let segment = &mut self.segments[segment];
            for (name, keys) in codec::decode_keys(bytes)? {
                let list = segment.list(&name);
                segment.lists[list].extend_from_slice(&keys);
            }
            Ok(())
        })?;
        Ok(())
    }

    fn into_items(self, from: Seq, to: Seq) -> Vec<LogItem> {
        let mut items = Vec::new();
        let mut statements = self.statements.into_iter();
        let mut start = from;
        for segment in self.segments {
            let ddl = statements.next();
            let end = ddl.as_ref().map_or(to, |ddl| Seq::new(ddl.seq.get() - 1));
            let touched = segment.into_touched();
            if !touched.is_empty() {
                items.push(LogItem::Interval(Interval {
                    from: start,
                    to: end,
                    touched,
                }));
            }
            if let Some(ddl) = ddl {
                start = ddl.seq;
                items.push(LogItem::Ddl(ddl));
            }
        }
        items
    }
}

impl Keys {
    fn list(&mut self, table: &str) -> usize {
        let name = fold(table);
        let lists = &mut self.lists;
        *self.tables.entry(name).or_insert_with(|| {
            lists.push(Vec::new());
            lists.len() - 1
        })
    }

    fn into_touched(mut self) -> Touched {
        let lists = &mut self.lists;
        self.tables
            .into_iter()
            .map(|(name, list)| {
                let mut keys = std::mem::take(&mut lists[list]);
                keys.sort_unstable();
                keys.dedup();
                keys.shrink_to_fit();
                (name, keys)
            })
            .filter(|(_, keys)| !keys.is_empty())
            .collect()
    }
}

/// The table of the row before, because most rows follow one of the same table.
#[derive(Default)]
struct Captured {
    name: Option<String>,
    kind: Kind,
    list: Option<usize>,
}

#[derive(Default, Clone, Copy)]
enum Kind {
    #[default]
    Ignored,
    Rows,
    Statement,
}

impl Kind {
    fn of(table: &str) -> Self {
        if names::same(table, names::DDL_TABLE) {
            Self::Statement
        } else if names::is_replicated(table) {
            Self::Rows
        } else {
            Self::Ignored
        }
    }
}

fn row_seq(row: &Row<'_>, column: usize) -> Result<Seq> {
    let value = row.integer(column)?;
    Seq::from_sql(value).ok_or_else(|| Error::Corrupt(format!("negative position {value}")))
}
