//! The trigger set: alive on a primary, dormant on a replica.
//!
//! A replica receives final rows, effects of triggers included, so a trigger that fired
//! there would apply its effect twice. Its triggers therefore sleep as rows of
//! `_tidegate_dormant`, in the order in which the primary made them: creation order decides
//! firing order, so the order is part of the schema. A promotion wakes them in the
//! transaction that opens its epoch.

use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::names;
use crate::value::Value;
use crate::view::Reads;

/// A trigger as the schema holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// Its CREATE TRIGGER statement.
    pub sql: String,
}

/// The whole set in creation order, whether it is awake here or dormant.
pub fn trigger_set(source: &mut impl Reads) -> Result<Vec<Trigger>> {
    let live = live_triggers(source)?;
    let dormant = dormant_triggers(source)?;
    match (live.is_empty(), dormant.is_empty()) {
        (false, false) => Err(Error::Corrupt(format!(
            "{} triggers are awake beside {} dormant ones, so their order is lost",
            live.len(),
            dormant.len()
        ))),
        (false, true) => Ok(live),
        (true, _) => Ok(dormant),
    }
}

/// Triggers that would fire, in creation order.
pub fn live_triggers(source: &mut impl Reads) -> Result<Vec<Trigger>> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid";
    read_triggers(source, sql)
}

/// Moves every live trigger into the dormant set. Runs in the caller's transaction, on a
/// connection without capture. Returns how many moved.
pub fn put_to_sleep(connection: &mut Connection) -> Result<usize> {
    let live = live_triggers(connection)?;
    if live.is_empty() {
        return Ok(0);
    }
    let set = trigger_set(connection)?;
    for trigger in &live {
        let drop = format!("DROP TRIGGER {}", names::quote(&trigger.name));
        connection.execute(&drop, &[])?;
    }
    replace_dormant(connection, &set)?;
    Ok(set.len())
}

/// Makes the dormant set exactly this one. Runs in the caller's transaction.
pub fn replace_dormant(connection: &mut Connection, set: &[Trigger]) -> Result<()> {
    let table = names::DORMANT_TABLE;
    connection.execute(&format!("DELETE FROM {table}"), &[])?;
    let insert = format!("INSERT INTO {table} (ordinal, name, sql) VALUES (?, ?, ?)");
    for (ordinal, trigger) in (1..).zip(set) {
        let row = [
            Value::Integer(ordinal),
            trigger.name.as_str().into(),
            trigger.sql.as_str().into(),
        ];
        connection.execute(&insert, &row)?;
    }
    Ok(())
}

/// Makes the dormant triggers again, in order. Runs in the caller's transaction. Returns how
/// many woke.
pub fn wake(connection: &mut Connection) -> Result<usize> {
    let dormant = dormant_triggers(connection)?;
    for trigger in &dormant {
        connection.execute(&trigger.sql, &[])?;
    }
    let sql = format!("DELETE FROM {}", names::DORMANT_TABLE);
    connection.execute(&sql, &[])?;
    Ok(dormant.len())
}

fn dormant_triggers(source: &mut impl Reads) -> Result<Vec<Trigger>> {
    let sql = format!(
        "SELECT name, sql FROM {} ORDER BY ordinal",
        names::DORMANT_TABLE
    );
    read_triggers(source, &sql)
}

fn read_triggers(source: &mut impl Reads, sql: &str) -> Result<Vec<Trigger>> {
    let mut triggers = Vec::new();
    source.read(sql, &[], |row| {
        triggers.push(Trigger {
            name: row.text(0)?.to_owned(),
            sql: row.text(1)?.to_owned(),
        });
        Ok(())
    })?;
    Ok(triggers)
}
