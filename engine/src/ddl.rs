//! What a schema statement does to the names of tables.
//!
//! The log identifies rows by table name and rowid, and names move: a table is renamed, or
//! dropped and made anew under the same name. Both the writer (what to log) and the planner
//! (which rows are meant) therefore ask the parser, never the text itself.

use turso_parser::ast::{AlterTableBody, Cmd, CreateTableBody, Stmt};
use turso_parser::parser::Parser;

use crate::error::{Error, Result};

/// The effect of one schema statement. Names are folded to lower case (ASCII), as the engine
/// compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DdlEffect {
    /// A table of this name begins to exist.
    CreateTable(String),
    /// `CREATE TABLE … AS SELECT`: never logged as it stands.
    CreateTableAs(String),
    /// The table of this name ceases to exist, with its rows.
    DropTable(String),
    /// A table lives on under another name.
    RenameTable {
        /// Its name before.
        from: String,
        /// Its name afterwards.
        to: String,
    },
    /// Triggers do not travel as statements but as a complete, ordered set.
    Trigger,
    /// Anything that moves no table name: columns, indexes, views.
    Other,
}

impl DdlEffect {
    /// Reads the effect of exactly one statement.
    pub fn of(sql: &str) -> Result<Self> {
        Ok(Self::of_statement(&parse_one(sql)?))
    }

    /// Reads the effect of a parsed statement.
    pub fn of_statement(statement: &Stmt) -> Self {
        match statement {
            Stmt::CreateTable { tbl_name, body, .. } => {
                let name = fold(tbl_name.name.as_str());
                match body {
                    CreateTableBody::ColumnsAndConstraints { .. } => Self::CreateTable(name),
                    CreateTableBody::AsSelect(_) => Self::CreateTableAs(name),
                }
            }
            Stmt::DropTable { tbl_name, .. } => Self::DropTable(fold(tbl_name.name.as_str())),
            Stmt::AlterTable(alter) => match &alter.body {
                AlterTableBody::RenameTo(to) => Self::RenameTable {
                    from: fold(alter.name.name.as_str()),
                    to: fold(to.as_str()),
                },
                _ => Self::Other,
            },
            Stmt::CreateTrigger { .. } | Stmt::DropTrigger { .. } => Self::Trigger,
            _ => Self::Other,
        }
    }
}

/// Folds a name as the engine does: ASCII only.
pub fn fold(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Parses exactly one statement; a trailing semicolon and comments are allowed.
///
/// Bound the nesting of foreign text before: the parser recurses.
pub fn parse_one(sql: &str) -> Result<Stmt> {
    let mut parser = Parser::new(sql.as_bytes());
    let statement = match parser.next() {
        Some(Ok(Cmd::Stmt(statement))) => statement,
        Some(Ok(_)) => return Err(syntax("EXPLAIN is not a statement of its own here")),
        Some(Err(error)) => return Err(syntax(&error.to_string())),
        None => return Err(syntax("no statement")),
    };
    match parser.next() {
        None => Ok(statement),
        Some(Ok(_)) => Err(syntax("more than one statement")),
        Some(Err(error)) => Err(syntax(&error.to_string())),
    }
}

fn syntax(message: &str) -> Error {
    Error::Sql {
        code: "SQLITE_ERROR",
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(sql: &str) -> DdlEffect {
        DdlEffect::of(sql).unwrap()
    }

    #[test]
    fn names_are_unquoted_and_folded() {
        assert_eq!(
            effect("CREATE TABLE main.\"We\"\"Ird\"(a);"),
            DdlEffect::CreateTable("we\"ird".into())
        );
        assert_eq!(
            effect("ALTER TABLE [A b] RENAME TO `C`"),
            DdlEffect::RenameTable {
                from: "a b".into(),
                to: "c".into()
            }
        );
        assert_eq!(
            effect("DROP TABLE IF EXISTS 'x' -- gone"),
            DdlEffect::DropTable("x".into())
        );
    }

    #[test]
    fn what_moves_no_name_is_other() {
        for sql in [
            "ALTER TABLE t RENAME COLUMN a TO b",
            "ALTER TABLE t ADD COLUMN a",
            "CREATE INDEX i ON t(a)",
            "CREATE VIEW v AS SELECT 1",
            "DROP VIEW v",
        ] {
            assert_eq!(effect(sql), DdlEffect::Other, "{sql}");
        }
        assert_eq!(effect("DROP TRIGGER x"), DdlEffect::Trigger);
        assert_eq!(
            effect("CREATE TABLE t AS SELECT 1"),
            DdlEffect::CreateTableAs("t".into())
        );
    }

    #[test]
    fn two_statements_are_refused() {
        assert!(DdlEffect::of("DROP TABLE a; DROP TABLE b").is_err());
        assert!(DdlEffect::of("  -- nothing").is_err());
    }
}
