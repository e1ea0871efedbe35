//! The history of a database: one **opening** for each time a primary began to write.
//!
//! An opening names its epoch, a random nonce, the first position it may write, the node, the
//! time and the reason. A promotion opens a new epoch; each start of a primary opens anew
//! within its epoch. Openings are ordinary replicated rows, so whoever has a position also
//! has the openings below it, and two copies are on one history exactly as far as their
//! openings are equal. A restored backup, a cloned volume, a wiped node and a split brain
//! all show as a nonce that the other side does not have.

use crate::adapter::Connection;
use crate::change::Seq;
use crate::error::{Error, Result};
use crate::logged::{self, Ledger};
use crate::meta::{self, ClusterId};
use crate::names;
use crate::triggers;
use crate::view::Reads;

/// One opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The epoch. Every promotion raises it.
    pub epoch: u64,
    /// Random, so that no two openings are equal by chance.
    pub nonce: [u8; 16],
    /// The head before the opening, plus one: the opening's own first position.
    pub first_seq: Seq,
    /// The node that opened.
    pub node: String,
    /// When, in milliseconds since 1970, by that node's clock.
    pub opened_ms: i64,
    /// Why, for people.
    pub why: String,
}

/// Which epoch an opening belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextEpoch {
    /// The present one (1 for the first opening): the same primary starts again.
    Same,
    /// The next one: a promotion.
    Next,
    /// This one, decided elsewhere. It must be above the present one.
    Exactly(u64),
}

/// All openings, oldest first. Read them in the transaction of whatever they are compared with.
pub fn openings(source: &mut impl Reads) -> Result<Vec<Opening>> {
    let sql = format!(
        "SELECT epoch, nonce, first_seq, node, opened_ms, why FROM {} ORDER BY id",
        names::HISTORY_TABLE
    );
    let mut openings = Vec::new();
    source.read(&sql, &[], |row| {
        let number = |value: i64| u64::try_from(value).map_err(|_| not_an_opening());
        let crate::ValueRef::Blob(nonce) = row.get(1) else {
            return Err(not_an_opening());
        };
        openings.push(Opening {
            epoch: number(row.integer(0)?)?,
            nonce: nonce.try_into().map_err(|_| not_an_opening())?,
            first_seq: Seq::new(number(row.integer(2)?)?),
            node: row.text(3)?.to_owned(),
            opened_ms: row.integer(4)?,
            why: row.text(5)?.to_owned(),
        });
        Ok(())
    })?;
    check_order(&openings)?;
    Ok(openings)
}

/// Begins to be the primary, in one durable transaction of its own on a capturing connection:
/// dormant triggers wake, the first opening of all makes the cluster's id and the floor, and
/// the opening is written. Nothing may be promised to anybody before this returns.
pub fn open_as_primary(
    connection: &mut Connection,
    node: &str,
    why: &str,
    now_ms: i64,
    epoch: NextEpoch,
) -> Result<Opening> {
    connection.execute("BEGIN IMMEDIATE", &[])?;
    let opened = open_inside(connection, node, why, now_ms, epoch);
    let opened = opened.and_then(|opening| {
        connection.execute("COMMIT", &[])?;
        Ok(opening)
    });
    if opened.is_err() && !connection.is_autocommit() {
        connection.execute("ROLLBACK", &[]).ok();
    }
    opened
}

fn open_inside(
    connection: &mut Connection,
    node: &str,
    why: &str,
    now_ms: i64,
    epoch: NextEpoch,
) -> Result<Opening> {
    let ledger = Ledger::begin(connection)?;
    let present = openings(connection)?;
    let mut nonce = [0; 16];
    meta::fill_random(&mut nonce)?;
    let opening = Opening {
        epoch: choose_epoch(present.last(), epoch)?,
        nonce,
        first_seq: ledger.before().next(),
        node: node.to_owned(),
        opened_ms: now_ms,
        why: why.to_owned(),
    };
    // First of all, so that first_seq is the opening's own position.
    insert(connection, &opening)?;
    if present.is_empty() {
        begin_history(connection, &opening)?;
    }
    triggers::wake(connection)?;
    ledger.seal(connection)?;
    Ok(opening)
}

/// The first opening of all. Rows that were there before it are in no log, so then no
/// position before it can be fed.
fn begin_history(connection: &mut Connection, opening: &Opening) -> Result<()> {
    let cluster = match meta::cluster_id(connection)? {
        Some(present) => present,
        None => ClusterId::random()?,
    };
    meta::set_cluster_id(connection, cluster)?;
    if has_user_objects(connection)? {
        meta::raise_floor(connection, opening.first_seq)?;
    }
    Ok(())
}

fn insert(connection: &mut Connection, opening: &Opening) -> Result<()> {
    let sql = format!(
        "INSERT INTO {}(epoch, nonce, first_seq, node, opened_ms, why) \
         VALUES (?, ?, ?, ?, ?, ?)",
        names::HISTORY_TABLE
    );
    let row = [
        i64::try_from(opening.epoch)
            .map_err(|_| not_an_opening())?
            .into(),
        opening.nonce.to_vec().into(),
        opening.first_seq.to_sql().into(),
        opening.node.as_str().into(),
        opening.opened_ms.into(),
        opening.why.as_str().into(),
    ];
    connection.execute(&sql, &row)?;
    let head = logged::head(connection)?;
    if head == opening.first_seq {
        Ok(())
    } else {
        Err(Error::Fatal(format!(
            "an opening was captured at {head} instead of {}",
            opening.first_seq
        )))
    }
}

fn choose_epoch(last: Option<&Opening>, wanted: NextEpoch) -> Result<u64> {
    let present = last.map_or(0, |opening| opening.epoch);
    match wanted {
        NextEpoch::Same => Ok(present.max(1)),
        NextEpoch::Next => Ok(present + 1),
        NextEpoch::Exactly(epoch) if epoch > present => Ok(epoch),
        NextEpoch::Exactly(epoch) => Err(Error::Fatal(format!(
            "epoch {epoch} is not above the present one, {present}"
        ))),
    }
}

fn has_user_objects(connection: &mut Connection) -> Result<bool> {
    let mut found = false;
    connection.query("SELECT name FROM sqlite_schema", &[], |row| {
        found |= names::is_user(row.text(0)?);
        Ok(())
    })?;
    Ok(found)
}

fn check_order(openings: &[Opening]) -> Result<()> {
    let ascends =
        |pair: &[Opening]| pair[0].epoch <= pair[1].epoch && pair[0].first_seq < pair[1].first_seq;
    if openings.windows(2).all(ascends) {
        Ok(())
    } else {
        Err(Error::Corrupt("the openings do not ascend".into()))
    }
}

fn not_an_opening() -> Error {
    Error::Corrupt("a row of the history is not an opening".into())
}
