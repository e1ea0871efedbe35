//! Slots: what this node has promised to keep of its log, and for whom.
//!
//! A node that follows this one has a slot here with a position that it durably holds. The
//! log is not trimmed past the position of an active slot, whether its node is connected, away,
//! or this process was started again in between. A stored position may be older than what the
//! node holds by now: less is trimmed then, and nothing is wrong. So positions are stored in
//! the transaction that trims and never on the path of an acknowledgement.
//!
//! A slot that held the log for longer than is configured is marked [`SlotState::NeedsSnapshot`],
//! in a transaction of its own, before anything it needs is trimmed.
//!
//! `_tidegate_slots` is local to the node: it takes no part in digests, no batch carries it,
//! and an installed snapshot begins without it.

use crate::adapter::Connection;
use crate::change::Seq;
use crate::error::{Error, Result};
use crate::names;
use crate::view::Reads;

/// Slots of one node. Who asks for one more is told to wait.
pub const SLOTS_MAX: usize = 256;

/// Whether a slot holds the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing after its position is trimmed.
    Active,
    /// It was given up: its node is fed by a snapshot first.
    NeedsSnapshot,
}

/// One slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Name of the node that follows.
    pub node: String,
    /// A position that the node durably holds, or will when its snapshot has arrived.
    pub from: Seq,
    /// When the node was heard last, milliseconds since 1970 on this node's clock.
    pub seen_ms: i64,
    /// Whether it holds the log.
    pub state: SlotState,
}

impl SlotState {
    /// The word, here and wherever a state is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NeedsSnapshot => "needs_snapshot",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Active, Self::NeedsSnapshot]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// All slots, by name.
pub fn slots(source: &mut impl Reads) -> Result<Vec<Slot>> {
    let sql = format!(
        "SELECT node, applied_seq, seen_ms, state FROM {} ORDER BY node",
        names::SLOTS_TABLE
    );
    let mut slots = Vec::new();
    source.read(&sql, &[], |row| {
        let (seq, word) = (row.integer(1)?, row.text(3)?);
        let corrupt = || Error::Corrupt(format!("a slot at {seq} in state {word:?}"));
        slots.push(Slot {
            node: row.text(0)?.to_owned(),
            from: Seq::from_sql(seq).ok_or_else(corrupt)?,
            seen_ms: row.integer(2)?,
            state: SlotState::parse(word).ok_or_else(corrupt)?,
        });
        Ok(())
    })?;
    Ok(slots)
}

/// Stores slots, new ones and known ones, in a transaction of their own.
pub fn store(connection: &mut Connection, slots: &[Slot]) -> Result<()> {
    in_transaction(connection, |connection| store_inside(connection, slots))
}

/// Takes the slot of a node that will not come back. False if it had none.
pub fn remove(connection: &mut Connection, node: &str) -> Result<bool> {
    in_transaction(connection, |connection| Ok(delete(connection, node)? > 0))
}

/// Stores slots inside the caller's transaction.
pub(crate) fn store_inside(connection: &mut Connection, slots: &[Slot]) -> Result<()> {
    let insert = format!(
        "INSERT INTO {}(node, applied_seq, seen_ms, state) VALUES (?, ?, ?, ?)",
        names::SLOTS_TABLE
    );
    for slot in slots {
        delete(connection, &slot.node)?;
        let row = [
            slot.node.as_str().into(),
            slot.from.to_sql().into(),
            slot.seen_ms.into(),
            slot.state.as_str().into(),
        ];
        connection.execute(&insert, &row)?;
    }
    Ok(())
}

fn delete(connection: &mut Connection, node: &str) -> Result<i64> {
    let sql = format!("DELETE FROM {} WHERE node = ?", names::SLOTS_TABLE);
    connection.execute(&sql, &[node.into()])
}

fn in_transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<T> {
    connection.execute("BEGIN IMMEDIATE", &[])?;
    let done = work(connection).and_then(|done| {
        connection.execute("COMMIT", &[])?;
        Ok(done)
    });
    if done.is_err() && !connection.is_autocommit() {
        connection.execute("ROLLBACK", &[]).ok();
    }
    done
}
