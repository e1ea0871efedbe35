//! C SQLite as an oracle: it runs every statement that both engines know, and must end with
//! the same rows.
//!
//! Where both succeed with other rows the engines differ in something that SQLite leaves open
//! or does in its own way: the order in which OR IGNORE visits rows, the ids that a failed
//! insert uses up, what stays of a statement that fails half-way. That is counted too, and
//! must stay rare; whether the copies are equal is not the oracle's question.
//!
//! What the gate refuses is not run. Where the two engines judge a statement differently
//! (one fails, the other does not), that is counted under its reason and the oracle begins
//! anew from the primary's file at the next moment outside a transaction; until then
//! statements are left out, and counted too.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use rusqlite::types::ValueRef;
use tidegate_engine::error::Error;
use tidegate_engine::result::ResultSet;
use tidegate_engine::{Store, Value, names};

/// What the oracle ran and did not run.
#[derive(Debug, Default)]
pub struct Tally {
    pub asked: u64,
    pub ran: u64,
    pub left_out: BTreeMap<String, u64>,
    pub comparisons: u64,
    /// Comparisons that found other rows.
    pub differing: u64,
}

/// See the module's head.
pub struct Oracle {
    sqlite: rusqlite::Connection,
    is_lost: bool,
    pub tally: Tally,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.ran += other.ran;
        self.comparisons += other.comparisons;
        self.differing += other.differing;
        for (reason, count) in other.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
    }

    pub fn share(&self) -> f64 {
        if self.asked == 0 {
            return 1.0;
        }
        self.ran as f64 / self.asked as f64
    }
}

impl Oracle {
    pub fn new() -> Result<Self> {
        let sqlite = rusqlite::Connection::open_in_memory()?;
        sqlite.execute_batch("PRAGMA foreign_keys = ON")?;
        Ok(Self {
            sqlite,
            is_lost: false,
            tally: Tally::default(),
        })
    }

    /// Runs what the primary has just run and compares the verdicts.
    pub fn run(&mut self, sql: &str, primary: &Result<ResultSet, Error>, is_open: bool) {
        self.tally.asked += 1;
        if let Err(Error::Refused { reason, .. }) = primary {
            return self.leave_out(format!("refused: {reason}"));
        }
        if self.is_lost {
            return self.leave_out("after a difference, until the transaction ended".to_owned());
        }
        match (primary, self.execute(sql)) {
            (Ok(_), Ok(())) | (Err(_), Err(_)) => self.tally.ran += 1,
            (Ok(_), Err(error)) => {
                self.differ(&format!("only SQLite fails: {}", class(&error.to_string())))
            }
            (Err(error), Ok(())) => self.differ(&format!(
                "only the engine fails: {}",
                class(&error.to_string())
            )),
        }
        if self.sqlite.is_autocommit() == is_open && !self.is_lost {
            if is_open {
                self.differ("only SQLite ended the transaction");
            } else if self.sqlite.execute_batch("ROLLBACK").is_err() {
                self.differ("SQLite could not roll back");
            }
        }
    }

    /// True when the oracle waits to begin anew.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Begins anew from a copy of the primary's file, outside a transaction.
    pub fn begin_anew(&mut self, store: &Store, scratch: &Path) -> Result<()> {
        let copy = scratch.join("oracle.db");
        if copy.exists() {
            std::fs::remove_file(&copy)?;
        }
        let mut connection = store.internal()?;
        let path = names::literal(copy.to_str().context("UTF-8")?);
        connection.execute(&format!("VACUUM INTO {path}"), &[])?;
        self.sqlite = rusqlite::Connection::open(&copy)?;
        self.sqlite.execute_batch(
            "PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY",
        )?;
        self.is_lost = false;
        Ok(())
    }

    /// How the oracle's rows differ from the primary's, which `primary` reads.
    pub fn differences(
        &mut self,
        primary: &mut dyn FnMut(&str) -> Result<Vec<Vec<Value>>>,
    ) -> Result<Vec<String>> {
        let mut found = Vec::new();
        if self.is_lost {
            return Ok(found);
        }
        self.tally.comparisons += 1;
        let names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        for row in primary(names)? {
            let Some(table) = row[0].as_text().filter(|name| names::is_user(name)) else {
                continue;
            };
            let sql = format!(
                "SELECT rowid, * FROM {} ORDER BY rowid",
                names::quote(table)
            );
            let here = without_sign(primary(&sql)?);
            let there = without_sign(self.rows(&sql).with_context(|| table.to_owned())?);
            if here != there {
                found.push(format!(
                    "oracle, table {table}:\n  engine {here:?}\n  SQLite {there:?}"
                ));
            }
        }
        if !found.is_empty() {
            self.tally.differing += 1;
            self.differ("both ran it, with other rows");
        }
        Ok(found)
    }

    fn execute(&mut self, sql: &str) -> rusqlite::Result<()> {
        let mut statement = self.sqlite.prepare(sql)?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    fn rows(&self, sql: &str) -> rusqlite::Result<Vec<Vec<Value>>> {
        let mut statement = self.sqlite.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|i| row.get_ref(i).map(to_value));
            found.push(values.collect::<rusqlite::Result<_>>()?);
        }
        Ok(found)
    }

    fn differ(&mut self, reason: &str) {
        self.is_lost = true;
        self.leave_out(reason.to_owned());
    }

    fn leave_out(&mut self, reason: String) {
        *self.tally.left_out.entry(reason).or_default() += 1;
    }
}

/// SQLite keeps a REAL column's whole numbers as integers and so loses the sign of −0.0; the
/// engine keeps it, and so do our copies.
fn without_sign(mut rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    for value in rows.iter_mut().flatten() {
        if matches!(value, Value::Real(r) if *r == 0.0) {
            *value = Value::Real(0.0);
        }
    }
    rows
}

fn to_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(i) => Value::Integer(i),
        ValueRef::Real(r) => Value::Real(r),
        ValueRef::Text(t) => Value::Text(String::from_utf8_lossy(t).into_owned()),
        ValueRef::Blob(b) => Value::Blob(b.to_vec()),
    }
}

/// An error's message without the names in it, so that equal reasons are counted together.
fn class(message: &str) -> String {
    let message = message.split(" in ").next().unwrap_or(message);
    let words: Vec<&str> = message
        .split_whitespace()
        .filter(|word| {
            word.chars()
                .all(|c| c.is_ascii_alphabetic() || ":-,".contains(c))
        })
        .collect();
    words.join(" ")
}
