//! What is inside a copy that the engine could open: schema, rows, references.

use super::{Objection, Report, original};
use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::integrity;
use crate::names;
use crate::schema::{TableShape, table_shape};
use crate::sqlite_file::SchemaRow;
use crate::statement_gate::{ForeignKey, SchemaFacts};
use crate::value::Value;

/// Cells of a table that are named when their text is not UTF-8.
const CELLS_NAMED_MAX: usize = 20;
/// Rows that are named when a foreign key of theirs points nowhere.
const ROWS_NAMED_MAX: usize = 10;

/// A table and how many rows it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCount {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
}

/// Rows whose foreign key finds no parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenReference {
    /// The table that refers.
    pub table: String,
    /// The table that is referred to.
    pub parent: String,
    /// How many rows.
    pub rows: u64,
    /// The first of them.
    pub first_rowids: Vec<i64>,
}

/// Fills in what only the engine can tell.
pub(super) fn examine(connection: &mut Connection, report: &mut Report) -> Result<()> {
    let schema = schema_rows(connection)?;
    report.objections = original::schema_objections(&schema);
    if !report.is_acceptable() {
        return Ok(());
    }
    let tables = schema.iter().filter(|r| r.kind == "table");
    for table in tables.filter(|r| names::is_user(&r.name)) {
        read_table(connection, &table.name, report)?;
    }
    if report.is_acceptable() {
        let found = integrity::check(connection)?;
        let problems = found.problems.iter().map(|p| corrupt(p));
        report.objections.extend(problems);
    }
    if report.is_acceptable() {
        report.broken_references = broken_references(connection)?;
    }
    Ok(())
}

/// The objection for what the engine cannot read at all.
pub(super) fn unreadable(what: &str, error: &Error) -> Objection {
    Objection {
        object: what.to_owned(),
        reason: "unreadable",
        message: format!("the engine cannot read it: {error}"),
    }
}

fn corrupt(problem: &str) -> Objection {
    Objection {
        object: "the file".to_owned(),
        reason: "corrupt",
        message: format!("{problem}; try `sqlite3 OLD .recover | sqlite3 NEW`, or REINDEX"),
    }
}

fn schema_rows(connection: &mut Connection) -> Result<Vec<SchemaRow>> {
    let mut rows = Vec::new();
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid";
    connection.query(sql, &[], |row| {
        rows.push(SchemaRow {
            kind: row.text(0)?.to_owned(),
            name: row.text(1)?.to_owned(),
            table: row.text(2)?.to_owned(),
            sql: row.get(3).as_text().map(str::to_owned),
        });
        Ok(())
    })?;
    Ok(rows)
}

/// Reads every value once: a row that cannot be read could not be replicated either. The
/// engine cannot read text that is not UTF-8, which SQLite stores without looking at it.
fn read_table(connection: &mut Connection, name: &str, report: &mut Report) -> Result<()> {
    let Some(shape) = table_shape(connection, name)? else {
        return Err(Error::Corrupt(format!("table {name} is listed but absent")));
    };
    let mut scan = Scan {
        connection,
        shape: &shape,
        rows: 0,
        last: None,
    };
    let mut named = 0;
    while let Err(error) = scan.go_on() {
        let Error::Corrupt(_) = error else {
            return Err(error);
        };
        let before = report.objections.len();
        let passed = scan.pass_broken_row(&mut report.objections)?;
        named += report.objections.len() - before;
        if !passed || report.objections.len() == before {
            // Not a matter of one value.
            report.objections.push(unreadable(name, &error));
            break;
        }
        if named >= CELLS_NAMED_MAX {
            break;
        }
    }
    report.tables.push(TableCount {
        name: name.to_owned(),
        rows: scan.rows,
    });
    Ok(())
}

/// A walk over a table in the order of rowids that can step over a broken row.
struct Scan<'c> {
    connection: &'c mut Connection,
    shape: &'c TableShape,
    rows: u64,
    last: Option<i64>,
}

impl Scan<'_> {
    /// Reads on behind the last good row until the end, or until a row that fails.
    fn go_on(&mut self) -> Result<()> {
        let sql = format!(
            "SELECT {}, {} FROM {} NOT INDEXED{}",
            self.rowid(),
            self.shape.column_list(),
            self.shape.quoted_name(),
            self.behind_last()
        );
        let (rows, last) = (&mut self.rows, &mut self.last);
        let from: Vec<Value> = last.iter().map(|r| Value::Integer(*r)).collect();
        self.connection.query(&sql, &from, |row| {
            *last = Some(row.integer(0)?);
            *rows += 1;
            Ok(())
        })?;
        Ok(())
    }

    /// Names the cells of the row that failed and goes behind it. False when there is no
    /// row to be found.
    fn pass_broken_row(&mut self, objections: &mut Vec<Objection>) -> Result<bool> {
        let (rowid, table) = (self.rowid(), self.shape.quoted_name());
        let next = format!(
            "SELECT {rowid} FROM {table} NOT INDEXED{} LIMIT 1",
            self.behind_last()
        );
        let from: Vec<Value> = self.last.iter().map(|r| Value::Integer(*r)).collect();
        let mut broken = None;
        self.connection.query(&next, &from, |row| {
            broken = Some(row.integer(0)?);
            Ok(())
        })?;
        let Some(broken) = broken else {
            return Ok(false);
        };
        for column in &self.shape.columns {
            let quoted = names::quote(column);
            let sql = format!("SELECT {quoted} FROM {table} NOT INDEXED WHERE {rowid} = ?");
            let read = self.connection.query(&sql, &[broken.into()], |_| Ok(()));
            if let Err(Error::Corrupt(_)) = read {
                objections.push(not_utf8(&self.shape.name, column, broken));
            }
        }
        self.last = Some(broken);
        self.rows += 1;
        Ok(true)
    }

    fn rowid(&self) -> String {
        names::quote(&self.shape.rowid_alias)
    }

    fn behind_last(&self) -> String {
        let rowid = self.rowid();
        match self.last {
            Some(_) => format!(" WHERE {rowid} > ? ORDER BY {rowid}"),
            None => format!(" ORDER BY {rowid}"),
        }
    }
}

fn not_utf8(table: &str, column: &str, rowid: i64) -> Objection {
    let (quoted_table, quoted_column) = (names::quote(table), names::quote(column));
    Objection {
        object: table.to_owned(),
        reason: "text_not_utf8",
        message: format!(
            "row {rowid}, column {column}: the text is not UTF-8, which the engine cannot read; \
             correct it, or with sqlite3 make it a blob: UPDATE {quoted_table} SET {quoted_column} \
             = CAST({quoted_column} AS BLOB) WHERE rowid = {rowid}"
        ),
    }
}

fn broken_references(connection: &mut Connection) -> Result<Vec<BrokenReference>> {
    let facts = SchemaFacts::read(connection)?;
    let mut broken = Vec::new();
    for table in facts.tables() {
        for key in &table.foreign_keys {
            let found = check_key(connection, &table.name, key)?;
            broken.extend((found.rows > 0).then_some(found));
        }
    }
    Ok(broken)
}

/// Counts the rows with a whole key that no row of the parent has.
fn check_key(
    connection: &mut Connection,
    table: &str,
    key: &ForeignKey,
) -> Result<BrokenReference> {
    let mut found = BrokenReference {
        table: table.to_owned(),
        parent: key.parent.clone(),
        rows: 0,
        first_rowids: Vec::new(),
    };
    let Some(child) = table_shape(connection, table)? else {
        return Ok(found);
    };
    let parent = table_shape(connection, &key.parent)?;
    let sql = lonely_rows(&child, parent.as_ref(), key);
    connection.query(&sql, &[], |row| {
        found.rows += 1;
        if found.first_rowids.len() < ROWS_NAMED_MAX {
            found.first_rowids.push(row.integer(0)?);
        }
        Ok(())
    })?;
    Ok(found)
}

fn lonely_rows(child: &TableShape, parent: Option<&TableShape>, key: &ForeignKey) -> String {
    let rowid = names::quote(&child.rowid_alias);
    let whole: Vec<String> = key
        .columns
        .iter()
        .map(|c| format!("c.{} IS NOT NULL", names::quote(c)))
        .collect();
    let (table, whole) = (child.quoted_name(), whole.join(" AND "));
    let Some(parent) = parent else {
        return format!("SELECT c.{rowid} FROM {table} AS c WHERE {whole}");
    };
    let parent_columns = match key.parent_columns.is_empty() {
        true => &parent.primary_key,
        false => &key.parent_columns,
    };
    let pairs: Vec<String> = parent_columns
        .iter()
        .zip(&key.columns)
        .map(|(p, c)| format!("p.{} = c.{}", names::quote(p), names::quote(c)))
        .collect();
    format!(
        "SELECT c.{rowid} FROM {table} AS c LEFT JOIN {} AS p ON {} WHERE {whole} AND p.{} IS NULL",
        parent.quoted_name(),
        pairs.join(" AND "),
        names::quote(&parent.rowid_alias)
    )
}
