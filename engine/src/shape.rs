//! The shape of a table as rows are shipped: its name, its stored columns, and a word for
//! its row id.
//!
//! Columns are taken from the table's own text with the engine's parser. Asking
//! `pragma_table_info` would fail for a name with a quote in it, and `SELECT *` would leave
//! the names to chance. The row id has three names, and a user's column may hide any of
//! them; the first one that is not hidden is used.

use turso_parser::ast::{ColumnConstraint, ColumnDefinition, CreateTableBody, Stmt};

use crate::adapter::Connection;
use crate::ddl;
use crate::error::{Error, Result};
use crate::names;

/// What `rowid` may also be called.
const ROWID_NAMES: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// A table's name, columns and row id word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The name as the schema holds it.
    pub name: String,
    /// Stored columns in order.
    pub columns: Vec<String>,
    /// An unshadowed name of the row id, to be used without quotes.
    pub rowid: &'static str,
}

impl Shape {
    /// Finds a table by name, whatever its case. `None` when there is none.
    pub fn find(connection: &mut Connection, table: &str) -> Result<Option<Self>> {
        let mut found = None;
        let sql = "SELECT name, sql FROM sqlite_schema \
                   WHERE type = 'table' AND name = ? COLLATE NOCASE";
        connection.query(sql, &[table.into()], |row| {
            found = Some((row.text(0)?.to_owned(), row.text(1)?.to_owned()));
            Ok(())
        })?;
        found
            .map(|(name, text)| Self::of_text(&name, &text))
            .transpose()
    }

    /// Reads the shape from a CREATE TABLE text.
    pub fn of_text(name: &str, text: &str) -> Result<Self> {
        let Stmt::CreateTable {
            body: CreateTableBody::ColumnsAndConstraints { columns, .. },
            ..
        } = ddl::parse_one(text)?
        else {
            return Err(Error::Corrupt(format!(
                "the text of table {name} does not create a table: {text}"
            )));
        };
        let columns: Vec<String> = columns
            .iter()
            .filter(|column| !is_generated(column))
            .map(|column| column.col_name.as_str().to_owned())
            .collect();
        let hidden = |alias: &str| columns.iter().any(|column| names::same(column, alias));
        let rowid = ROWID_NAMES.into_iter().find(|alias| !hidden(alias));
        let rowid = rowid.ok_or_else(|| {
            Error::refused(
                "rowid_hidden",
                format!(
                    "table {name} has columns named rowid, _rowid_ and oid, so its rows cannot \
                     be addressed; rename one of them"
                ),
            )
        })?;
        Ok(Self {
            name: name.to_owned(),
            columns,
            rowid,
        })
    }

    /// `rowid, "a", "b"`: the row id and the columns, for SELECT and INSERT.
    pub fn list(&self) -> String {
        let mut list = self.rowid.to_owned();
        for column in &self.columns {
            list.push_str(", ");
            list.push_str(&names::quote(column));
        }
        list
    }

    /// The table's name, quoted.
    pub fn table(&self) -> String {
        names::quote(&self.name)
    }
}

fn is_generated(column: &ColumnDefinition) -> bool {
    column
        .constraints
        .iter()
        .any(|constraint| matches!(constraint.constraint, ColumnConstraint::Generated { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        Shape::of_text("t", text).unwrap()
    }

    #[test]
    fn odd_names_are_taken_as_they_are() {
        let shape = shape("CREATE TABLE t(\"a\"\"b\", [c d], 'e', `f` TEXT)");
        assert_eq!(shape.columns, ["a\"b", "c d", "e", "f"]);
        assert_eq!(shape.list(), "rowid, \"a\"\"b\", \"c d\", \"e\", \"f\"");
    }

    #[test]
    fn the_row_id_keeps_a_name_that_no_column_hides() {
        assert_eq!(shape("CREATE TABLE t(RowId, b)").rowid, "_rowid_");
        assert_eq!(shape("CREATE TABLE t(rowid, _rowid_)").rowid, "oid");
        let error = Shape::of_text("t", "CREATE TABLE t(rowid, oid, _rowid_)");
        assert_eq!(error.unwrap_err().code(), "TIDEGATE_REFUSED");
    }
}
