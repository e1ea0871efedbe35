//! Writing with the log's rules: what every transaction on a capturing connection must do so
//! that its effect can be shipped.
//!
//! Capture alone is not enough. Schema statements leave no usable trace, so each one becomes
//! a row of `_tidegate_ddl` in the same transaction. Sequences, `user_version`,
//! `application_id` and triggers leave none at all; they travel as final values, but only if
//! the log's head moves, so a transaction that changed nothing else touches the tick row.
//! And if the engine ever changes rows without capturing them, no replica could know: that is
//! looked for before every COMMIT, and is fatal.
//!
//! The writer, interactive transactions, promotion and the tests all go through here, inside
//! a transaction that they opened themselves:
//!
//! ```text
//! BEGIN IMMEDIATE
//!   Ledger::begin            the head before
//!   … statements …           ledger.wrote(changes, quiet) for each that succeeded
//!   run_ddl                  for each schema statement
//!   ROLLBACK TO …            ledger.undone(), when what was counted is taken back
//!   ledger.seal              tick if needed; refuses an uncaptured write
//! COMMIT                     the engine adds its own record, so the head is read afterwards
//! ```

use turso_parser::ast::{CreateTableBody, Expr, Limit, Literal, OneSelect, Select, Stmt};
use turso_parser::lexer::Lexer;
use turso_parser::token::TokenType;

use crate::adapter::Connection;
use crate::change::Seq;
use crate::ddl::{self, DdlEffect};
use crate::error::{Error, Result};
use crate::names;

/// The savepoint in which a CREATE TABLE AS is tried. Clients cannot name it.
const SHAPE_SAVEPOINT: &str = "\"_tidegate_shape\"";

/// What an open transaction owes the log. Made right after BEGIN, used up by [`Self::seal`].
#[derive(Debug, Clone)]
pub struct Ledger {
    before: Seq,
    /// Head since which `changed` counts.
    counted_from: Seq,
    changed: u64,
    quiet: bool,
}

/// A transaction that may now be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The head before the transaction.
    pub before: Seq,
    /// The head at this moment. COMMIT adds one record of the engine's own when it moved.
    pub head: Seq,
}

impl Sealed {
    /// True when the transaction changes something that is replicated.
    pub fn moved(&self) -> bool {
        self.head > self.before
    }
}

impl Ledger {
    /// Starts counting. Call it inside the transaction, before its first write.
    pub fn begin(connection: &mut Connection) -> Result<Self> {
        let before = head(connection)?;
        Ok(Self {
            before,
            counted_from: before,
            changed: 0,
            quiet: false,
        })
    }

    /// The head before the transaction.
    pub fn before(&self) -> Seq {
        self.before
    }

    /// Notes a statement that succeeded and reported so many changed rows. `quiet` says that
    /// it may have changed something that leaves no log row: every INSERT (an ignored one
    /// moves an AUTOINCREMENT sequence), and `user_version` and `application_id`.
    /// Schema statements are not noted here; [`run_ddl`] does what they need.
    pub fn wrote(&mut self, changes: i64, quiet: bool) {
        self.changed += u64::try_from(changes).unwrap_or(0);
        self.quiet |= quiet;
    }

    /// Notes a ROLLBACK TO that may have taken counted changes back.
    pub fn undone(&mut self, connection: &mut Connection) -> Result<()> {
        self.counted_from = head(connection)?;
        self.changed = 0;
        Ok(())
    }

    /// The last step before COMMIT. Every changed row leaves at least one log row, so fewer
    /// log rows than changes is a write that no replica would see: the caller must roll back.
    pub fn seal(self, connection: &mut Connection) -> Result<Sealed> {
        let mut head = head(connection)?;
        let logged = head.get().saturating_sub(self.counted_from.get());
        if head < self.before || logged < self.changed {
            return Err(Error::Fatal(format!(
                "a transaction changed {} rows but left {logged} rows in the log: the engine \
                 did not capture a write",
                self.changed
            )));
        }
        if self.quiet && head == self.before {
            head = tick(connection)?;
        }
        Ok(Sealed {
            before: self.before,
            head,
        })
    }
}

/// The head inside an open transaction on a capturing connection, its own writes included.
pub fn head(connection: &mut Connection) -> Result<Seq> {
    let head = connection.query_integer("SELECT max(change_id) FROM turso_cdc", &[])?;
    Seq::from_sql(head.unwrap_or(0))
        .ok_or_else(|| Error::Corrupt(format!("negative position {head:?} in the log")))
}

/// Runs one schema statement with what it owes the log. Returns whether the schema changed;
/// `IF NOT EXISTS` that found something changes and logs nothing.
///
/// On an error the transaction holds a part of the work: roll back to a savepoint set before.
pub fn run_ddl(connection: &mut Connection, sql: &str) -> Result<bool> {
    let statement = ddl::parse_one(sql)?;
    let effect = DdlEffect::of_statement(&statement);
    if let DdlEffect::CreateTableAs(name) = &effect {
        return run_create_table_as(connection, sql, statement, name);
    }
    let before = schema_version(connection)?;
    connection.execute(sql, &[])?;
    if schema_version(connection)? == before {
        return Ok(false);
    }
    if effect == DdlEffect::Trigger {
        tick(connection)?;
    } else {
        log_ddl(connection, sql)?;
    }
    Ok(true)
}

/// Logs a schema statement that has just run, with its exact text. The row's id is the
/// position of its own capture record; that is asserted, because batches rely on it.
pub fn log_ddl(connection: &mut Connection, sql: &str) -> Result<Seq> {
    let at = head(connection)?.next();
    let insert = format!("INSERT INTO {}(id, sql) VALUES (?, ?)", names::DDL_TABLE);
    connection.execute(&insert, &[at.to_sql().into(), sql.into()])?;
    let captured = connection.query_all(
        "SELECT table_name, id FROM turso_cdc WHERE change_id = ?",
        &[at.to_sql().into()],
    )?;
    let expected = [vec![names::DDL_TABLE.into(), at.to_sql().into()]];
    if head(connection)? != at || captured != expected {
        return Err(Error::Fatal(format!(
            "the log row of a schema statement was captured as {captured:?} instead of at {at}"
        )));
    }
    Ok(at)
}

/// Moves the head by touching the tick row.
pub fn tick(connection: &mut Connection) -> Result<Seq> {
    let before = head(connection)?;
    let update = format!("UPDATE {} SET n = n + 1 WHERE id = 1", names::TICK_TABLE);
    connection.execute(&update, &[])?;
    let after = head(connection)?;
    if after <= before {
        return Err(Error::Fatal(
            "a write to the tick row was not captured".into(),
        ));
    }
    Ok(after)
}

/// CREATE TABLE AS captures the schema row but none of the data. It becomes two statements:
/// the engine's own text for the new table, which is logged, and an INSERT, which is captured.
fn run_create_table_as(
    connection: &mut Connection,
    sql: &str,
    statement: Stmt,
    name: &str,
) -> Result<bool> {
    let Some(text) = shape_of_create_table_as(connection, statement, name)? else {
        return Ok(false);
    };
    connection.execute(&text, &[])?;
    log_ddl(connection, &text)?;
    let insert = format!("INSERT INTO {} {}", names::quote(name), select_of(sql)?);
    connection.execute(&insert, &[])?;
    Ok(true)
}

/// The text that the engine stores for the table, found by making it empty and taking that
/// back. `None` when the table exists and the statement allows that.
fn shape_of_create_table_as(
    connection: &mut Connection,
    mut statement: Stmt,
    name: &str,
) -> Result<Option<String>> {
    if let Stmt::CreateTable {
        body: CreateTableBody::AsSelect(select),
        ..
    } = &mut statement
    {
        *select = without_rows(select)?;
    }
    let before = schema_version(connection)?;
    connection.execute(&format!("SAVEPOINT {SHAPE_SAVEPOINT}"), &[])?;
    let made = connection.execute(&statement.to_string(), &[]);
    let text = match made {
        Ok(_) if schema_version(connection)? == before => Ok(None),
        Ok(_) => table_text(connection, name).map(Some),
        Err(error) => Err(error),
    };
    if !connection.is_autocommit() {
        connection.execute(&format!("ROLLBACK TO {SHAPE_SAVEPOINT}"), &[])?;
        connection.execute(&format!("RELEASE {SHAPE_SAVEPOINT}"), &[])?;
    }
    text
}

/// The same SELECT, giving no rows. VALUES takes no LIMIT and is wrapped.
fn without_rows(select: &Select) -> Result<Select> {
    let mut parts = select
        .body
        .compounds
        .iter()
        .map(|compound| &compound.select);
    let has_values = std::iter::once(&select.body.select)
        .chain(&mut parts)
        .any(|part| matches!(part, OneSelect::Values(_)));
    if has_values {
        let wrapped = format!("SELECT * FROM ({select}) LIMIT 0");
        return match ddl::parse_one(&wrapped)? {
            Stmt::Select(select) => Ok(select),
            other => Err(Error::Corrupt(format!("not a SELECT any more: {other}"))),
        };
    }
    Ok(Select {
        limit: Some(Limit {
            expr: Box::new(Expr::Literal(Literal::Numeric("0".into()))),
            offset: None,
        }),
        ..select.clone()
    })
}

fn table_text(connection: &mut Connection, name: &str) -> Result<String> {
    let found = connection.query_value(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE",
        &[name.into()],
    )?;
    match found.as_text() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::Corrupt(format!("table {name} has no text"))),
    }
}

/// The SELECT of a CREATE TABLE AS, as it was written: what follows the first AS, which is a
/// word of the statement's head and cannot stand in front of it.
fn select_of(sql: &str) -> Result<&str> {
    let mut end_of_as = None;
    for token in Lexer::new(sql.as_bytes()) {
        let token = token.map_err(|e| Error::Corrupt(format!("parsed, but not lexed: {e}")))?;
        if token.token_type == TokenType::TK_AS {
            let start = token.value.as_ptr().addr() - sql.as_ptr().addr();
            end_of_as = Some(start + token.value.len());
            break;
        }
    }
    let select = end_of_as.and_then(|end| sql.get(end..));
    select.ok_or_else(|| Error::Corrupt("CREATE TABLE AS without AS".into()))
}

fn schema_version(connection: &mut Connection) -> Result<i64> {
    let version = connection.query_integer("PRAGMA schema_version", &[])?;
    version.ok_or_else(|| Error::Corrupt("no schema_version".into()))
}
