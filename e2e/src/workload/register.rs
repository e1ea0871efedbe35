//! A few registers that everybody overwrites.
//!
//! Every write carries a value of its own, so the last value names the write that won.

use std::time::Instant;

use crate::client::integer;
use crate::fleet::Worker;
use crate::history::{Fate, History};

/// Number of registers.
pub const REGISTERS: i64 = 8;

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Which register.
    pub register: i64,
    /// What was written; no other write has it.
    pub value: i64,
}

/// Tables and first rows.
pub fn setup() -> Vec<String> {
    let rows: Vec<_> = (0..REGISTERS).map(|id| format!("({id}, 0, 0)")).collect();
    vec![
        "CREATE TABLE registers (id INTEGER PRIMARY KEY, value INTEGER NOT NULL, \
         writes INTEGER NOT NULL)"
            .to_owned(),
        format!("INSERT INTO registers VALUES {}", rows.join(", ")),
    ]
}

/// One write, as an update or as an upsert.
pub async fn step(worker: &mut Worker, history: &History<Write>) {
    let write = Write {
        register: worker.rng.integer_below(REGISTERS),
        value: worker.fresh_id(),
    };
    let (register, value) = (integer(write.register), integer(write.value));
    let started = Instant::now();
    let outcome = if worker.rng.percent(50) {
        let sql = "UPDATE registers SET value = ?, writes = writes + 1 WHERE id = ?";
        worker.write(sql, &[value, register]).await
    } else {
        let sql = "INSERT INTO registers (id, value, writes) VALUES (?, ?, 1) \
                   ON CONFLICT (id) DO UPDATE SET value = excluded.value, writes = writes + 1";
        worker.write(sql, &[register, value]).await
    };
    history.note(write, Fate::from(&outcome), started);
}
