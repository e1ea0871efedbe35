//! The rows of a stopped node, read with C SQLite.

use std::path::Path;

use anyhow::{Context, Result};
use rusqlite::{Connection, Row};
use tempfile::TempDir;

/// Name of the database file in a data directory.
pub const DATABASE_FILE: &str = "tidegate.db";

/// A database opened for judging.
pub struct Stored {
    connection: Connection,
    /// Where the copy lives; none for a database of a test.
    _copy: Option<TempDir>,
}

impl Stored {
    /// Opens a copy of the database in this data directory, whose node must be stopped. The
    /// copy keeps C SQLite, which recovers the log and checkpoints, away from the original.
    pub fn copy_of(data_dir: &Path) -> Result<Self> {
        let copy = TempDir::new()?;
        for suffix in ["", "-wal"] {
            let name = format!("{DATABASE_FILE}{suffix}");
            let from = data_dir.join(&name);
            if from.exists() {
                std::fs::copy(&from, copy.path().join(&name))
                    .with_context(|| format!("copying {}", from.display()))?;
            }
        }
        let connection = Connection::open(copy.path().join(DATABASE_FILE))?;
        Ok(Self {
            connection,
            _copy: Some(copy),
        })
    }

    /// A database in memory that these statements made.
    #[cfg(test)]
    pub fn of_statements(statements: &[String]) -> Result<Self> {
        let connection = Connection::open_in_memory()?;
        for statement in statements {
            connection
                .execute_batch(statement)
                .with_context(|| statement.clone())?;
        }
        Ok(Self {
            connection,
            _copy: None,
        })
    }

    /// All rows of a query.
    pub fn rows<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self
            .connection
            .prepare(sql)
            .with_context(|| sql.to_owned())?;
        let rows = statement.query_map([], read)?;
        rows.collect::<rusqlite::Result<_>>()
            .with_context(|| sql.to_owned())
    }

    /// The one row of a query.
    pub fn row<T>(
        &self,
        sql: &str,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.connection
            .query_row(sql, [], read)
            .with_context(|| sql.to_owned())
    }

    /// What C SQLite's integrity check says; `ok` when it finds nothing.
    pub fn integrity(&self) -> Result<String> {
        let lines = self.rows("PRAGMA integrity_check(20)", |row| row.get::<_, String>(0))?;
        Ok(lines.join("; "))
    }
}
