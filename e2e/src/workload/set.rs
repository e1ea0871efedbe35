//! A growing set: each key is inserted once, and must be there once it was acknowledged.
//!
//! Keys come from AUTOINCREMENT where the client asks for none, and the answer names the id,
//! so that an id given twice (a sequence lost on the way) shows.

use std::time::Instant;

use crate::client::{as_integer, integer, text};
use crate::fleet::Worker;
use crate::history::{Fate, History};

/// One insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insert {
    /// What was inserted.
    pub key: i64,
    /// The id that the answer named.
    pub id: Option<i64>,
}

/// Tables.
pub fn setup() -> Vec<String> {
    vec![
        "CREATE TABLE set_items (id INTEGER PRIMARY KEY AUTOINCREMENT, \
         key INTEGER NOT NULL UNIQUE, payload TEXT NOT NULL)"
            .to_owned(),
    ]
}

/// What is stored beside a key.
pub fn payload(key: i64) -> String {
    let mixed = key.unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let width = usize::try_from(mixed % 60).expect("a small number");
    format!("item {key} {mixed:x} {:ü>width$}", "")
}

/// One insert.
pub async fn step(worker: &mut Worker, history: &History<Insert>) {
    let key = worker.fresh_id();
    let args = [integer(key), text(&payload(key))];
    let started = Instant::now();
    let outcome = worker
        .write(
            "INSERT INTO set_items (key, payload) VALUES (?, ?) RETURNING id",
            &args,
        )
        .await;
    let fate = Fate::from(&outcome);
    let rows = outcome.rows().unwrap_or_default();
    let id = rows
        .first()
        .and_then(|row| row.first())
        .and_then(as_integer);
    history.note(Insert { key, id }, fate, started);
}
