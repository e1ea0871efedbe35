//! The statement gate: what may run, as what, and in which words.
//!
//! Replication is right for the statements it was measured with, and a client can send any
//! text. Between the two stands this gate. Every statement passes it before a connection
//! sees it, and what the gate does not know it refuses. It asks five things, in this order:
//!
//! 1. **Can it be parsed safely?** The tokens are counted before the parser runs, because
//!    parser and engine recurse and a stack overflow cannot be caught (`scan`).
//! 2. **What is it?** A read, a write, a change of the schema, a transaction statement, a
//!    PRAGMA with a rule of its own (`classify`, `pragmas`).
//! 3. **Does it name what is not the client's?** Internal tables, other schemas, the
//!    server's settings (`objects`).
//! 4. **Does it call only what is known to be harmless?** A SELECT can write through a
//!    function (`functions`, `check`).
//! 5. **Would it be captured whole?** Some statements evict rows that the engine's log never
//!    hears of; whether one does can depend on triggers far away (`ddl`, `reach`,
//!    `schema_facts`).
//!
//! Some statements run in other words than they were sent in: catalogue queries must not
//! show internal objects, session functions become the session's values (`rewrite`).
//!
//! Each refusal has a stable word, a reason and an advice; the table of them (`refusals`) is
//! what `docs/sql.md` is made of.
//!
//! The parser is the engine's own, of the same version, so the gate reads a statement
//! exactly as the engine will.

mod check;
mod classify;
mod ddl;
mod facts_of;
mod foreign_keys;
mod functions;
mod objects;
mod pragmas;
mod reach;
mod reference;
mod refusals;
mod rewrite;
mod scan;
mod schema_facts;
mod syntax;
mod walk;
mod weights;

use std::panic::{AssertUnwindSafe, catch_unwind};

use turso_parser::ast::{Cmd, Stmt};
use turso_parser::parser::Parser;

pub use reference::reference;
pub use refusals::{Refusal, all as refusals};
pub use schema_facts::{ForeignKey, Objection, SchemaFacts, TableFacts};

use crate::error::Result;

/// How large, deep and wide a statement may be.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one statement. Large values belong into parameters.
    pub sql_bytes_max: usize,
    /// Bytes of a script of several statements.
    pub script_bytes_max: usize,
    /// Statements in a script.
    pub script_statements_max: usize,
    /// Parentheses in parentheses, subqueries included.
    pub nesting_max: usize,
    /// Parameters, and the highest number of one.
    pub params_max: usize,
    /// UNION, EXCEPT and INTERSECT in one statement.
    pub compound_terms_max: usize,
    /// SELECTs in one statement.
    pub selects_max: usize,
    /// Tables in the WITH clauses of one statement.
    pub with_tables_max: usize,
    /// ON CONFLICT clauses in one statement.
    pub upsert_clauses_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sql_bytes_max: 1 << 20,
            script_bytes_max: 16 << 20,
            script_statements_max: 10_000,
            nesting_max: 100,
            params_max: 32_766,
            compound_terms_max: 500,
            selects_max: 1_000,
            with_tables_max: 100,
            upsert_clauses_max: 32,
        }
    }
}

/// A statement that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// What it is.
    pub kind: Kind,
    /// The text to run. One statement, without a semicolon; empty where nothing is to run.
    pub sql: String,
    /// It asks for `last_insert_rowid()`, `changes()` or `total_changes()`: pass its text
    /// through [`bind_session_values`] before it runs on a shared connection.
    pub uses_session_values: bool,
    /// It can fire a trigger that asks for them: it must not share a group.
    pub touches_session_triggers: bool,
}

/// What a statement is, as far as running it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Nothing to run: no text, or a PRAGMA that is accepted and ignored.
    Empty,
    /// Changes nothing.
    Read,
    /// Changes rows.
    Write(WriteInfo),
    /// Changes the schema.
    Ddl(DdlInfo),
    /// Begins a transaction.
    Begin(BeginKind),
    /// Ends it.
    Commit,
    /// Ends it and undoes it.
    Rollback,
    /// Marks a place in it.
    Savepoint(String),
    /// Forgets that place.
    Release(String),
    /// Goes back to it.
    RollbackTo(String),
    /// Asks for, or sets, the session's enforcement of foreign keys.
    ForeignKeys(Option<bool>),
    /// Sets a number in the file's header: a write that leaves no log row.
    HeaderPragma {
        /// Which one.
        field: HeaderField,
        /// The new value.
        value: i32,
    },
}

/// About a statement that changes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteInfo {
    /// The table it names.
    pub table: String,
    /// It has a RETURNING clause.
    pub returning: bool,
    /// Some foreign key of the schema is checked at COMMIT.
    pub deferred_keys: bool,
    /// It can set off triggers or the actions of foreign keys.
    pub sets_off_more: bool,
}

/// About a statement that changes the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DdlInfo {
    /// Runs as it is, and its text goes into the log.
    Logged,
    /// CREATE or DROP TRIGGER: the trigger set travels as a whole.
    Trigger,
    /// CREATE TABLE ... AS SELECT, to be run as two statements.
    CreateTableAs {
        /// The new table.
        table: String,
        /// Does nothing when the table exists.
        if_not_exists: bool,
        /// Makes the table without rows, so that the engine's text of it can be read.
        create_empty: String,
        /// Fills it.
        insert: String,
    },
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginKind {
    /// May read first and write later.
    Deferred,
    /// Writes.
    Immediate,
    /// Must not write.
    ReadOnly,
}

/// The numbers in the file's header that belong to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderField {
    /// `PRAGMA user_version`
    UserVersion,
    /// `PRAGMA application_id`
    ApplicationId,
}

/// What the session functions answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionValues {
    /// `last_insert_rowid()`
    pub last_insert_rowid: i64,
    /// `changes()`
    pub changes: i64,
    /// `total_changes()`
    pub total_changes: i64,
}

/// Judges exactly one statement. A trailing semicolon and comments are allowed.
pub fn inspect(sql: &str, facts: &SchemaFacts, limits: &Limits) -> Result<Inspected> {
    check_length(sql, limits.sql_bytes_max)?;
    let mut pieces = scan::pieces(sql, limits)?.into_iter();
    let Some(piece) = pieces.next() else {
        return Ok(classify::plain(Kind::Empty, String::new()));
    };
    if pieces.next().is_some() {
        return Err(syntax::sql_error(
            "the text holds more than one statement".into(),
        ));
    }
    inspect_piece(&piece, facts, limits).map(|(inspected, _)| inspected)
}

/// Judges a script statement by statement, without running it. `facts` follow what the
/// script would do to the schema. `each` receives line, text and judgement.
pub fn inspect_script(
    sql: &str,
    facts: &mut SchemaFacts,
    limits: &Limits,
    mut each: impl FnMut(usize, &str, Result<Inspected>),
) -> Result<()> {
    check_length(sql, limits.script_bytes_max)?;
    for piece in scan::pieces(sql, limits)? {
        let judged = inspect_piece(&piece, facts, limits);
        if let Ok((_, Some(Cmd::Stmt(statement)))) = &judged {
            facts.apply(statement);
        }
        let inspected = judged.map(|(inspected, _)| inspected);
        each(piece.line, piece.text, inspected);
    }
    Ok(())
}

/// Splits a script into its statements; trigger bodies stay whole.
pub fn split(sql: &str, limits: &Limits) -> Result<Vec<String>> {
    check_length(sql, limits.script_bytes_max)?;
    let pieces = scan::pieces(sql, limits)?;
    Ok(pieces.into_iter().map(|p| p.text.to_owned()).collect())
}

/// Puts the session's values in the place of the functions that ask for them.
pub fn bind_session_values(sql: &str, values: &SessionValues) -> Result<String> {
    rewrite::bind_session_values(sql, values)
}

fn inspect_piece(
    piece: &scan::Piece<'_>,
    facts: &SchemaFacts,
    limits: &Limits,
) -> Result<(Inspected, Option<Cmd>)> {
    piece.check(limits)?;
    if is_begin_read_only(&piece.lead) {
        let kind = Kind::Begin(BeginKind::ReadOnly);
        return Ok((classify::plain(kind, "BEGIN".into()), None));
    }
    let mut command = parse_command(piece.text)?;
    let inspected = classify::classify(&mut command, piece.text, facts)?;
    Ok((inspected, Some(command)))
}

/// `BEGIN READONLY` and `BEGIN TRANSACTION READONLY`, which libSQL clients send. The engine
/// takes the second for a transaction named READONLY, and lets it write.
fn is_begin_read_only(lead: &[String]) -> bool {
    let lead: Vec<&str> = lead.iter().map(String::as_str).collect();
    matches!(
        lead.as_slice(),
        ["BEGIN", "READONLY"]
            | ["BEGIN", "TRANSACTION", "READONLY"]
            | ["BEGIN", "READONLY", "TRANSACTION"]
            | ["BEGIN", "DEFERRED", "TRANSACTION", "READONLY"]
    )
}

fn check_length(sql: &str, max: usize) -> Result<()> {
    if sql.len() > max {
        return Err(crate::error::Error::TooLarge(format!(
            "the SQL text has {} bytes and {max} are allowed; pass large values as parameters",
            sql.len()
        )));
    }
    Ok(())
}

/// Parses one statement of a text that was scanned. The parser is not ours: should it
/// panic, that is an error of this statement.
fn parse_command(sql: &str) -> Result<Cmd> {
    let parsed = catch_unwind(AssertUnwindSafe(|| Parser::new(sql.as_bytes()).next()));
    match parsed {
        Ok(Some(Ok(command))) => Ok(command),
        Ok(Some(Err(error))) => Err(syntax::parser_error(sql, &error)),
        Ok(None) => Err(syntax::sql_error("no statement".into())),
        Err(_) => Err(syntax::sql_error("syntax error".into())),
    }
}

/// Parses a statement of the schema table.
fn parse(sql: &str) -> Result<Stmt> {
    match parse_command(sql)? {
        Cmd::Stmt(statement) => Ok(statement),
        _ => Err(syntax::sql_error("EXPLAIN is no object".into())),
    }
}
