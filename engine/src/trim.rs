//! Trimming: forgetting the part of the log that nobody will ask for.
//!
//! In chunks, so that no client waits for long: the writer runs one chunk between two groups.
//! Each is one transaction that stores the slots as they are now, deletes, and raises the
//! floor together, so there is never a moment at which the log is shorter than the floor says,
//! nor one at which a slot lies below it. The newest row always stays, because the engine
//! numbers the next one from it.
//!
//! How far to trim is decided elsewhere. Here it is only made sure that no decision passes a
//! slot that holds the log.

use crate::adapter::Connection;
use crate::change::Seq;
use crate::error::{Error, Result};
use crate::names;
use crate::slots::{self, Slot, SlotState};
use crate::{logged, meta};

/// Log rows that one chunk deletes at most: about 12 ms.
pub const TRIM_ROWS_DEFAULT: u32 = 10_000;

/// What a chunk did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// The floor afterwards.
    pub floor: Seq,
    /// Log rows deleted.
    pub rows: u64,
    /// True when there is more to delete up to the bound.
    pub more: bool,
}

/// Deletes one chunk of the log up to and including `up_to`, on an internal connection, and
/// stores `slots` with it.
pub fn trim_chunk(
    connection: &mut Connection,
    up_to: Seq,
    rows_max: u32,
    slots: &[Slot],
) -> Result<Trimmed> {
    connection.execute("BEGIN IMMEDIATE", &[])?;
    let trimmed = trim_inside(connection, up_to, rows_max, slots).and_then(|trimmed| {
        connection.execute("COMMIT", &[])?;
        Ok(trimmed)
    });
    if trimmed.is_err() && !connection.is_autocommit() {
        connection.execute("ROLLBACK", &[]).ok();
    }
    trimmed
}

fn trim_inside(
    connection: &mut Connection,
    up_to: Seq,
    rows_max: u32,
    slots: &[Slot],
) -> Result<Trimmed> {
    let head = logged::head(connection)?;
    let present = meta::floor(connection)?;
    let bound = up_to.min(Seq::new(head.get().saturating_sub(1)));
    if bound <= present {
        return Ok(Trimmed {
            floor: present,
            rows: 0,
            more: false,
        });
    }
    slots::store_inside(connection, slots)?;
    check_slots(connection, bound)?;
    let cut = cut_of_chunk(connection, bound, rows_max)?;
    let floor = cut.unwrap_or(bound).max(present);
    let mut delete = |table: &str, column: &str| -> Result<i64> {
        let sql = format!("DELETE FROM {table} WHERE {column} <= ?");
        connection.execute(&sql, &[floor.to_sql().into()])
    };
    let rows = delete(names::CAPTURE_TABLE, "change_id")?;
    delete(names::KEYS_TABLE, "to_seq")?;
    delete(names::DDL_TABLE, "id")?;
    meta::raise_floor(connection, floor)?;
    if logged::head(connection)? != head {
        return Err(Error::Fatal("trimming moved the head of the log".into()));
    }
    Ok(Trimmed {
        floor,
        rows: rows.unsigned_abs(),
        more: floor < bound,
    })
}

/// A promise that is stored is kept, whoever decided otherwise.
fn check_slots(connection: &mut Connection, bound: Seq) -> Result<()> {
    let slots = slots::slots(connection)?;
    let passed = slots
        .iter()
        .find(|slot| slot.state == SlotState::Active && slot.from < bound);
    match passed {
        None => Ok(()),
        Some(slot) => Err(Error::Fatal(format!(
            "trimming up to {bound} would pass {}, which needs the log from {} on",
            slot.node, slot.from
        ))),
    }
}

/// The position of the last row of a full chunk; `None` when what is left is less.
fn cut_of_chunk(connection: &mut Connection, bound: Seq, rows_max: u32) -> Result<Option<Seq>> {
    let rows = connection.query_all(
        "SELECT change_id FROM turso_cdc WHERE change_id <= ? ORDER BY change_id LIMIT 1 OFFSET ?",
        &[bound.to_sql().into(), i64::from(rows_max.max(1) - 1).into()],
    )?;
    Ok(rows
        .first()
        .and_then(|row| row[0].as_integer())
        .and_then(Seq::from_sql))
}
